"""Decides whether to talk, leave a message or hang up, by what answered a call and the agent's settings.

```
LISTENING ──person, or silence───────────────────────────► talk
    │  machine ──► MACHINE ──beep, or its end──► talk, or leave the message
    │  music, ring-back ──► HOLDING ──person──► talk          ──too long──► hang up
    └──busy, congestion, special information tone──► hang up
```

Sans-IO like turn-taking: frames and `now` in, a verdict out. With both settings at "talk" the agent's first
words do not wait; the line is still classified, for the record and to hang up on a busy tone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from pipeline.agent import AgentAct, AgentEvent, AgentReport, CallOpened, Conversation, HangUp, Say
from pipeline.audio import FRAME_MS, Pcm
from pipeline.call_progress.classifier import CallProgressClassifier, CallProgressKind
from pipeline.call_progress.settings import AnswerDetectionSettings

TALK_TO_ALL: Final = AnswerDetectionSettings()


class AnswerDecision(Enum):
    """The decision about an answered line."""

    TALK = auto()
    LEAVE_MESSAGE = auto()
    HANG_UP = auto()


class _State(Enum):
    LISTENING = auto()
    MACHINE = auto()
    HOLDING = auto()
    DECIDED = auto()


LISTEN_S: Final = 6.0  # time after which an undecided line (noise, or no audio at all) means TALK
LISTEN_AT_MOST_S: Final = 15.0  # the same while a voice goes on
GREETING_S: Final = 60.0  # longest greeting of a machine
ATTENTION_S: Final = 30.0  # time after the answer in which the line is classified

_DEAD: Final = frozenset(
    (CallProgressKind.BUSY, CallProgressKind.CONGESTION, CallProgressKind.SIT, CallProgressKind.DIAL_TONE)
)
_HELD: Final = frozenset((CallProgressKind.MUSIC, CallProgressKind.RINGBACK))
_AWAITED: Final = frozenset(
    (CallProgressKind.HUMAN, CallProgressKind.QUIET, CallProgressKind.MACHINE_ENDED, CallProgressKind.BEEP)
)
_DISPOSITIONS: Final[Mapping[CallProgressKind, str]] = MappingProxyType(
    {
        CallProgressKind.MACHINE: "answering_machine",
        CallProgressKind.MUSIC: "hold_music",
        CallProgressKind.RINGBACK: "no_answer_behind",
        CallProgressKind.BUSY: "busy_tone",
        CallProgressKind.CONGESTION: "congestion_tone",
        CallProgressKind.SIT: "not_in_service",
        CallProgressKind.DIAL_TONE: "dial_tone",
    }
)


class AnswerDetector:
    """Classifies the line of one call, from its early media on, and decides how to proceed. `verdict`: None
    until decided. `found`: the kind of line ("answering_machine", "hold_music", ...), "" for a person or an
    unknown kind; `early`: the same for early media."""

    def __init__(self, settings: AnswerDetectionSettings, message: str | None = None) -> None:
        self.verdict: AnswerDecision | None = None
        self.message = settings.message if message is None else message
        """The text to leave on an answering machine, with the call's variables filled in."""
        self.found = ""
        self.early = ""
        self._settings = settings
        self._state = _State.LISTENING
        self._classifier: CallProgressClassifier | None = None
        self._until: float | None = None
        self._latest = 0.0
        self._attention_until: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the agent's first words wait for the verdict."""
        return self._settings.answering_machine != "talk" or self._settings.hold_music != "talk"

    def begin(self, now: float) -> None:
        """Notes that the call was answered at loop time `now`, from which the time limits count."""
        if self._classifier is not None:
            self._classifier.answered()
        self._until = now + LISTEN_S
        self._latest = now + LISTEN_AT_MOST_S
        self._attention_until = now + ATTENTION_S

    def heard_early(self, frame: Pcm, now: float) -> None:
        """Takes a frame of early media: ring-back, or an announcement or tone that tells why the call
        fails."""
        kind = self._classify(frame, now)
        if kind is CallProgressKind.MACHINE:
            self.early = "announcement"
        elif kind is not None and kind in _DISPOSITIONS and kind is not CallProgressKind.RINGBACK:
            self.early = _DISPOSITIONS[kind]

    def push(self, frame: Pcm, now: float) -> AnswerDecision | None:
        """Takes a frame after the answer, 20 ms of int16; returns the verdict that the frame decided, else
        None. HANG_UP may follow TALK, on a busy tone while the agent talks."""
        if self._attention_until is None or (self.verdict is not None and now > self._attention_until):
            return None
        kind = self._classify(frame, now)
        if kind is None:
            return None
        self.found = _DISPOSITIONS.get(kind, self.found)
        if self.verdict is AnswerDecision.TALK and kind in _DEAD:
            return self._decide(AnswerDecision.HANG_UP)  # the far end has hung up
        return self._judge(kind, now) if self.verdict is None else None

    def timer_at(self) -> float | None:
        """Loop time at which `handle_timer` is due; None: never."""
        return self._until if self.verdict is None else None

    def handle_timer(self, now: float) -> AnswerDecision | None:
        """Gives the verdict that is due at loop time `now`, else None."""
        if self.verdict is not None or self._until is None or now < self._until:
            return None
        if self._state is _State.MACHINE:
            return self._after_greeting()
        spoken_on = self._classifier is not None and self._classifier.is_spoken_on
        if self._state is _State.LISTENING and spoken_on and now < self._latest:
            self._until = now + 1.0
            return None
        return self._decide(AnswerDecision.HANG_UP if self._state is _State.HOLDING else AnswerDecision.TALK)

    def _classify(self, frame: Pcm, now: float) -> CallProgressKind | None:
        rate_hz = len(frame) * 1000 // FRAME_MS
        if self._classifier is None or self._classifier.rate_hz != rate_hz:
            self._classifier = CallProgressClassifier(rate_hz)
        event = self._classifier.push(frame, now)
        return None if event is None else event.kind

    def _judge(self, kind: CallProgressKind, now: float) -> AnswerDecision | None:
        settings = self._settings
        if kind in _DEAD:
            return self._decide(AnswerDecision.HANG_UP)
        if kind in _HELD:
            return self._hold(settings.hold_music, _State.HOLDING, now + settings.hold_s)
        if self._state is _State.MACHINE:
            return self._after_greeting() if kind in _AWAITED else None
        if kind is CallProgressKind.MACHINE:
            if self._state is _State.HOLDING:
                return None  # an announcement between two pieces of hold music
            return self._hold(settings.answering_machine, _State.MACHINE, now + GREETING_S)
        return self._decide(AnswerDecision.TALK)

    def _hold(self, wish: str, state: _State, until: float) -> AnswerDecision | None:
        if wish in ("talk", "hang_up"):
            return self._decide(AnswerDecision.TALK if wish == "talk" else AnswerDecision.HANG_UP)
        if state is not self._state:
            self._state, self._until = state, until
        return None

    def _after_greeting(self) -> AnswerDecision:
        leaves = self._settings.answering_machine == "leave_message"
        return self._decide(AnswerDecision.LEAVE_MESSAGE if leaves else AnswerDecision.TALK)

    def _decide(self, verdict: AnswerDecision) -> AnswerDecision:
        self._state, self.verdict = _State.DECIDED, verdict
        return verdict


