"""What an agent is: something that is told what happened and says what to do next.

The conversation (`pipeline.session.session`) owns time, audio and interruption; the agent owns content. An
agent is created per call and is used from one task at a time.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pipeline.speech import Expected
from pipeline.transcript import TranscriptEntry

# What happened ----------------------------------------------------------------------------------------------


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

    `settled` is None for a turn that is over for certain. Otherwise the answer is prepared on the chance that
    it is: nothing of it is heard before the turn is certain, and an agent awaits `settled()` before it does
    what cannot be undone (a tool that books). A guess that was wrong closes the iterator instead."""

    text: str
    confidence: float
    heard: str = ""
    interrupted: bool = False
    continues: bool = False
    keyed: str = ""
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


# What to do next --------------------------------------------------------------------------------------------


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
    """End the call when everything said so far has been heard. `disposition` goes to the analysis. Who says
    more than goodbye to those words keeps the call, and the next event tells what they said; `final`:
    whatever they say."""

    disposition: str = "completed"
    final: bool = False


@dataclass(frozen=True, slots=True)
class Transfer:
    """Hand the caller to `target` (a number of the company or a room) when the words have been heard, unless
    they say something to them."""

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
    """The called person asked not to be called again. Their number, and no other, goes on the company's
    list; the server does it, whatever becomes of the conversation."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something went wrong and was got over; it stands among the call's faults, and the caller hears nothing
    of it."""

    message: str


AgentAct = Say | Expect | SendDigits | HangUp | Transfer | Wait | SwitchLanguage | DoNotCall | Trouble


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What the agent knows at the end. `reached_goal` is None for an agent without a notion of one."""

    disposition: str = ""
    reached_goal: bool | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""
    extracted: Mapping[str, Any] = field(default_factory=dict)
    """The fields that a schema asked for, with their types."""


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What an agent is born with. `variables` are the promptVariables. `metadata` is the call's own: for
    code, and for tools that name a field of it. `prompt_metadata` is what of the metadata a model may be
    told: a web call's, and nothing of a phone call's."""

    call_id: str
    language: str
    greeting: str
    variables: Mapping[str, str]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    prompt_metadata: Mapping[str, Any] = field(default_factory=dict)


class Conversation(Protocol):
    """One agent in one call."""

    def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """What to do about `event`. The iterator is closed in the middle when the caller interrupts; the next
        event then says what was heard. Raises `EngineError`."""

    def report(self) -> AgentReport:
        """What came of it; may be asked at any time."""


@runtime_checkable
class Debriefing(Protocol):
    """What a conversation may have beside: something to think over when the call has ended."""

    async def debrief(self, transcript: Sequence[TranscriptEntry]) -> AgentReport:
        """The report, with what follows from everything that was said and heard. Asked once, when nobody is
        waiting on the line any more. Raises `EngineError`; then `report` is what there is."""


class Agent(Protocol):
    """An agent's definition, shared by its calls; made by `from_settings(mapping)`."""

    async def start(self) -> None:
        """Checks and warms what it needs. Raises `EngineMissing`."""

    def join(self, context: AgentContext) -> Conversation:
        """A conversation for one call."""

    async def close(self) -> None:
        """Frees what it holds."""
