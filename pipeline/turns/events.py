"""The vocabulary of turn-taking: states, events (past tense), actions (imperative) and effects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import TypeAlias

from pipeline.agent import AgentEvent
from pipeline.result import EndReason


class State(Enum):
    """Whose turn it is, and how sure that is."""

    OPENING = auto()  # the agent's first words are being prepared; nobody has heard anything yet
    LISTENING = auto()  # nobody speaks, the floor is the caller's
    HEARING = auto()  # the caller speaks
    ENDPOINTING = auto()  # the caller paused: is that the end?
    PRESUMING = auto()  # probably: an answer is being prepared, which nobody hears yet
    REPLYING = auto()  # the agent thinks, or its voice does; the line is silent
    WAITING = auto()  # the agent is silent on purpose
    SPEAKING = auto()  # the agent's words are on their way to the caller
    OVERLAPPING = auto()  # both speak, the caller not long enough to be given the floor
    DUCKED = auto()  # long enough that the agent has lowered its voice: are these words for it?
    OVERLAPPED = auto()  # the caller said something over the agent and fell silent
    JUDGING = auto()  # the same, and the lowered voice waits for what it was
    HALTED = auto()  # the agent fell silent for a voice that may yet turn out to be a noise
    DOUBTING = auto()  # that voice ended: its words decide whether the agent goes on
    KEYING = auto()  # the caller is keying digits
    LEAVING = auto()  # the farewell was heard; a word said now still counts
    CLOSING = auto()  # the last words, which nothing stops
    ENDED = auto()


# What happened ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The voice activity detector hears the caller's voice begin."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The caller's voice fell silent. `silent_since`: loop time of the last voiced sample; `voiced_ms`:
    voice in the utterance."""

    silent_since: float
    voiced_ms: int


@dataclass(frozen=True, slots=True)
class SpeechContinued:
    """The caller has spoken for `duck_ms`, and the agent's words may be interrupted. Repeated for every
    frame of the voice, until `BargedIn` takes its place."""


@dataclass(frozen=True, slots=True)
class BargedIn:
    """The caller has spoken for `barge_in_ms`, and the agent's words may be interrupted. Repeated for every
    frame of the voice."""


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """The recogniser's words so far, which may still change. `heard_until`: loop time, free of jitter, at
    which the sound it was given ends."""

    turn: int
    text: str
    heard_until: float = inf


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """A DTMF digit, while the agent's words may be interrupted."""

    key: str


@dataclass(frozen=True, slots=True)
class TextWritten:
    """The caller wrote something (chat), while the agent's words may be interrupted."""

    text: str


@dataclass(frozen=True, slots=True)
class FinalTranscript:
    """The recogniser's answer to `Decode(turn)`. `failed`: the recogniser broke or was late. `p_eot`: how
    probable it is that the caller is done; None where only the words are judged. Not `final`: taken from a
    partial result. `doubtful`: see `Hypothesis`."""

    turn: int
    text: str
    confidence: float = 0.0
    failed: bool = False
    p_eot: float | None = None
    final: bool = True
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class SpeechReady:
    """Sound of the reply waits for the wire."""

    turn: int


@dataclass(frozen=True, slots=True)
class SpeechRanOut:
    """The caller has heard all sound of the reply so far, and the reply is not complete."""

    turn: int


@dataclass(frozen=True, slots=True)
class WaitBegan:
    """The agent's words so far have been heard, and the agent is silent on purpose for `seconds`."""

    turn: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ReplyHeard:
    """The reply is complete and heard (or had no words)."""

    turn: int


@dataclass(frozen=True, slots=True)
class ReplyFailed:
    """The agent or every voice failed for good."""

    turn: int


@dataclass(frozen=True, slots=True)
class CallConcluded:
    """The agent wants the call to end (or handed on) when its words so far have been heard. `final`:
    whatever the caller says to them."""

    turn: int
    reason: EndReason
    final: bool = False


@dataclass(frozen=True, slots=True)
class LegEnded:
    """The far end has ended the call."""


Event: TypeAlias = (
    SpeechStarted | SpeechStopped | SpeechContinued | BargedIn | PartialTranscript | KeyPressed | TextWritten
    | FinalTranscript | WaitBegan | SpeechReady | SpeechRanOut | ReplyHeard | ReplyFailed | CallConcluded
    | LegEnded
)  # fmt: skip


class Inner(Enum):
    """What the machine's own timers and judgements report."""

    VOICE_CHECK_DUE = auto()
    TALKED_TOO_LONG = auto()
    DECODE_DUE = auto()
    WORDS_OVERDUE = auto()
    GUESS_DUE = auto()
    TURN_LIKELY = auto()
    TURN_CHANGED = auto()  # the words were others than those that are being answered
    TURN_TAKEN = auto()
    NOISE_HEARD = auto()
    WORDS_HEARD = auto()  # in what was taken for noise
    OVERLAP_CHECK_DUE = auto()
    OVERLAP_FORGOTTEN = auto()
    ALARMED = auto()  # the voice over the agent is probably meant for the agent
    INTERRUPTED = auto()  # the voice over the agent is meant for the agent
    SPARED = auto()  # the voice over the agent was not meant for the agent
    KEYS_COMPLETED = auto()
    KEYS_RESUMED = auto()  # what was heard between them is no answer
    SILENCE_NOTED = auto()
    PATIENCE_ENDED = auto()
    PATIENCE_SPENT = auto()  # the caller has stopped enough farewells, too
    WAIT_OVER = auto()
    DEAD_AIR_NOTED = auto()
    DEAD_AIR_REPEATED = auto()
    FAREWELL_BEGAN = auto()  # the agent's words are its last, unless the caller has more to say
    FAREWELL_HEARD = auto()  # to its end
    FAREWELL_OVERDUE = auto()
    CLOSING_ENDED = auto()
    DURATION_REACHED = auto()