class EarlyMediaListener:
    """Passes a call's early media, before the answer, to its `AnswerDetector` (a `LegListener`)."""

    def __init__(self, stage: AnswerDetector) -> None:
        self._stage = stage

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Takes a frame of early media."""
        self._stage.heard_early(frame, now)

    def digit_received(self, digit: str, now: float) -> None:
        """Ignores digits: they mean nothing before the answer."""

    def leg_ended(self, reason: str, now: float) -> None:
        """Ignores the end of the leg, which reports the cause itself."""


class AnswerDetectionAgent:
    """The conversation of a call with answer detection: the agent's own, or, after
    `AnswerDecision.LEAVE_MESSAGE`, one that says the message and hangs up."""

    def __init__(self, agent: Conversation, stage: AnswerDetector) -> None:
        self._agent = agent
        self._stage = stage

    def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        """Answers with the message after `AnswerDecision.LEAVE_MESSAGE`, else with the agent's acts."""
        if self._stage.verdict is AnswerDecision.LEAVE_MESSAGE:
            return self._leave_message(event)
        return self._agent.respond(event)

    def report(self) -> AgentReport:
        """Gives the agent's own report."""
        return self._agent.report()

    async def _leave_message(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        if isinstance(event, CallOpened):
            yield Say(self._stage.message, interruptible=False)
        yield HangUp("message_left", final=True)
