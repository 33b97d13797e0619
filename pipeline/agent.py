"""The interface of agents: an agent receives events of the call and answers each with acts.

The session (`pipeline.session.session`) handles time, audio and interruption; the agent decides what is said
and done. A `Conversation` is made per call and is used from one task at a time.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pipeline.audio import Pcm
from pipeline.speech import Expected, SpeechToText
from pipeline.transcript import TranscriptEntry

# Events, which the agent receives ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallOpened:
    """The call was answered; the agent greets the caller."""


@dataclass(frozen=True, slots=True)
class UserSaid:
    """The caller's turn ended.

    `text`: the recognised words, "" for speech that was not understood; `confidence`: the recogniser's, 0 to
    1. `heard`: the part of the agent's previous words that the caller heard; `interrupted`: the caller
    stopped those words. `keyed`: digits that the caller keyed before the words, part of the answer.

    `continues`: the previous `UserSaid` came before the end of the caller's turn. The answer to that event
    was discarded unheard, and `text` has the words of both events; the agent first undoes what it changed.

    `doubtful`: `text` is to be acted upon only when the caller has confirmed it (`Hypothesis.doubtful`).

    `settled` is None for a turn that is over for certain. Otherwise the answer is prepared on the chance that
    it is: nothing of it is heard before the turn is certain, and an agent awaits `settled()` before it does
    what cannot be undone (a tool that books). A guess that was wrong closes the iterator instead."""

    text: str
    confidence: float
    heard: str = ""
    interrupted: bool = False
    continues: bool = False
    keyed: str = ""
    doubtful: bool = False
    settled: Callable[[], Awaitable[None]] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class UserKeyed:
    """The caller keyed `digits`, collected until the terminator, the expected count or a pause. `heard` and
    `interrupted` are those of `UserSaid`."""

    digits: str
    heard: str = field(default="", compare=False)
    interrupted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class UserSilent:
    """The caller has said nothing for the reprompt time. `count` is 1 for the first time in a row; `heard`
    and `interrupted` are those of `UserSaid`."""

    count: int
    heard: str = field(default="", compare=False)
    interrupted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class TransferFailed:
    """The caller is back: nobody took them at `target`. `outcome`: "declined", "busy", "no_answer", "unknown"
    and so on; the caller has heard the ring and nothing else. `apology`: the operator's words for it."""

    target: str
    outcome: str
    apology: str = ""


@dataclass(frozen=True, slots=True)
class HandedBack:
    """The caller is back from a person of the company, who had taken the call over. `said`: what both said
    meanwhile; `heard` and `interrupted`: of the agent's words before, as in `UserSaid`."""

    said: tuple[TranscriptEntry, ...] = ()
    heard: str = ""
    interrupted: bool = False


AgentEvent = CallOpened | UserSaid | UserKeyed | UserSilent | TransferFailed | HandedBack

Opening = CallOpened | TransferFailed | HandedBack
"""The events that a conversation begins with, the second one after a transfer, the third one after a person
took it over."""


# Acts, with which the agent answers -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Say:
    """Says `text` to the caller. With `interruptible=False` a caller who speaks does not stop the words."""

    text: str
    interruptible: bool = True


@dataclass(frozen=True, slots=True)
class VoicedPiece:
    """A piece of an agent's own speech: int16 samples, and text that goes on from that of the piece before,
    of words that begin in these samples or later."""

    samples: Pcm
    text: str = ""


class OwnSpeech(Protocol):
    """Words that an agent says in a voice of its own, while they are being made."""

    @property
    def rate_hz(self) -> int:
        """The sample rate of every piece, in Hz."""

    @property
    def broke_off(self) -> bool:
        """Whether the pieces have ended in the middle of the words."""

    def pieces(self) -> AsyncIterator[VoicedPiece]:
        """The pieces as they are made."""

    def cut(self, heard_ms: int) -> None:
        """Notes that no more than the first `heard_ms` of the sound is heard."""


@dataclass(frozen=True, slots=True)
class Play:
    """Plays words that the agent says itself. A caller who speaks stops these."""

    speech: OwnSpeech


@dataclass(frozen=True, slots=True)
class Expect:
    """Tells the recogniser and end-pointing which answers to expect next. A `masked` answer (a card number or
    a PIN) reaches the agent whole and appears as dots in transcript, events and records."""

    expected: Expected
    masked: bool = False