# What to do -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decode:
    """Ask the recogniser for all words so far; `FinalTranscript(turn)` follows."""

    turn: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget what was said over the agent, which was no answer."""


@dataclass(frozen=True, slots=True)
class StartReply:
    """Let the agent answer `event`. `silent_since`: the caller's last voiced sample; `endpoint_due`: when
    the policy wanted the turn to end (both loop time, None where the caller had not spoken). `presumed`: the
    turn may still go on; `ConfirmTurn(turn)` or `Interrupt` follows."""

    turn: int
    event: AgentEvent
    silent_since: float | None = None
    endpoint_due: float | None = None
    presumed: bool = False


@dataclass(frozen=True, slots=True)
class ConfirmTurn:
    """The presumed turn is over: the answer may be heard, and tools may run. `endpoint_due`: loop time at
    which the policy wanted the turn to end."""

    turn: int
    endpoint_due: float


@dataclass(frozen=True, slots=True)
class RequestPartial:
    """Ask the recogniser about a voice that is being judged, unless the recogniser is busy with it:
    `PartialTranscript(turn)` and `FinalTranscript(turn)` follow."""

    turn: int


@dataclass(frozen=True, slots=True)
class PollPartial:
    """Read the words so far of a voice that goes on: `PartialTranscript(turn)` follows, or
    `FinalTranscript(turn)` of a recogniser without partial results."""

    turn: int


@dataclass(frozen=True, slots=True)
class RejectAsNoise:
    """Take the sound of the last `seconds`, which had no words, for noise. The caller's voice ended before
    the noise; `SpeechStopped` follows."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AcceptSpeech:
    """Take for the caller's voice what was taken for noise: there were words in it."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the agent: its sound, its voice, its thinking; in this order and at once."""


@dataclass(frozen=True, slots=True)
class PlayFiller:
    """Play a filler while the agent is late."""

    turn: int


@dataclass(frozen=True, slots=True)
class SayLastWords:
    """Stop whatever is being prepared and say the last words for `reason`; `ReplyHeard(turn)` follows. Not
    `final`: the caller may stop them."""

    turn: int
    reason: EndReason
    final: bool = True


@dataclass(frozen=True, slots=True)
class CheckVoice:
    """Find out whether sound still comes in: a sender that suppresses silence stops sending instead of
    falling silent."""


@dataclass(frozen=True, slots=True)
class EndCall:
    """End the call for `reason`."""

    reason: EndReason


Action: TypeAlias = (
    Decode | Discard | RejectAsNoise | PollPartial | AcceptSpeech | RequestPartial | StartReply | ConfirmTurn
    | Interrupt | PlayFiller | SayLastWords | CheckVoice | EndCall
)  # fmt: skip


Kind: TypeAlias = type[Event] | Inner
"""What a column stands for: an outer event's class or an inner event."""


class Effect(Enum):
    """What a transition does; `pipeline.turns.effects` has a function for each."""

    IGNORE = auto()  # thought of: nothing to do
    HEAR = auto()
    HEAR_WORDS = auto()
    HEAR_ON = auto()
    INTERRUPT = auto()
    RETRACT = auto()
    CHECK_VOICE = auto()
    FOLLOW_WORDS = auto()
    ACCEPT_SPEECH = auto()
    PAUSE = auto()
    HOLD = auto()
    DUCK = auto()
    REQUEST_PARTIAL = auto()
    JUDGE_PARTIAL = auto()
    JUDGE_BARGE_IN = auto()
    JUDGE_LASTING_VOICE = auto()
    JUDGE_WORDS = auto()
    JUDGE_ALL_WORDS = auto()
    JUDGE_PAUSE = auto()
    AWAIT_OVERLAP_END = auto()
    HALT = auto()
    JUDGE_WORDS_HALTED = auto()
    JUDGE_ALL_WORDS_HALTED = auto()
    JUDGE_PARTIAL_HALTED = auto()
    RESUME = auto()
    RESUME_AFTER_NOISE = auto()
    INTERRUPT_WITH_WORDS = auto()
    INTERRUPT_UNHEARD = auto()
    SPECULATE = auto()
    CUT_OFF = auto()
    DECODE = auto()
    WEIGH_WORDS = auto()
    FORGET = auto()
    FORGET_NOISE = auto()
    DISMISS = auto()
    KEY = auto()
    KEY_ON = auto()
    FIRST_KEY = auto()
    INTERRUPT_BY_KEY = auto()
    TAKE_TURN = auto()
    LISTEN_ON = auto()
    GUESS = auto()
    PRESUME = auto()
    CHECK_GUESS = auto()
    REVISE = auto()
    CONFIRM_TURN = auto()
    WAIT = auto()
    TAKE_KEYS = auto()
    TAKE_TEXT = auto()
    INTERRUPT_BY_TEXT = auto()
    REPROMPT = auto()
    WATCH_ON = auto()
    FORGET_AND_WATCH = auto()
    FILL = auto()
    SPEAK = auto()
    LISTEN = auto()
    BEGIN_FAREWELL = auto()
    SAY_FAREWELL = auto()
    CONCLUDE = auto()
    APOLOGISE = auto()
    SAY_GOODBYE = auto()
    TIME_OUT = auto()
    LINGER = auto()
    AWAIT_WORDS = auto()
    END = auto()
    BREAK_OFF = auto()
