"""The interface of agents: an agent is told events of the call and answers each with acts.

The conversation (`pipeline.session.session`) owns time, audio and interruption; the agent owns content. A
`Conversation` is made per call and is used from one task at a time.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pipeline.speech import Expected
from pipeline.transcript import TranscriptEntry

# Events: what the agent is told -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallOpened:
    """The call was answered and nobody has said anything yet."""


@dataclass(frozen=True, slots=True)
class UserSaid:
    """The caller's turn ended. `text` may be "" (speech that was not understood); `heard` is how much of the
    agent's previous words the caller had heard when they began. With `continues` the previous `UserSaid` came
    too early: the caller went on before hearing any of the answer, which was thrown away, and `text` is the
    whole of what they said. An agent that moved on undoes that first.

    `keyed`: digits that were keyed before the words, which are part of the answer.

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
    """Digits keyed by the caller, collected until the terminator, the expected count or a pause. `heard` and
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


AgentEvent = CallOpened | UserSaid | UserKeyed | UserSilent


# Acts: what the agent answers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Say:
    """Words for the caller. With `interruptible=False` speech over them does not stop them."""

    text: str
    interruptible: bool = True


@dataclass(frozen=True, slots=True)
class Expect:
    """What the next answer may be: given to the recogniser and to end-pointing. A `masked` answer (a card
    number, a PIN) reaches the agent whole and appears as dots in transcript, events and records."""

    expected: Expected
    masked: bool = False


@dataclass(frozen=True, slots=True)
class SendDigits:
    """DTMF for the far end (an IVR, an extension)."""

    digits: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Hangs up when everything said so far has been heard. `disposition` goes to the analysis.

    A caller who answers those words with more than a goodbye keeps the call, and the next event has what they
    said; with `final` the call ends whatever the caller says.
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
    """Stay silent for `seconds` (at most 60) once the words so far have been heard: the caller looks
    something up, a line rings. What the caller says ends the wait. Raises ValueError for what is no time."""

    seconds: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.seconds):
            raise ValueError("a wait takes a finite number of seconds")


@dataclass(frozen=True, slots=True)
class SwitchLanguage:
    """From the next words on, both sides speak `language` ("en", "ar"): voice, recogniser, end-pointing."""

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


AgentAct = Say | Expect | SendDigits | HangUp | Transfer | Wait | SwitchLanguage | DoNotCall | Trouble


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The agent's report at the end of a call. `reached_goal` is None for an agent without a goal."""

    disposition: str = ""
    reached_goal: bool | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    extracted: Mapping[str, Any] = field(default_factory=dict)
    """The fields that a schema asked for, with their types."""


@dataclass(frozen=True, slots=True)
class AgentContext:
    """The call that an agent's conversation is made for. `variables` are the promptVariables. `metadata` is
    the call's own: for code, and for tools that name a field of it. `prompt_metadata` is the part of the
    metadata that a model may be told: all of a web call's, nothing of a phone call's."""

    call_id: str
    language: str
    greeting: str
    variables: Mapping[str, str]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    prompt_metadata: Mapping[str, Any] = field(default_factory=dict)


class Conversation(Protocol):
    """One agent in one call."""

    def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """Answers `event` with acts, in order. The iterator is closed in the middle when the caller
        interrupts; the next event then says what was heard. Raises `EngineError`."""

    def report(self) -> AgentReport:
        """Reports the conversation's result so far; may be called at any time."""


@runtime_checkable
class Debriefing(Protocol):
    """A conversation that also works on its report after the call has ended."""

    async def debrief(self, transcript: Sequence[TranscriptEntry]) -> AgentReport:
        """Reports the call's result with everything that was said and heard. Called once, after the hang-up.
        Raises `EngineError`; then `report` is the result."""


class Agent(Protocol):
    """An agent's definition, shared by its calls; made by `from_settings(mapping)`."""

    async def start(self) -> None:
        """Checks and warms the agent's engines. Raises `EngineMissing`."""

    def join(self, context: AgentContext) -> Conversation:
        """Makes the conversation of one call."""

    async def close(self) -> None:
        """Closes the agent's connections and frees its memory."""