@dataclass(frozen=True, slots=True)
class SendDigits:
    """Sends DTMF `digits` (0-9, *, #, A-D) to the far end, such as an IVR, after the words so far."""

    digits: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Hangs up once the words so far have been heard. `disposition`: the call's outcome for the analysis.

    If the caller answers those words with more than a goodbye, the call goes on and the next event has the
    caller's words; with `final` the call ends in any case.
    """

    disposition: str = "completed"
    final: bool = False


@dataclass(frozen=True, slots=True)
class Transfer:
    """Transfers the caller to `target` (a number of the company or a room) when the words have been heard,
    unless the caller answers those words."""

    target: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Stays silent for `seconds` (at most 60) once the words so far have been heard, while the caller looks
    something up or a line rings. The caller's voice ends the wait. Raises ValueError for NaN or infinity."""

    seconds: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds):
            raise ValueError("a wait takes a finite number of seconds")


@dataclass(frozen=True, slots=True)
class SwitchLanguage:
    """Sets the language of voice, recogniser and end-pointing to `language` ("en", "ar") from the next words
    on."""

    language: str


@dataclass(frozen=True, slots=True)
class DoNotCall:
    """Puts the called person's number, and no other, on the company's do-not-call list, at the person's
    request; the server does so however the conversation ends."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Notes a fault that the agent recovered from among the call's faults; the caller hears nothing of the
    fault."""

    message: str


AgentAct = Say | Play | Expect | SendDigits | HangUp | Transfer | Wait | SwitchLanguage | DoNotCall | Trouble


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The agent's report at the end of a call. `reached_goal` is None for an agent without a goal."""

    disposition: str = ""
    reached_goal: bool | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    extracted: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the agent's extraction schema, each with a value of the field's type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """One use of a tool by an agent. `id`: a UUID, the `Idempotency-Key` of the tool's request. `result`: the
    text that the model got, `failed` where the text is an error. `began` and `ended` in loop time. Numbers
    under a mask are in neither `arguments` nor `result`."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    result: str
    failed: bool
    began: float
    ended: float


def _untold(use: ToolUse) -> None:
    """Drops the record of a tool's use."""


@dataclass(frozen=True, slots=True)
class AgentContext:
    """The call that an agent's conversation is made for. `variables`: the API's promptVariables. `metadata`:
    the call's metadata, for code and for tools that name one of its fields. `prompt_metadata`: the part of
    `metadata` that may enter a language model's prompt, all of a web call's and none of a phone call's.
    `tool_used` takes each use of a tool when it is over, and never raises. `trace_id`: of the call (W3C
    Trace Context), "" without one."""

    call_id: str
    language: str
    greeting: str
    variables: Mapping[str, str]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    prompt_metadata: Mapping[str, Any] = field(default_factory=dict)
    tool_used: Callable[[ToolUse], None] = field(default=_untold, compare=False)
    trace_id: str = ""


class Conversation(Protocol):
    """One agent in one call."""

    def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """Answers `event` with acts, in order. The session closes the iterator early when the caller
        interrupts; the next event then has the words that were `heard`. Raises `EngineError`."""

    def report(self) -> AgentReport:
        """Reports the conversation's result so far; may be called at any time."""


@runtime_checkable
class Debriefing(Protocol):
    """A conversation that also works on its report after the call has ended."""

    async def debrief(self, transcript: Sequence[TranscriptEntry]) -> AgentReport:
        """Reports the call's result from the whole `transcript`. Called once, after the hang-up. Raises
        `EngineError`; the result is then that of `report`."""


@runtime_checkable
class Summarising(Protocol):
    """A conversation that can tell a colleague what it was about."""

    async def summarise(self, transcript: Sequence[TranscriptEntry]) -> str:
        """Returns the conversation so far in a few sentences to be spoken. Raises `EngineError`."""


@runtime_checkable
class Advised(Protocol):
    """A conversation that can be told something which the caller does not hear."""

    def advise(self, text: str) -> bool:
        """Takes a supervisor's `text` into account from the next answer on; False: this one cannot."""


@runtime_checkable
class Hearing(Protocol):
    """A conversation that may hear the caller by itself, beside the recogniser."""

    def ears(self, stt: SpeechToText, *, rate_hz: int) -> SpeechToText:
        """Gives a recogniser in front of `stt` through which the conversation hears the caller, at `rate_hz`;
        `stt` itself where it hears nothing. Its `close`, which does not close `stt`, ends the hearing."""


class Agent(Protocol):
    """An agent's definition, shared by its calls; made by `from_settings(mapping)`."""

    async def start(self) -> None:
        """Checks and warms the agent's engines. Raises `EngineMissing`."""

    def join(self, context: AgentContext) -> Conversation:
        """Makes the conversation of one call."""

    async def close(self) -> None:
        """Closes the agent's connections and frees its memory."""
