"""The words of turn-taking: its states, what can have happened (past tense), what is to be done about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import TypeAlias

from pipeline.agent import AgentEvent
from pipeline.result import EndReason


class State(Enum):
    """Whose turn it is, and how sure we are."""

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
    """The caller's voice began."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """It fell silent. `silent_since`: loop time of the last voiced sample; `voiced_ms`: voice in the
    utterance."""

    silent_since: float
    voiced_ms: int


@dataclass(frozen=True, slots=True)
class VoiceSustained:
    """The caller has spoken for `duck_ms`, and the agent's words may be interrupted. Said of every frame from
    there on, until it is `BargedIn`."""


@dataclass(frozen=True, slots=True)
class BargedIn:
    """The same for `barge_in_ms`."""


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """What the recogniser takes the caller's voice for so far, and may yet take back. `heard_until`: loop
    time, free of jitter, at which the sound it was given ends."""

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
    """The recogniser's answer to `Decode(turn)`. `failed`: it had none, through no fault of the caller's.
    `p_eot`: how probable it is that the caller is done; None where nobody judges more than the words.
    Not `final`: taken from a partial result."""

    turn: int
    text: str
    confidence: float = 0.0
    failed: bool = False
    p_eot: float | None = None
    final: bool = True


@dataclass(frozen=True, slots=True)
class SpeechReady:
    """Sound of the reply waits for the wire."""

    turn: int


@dataclass(frozen=True, slots=True)
class SpeechRanOut:
    """The caller has heard all there was, and the reply is not complete."""

    turn: int


@dataclass(frozen=True, slots=True)
class WaitBegan:
    """The agent's words so far have been heard, and it wants to be silent for `seconds`."""

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
    """The agent wants the call to end (or handed on) when its words so far have been heard. `final`: whatever
    the caller says to them."""

    turn: int
    reason: EndReason
    final: bool = False


@dataclass(frozen=True, slots=True)
class LegEnded:
    """The far end is gone."""


Event: TypeAlias = (
    SpeechStarted | SpeechStopped | VoiceSustained | BargedIn | PartialTranscript | KeyPressed | TextWritten
    | FinalTranscript | WaitBegan | SpeechReady | SpeechRanOut | ReplyHeard | ReplyFailed | CallConcluded
    | LegEnded
)  # fmt: skip


class Inner(Enum):
    """What the machine's own timers and judgements say."""

    VOICE_CHECK_DUE = auto()
    TALKED_TOO_LONG = auto()
    DECODE_DUE = auto()
    WORDS_OVERDUE = auto()
    GUESS_DUE = auto()
    TURN_LIKELY = auto()
    TURN_CHANGED = auto()  # the words were others than those that are being answered
    TURN_TAKEN = auto()
    NOISE_HEARD = auto()
    OVERLAP_CHECK_DUE = auto()
    OVERLAP_FORGOTTEN = auto()
    ALARMED = auto()  # the voice over the agent is probably meant for it
    INTERRUPTED = auto()  # it is
    SPARED = auto()  # it was not
    KEYS_COMPLETED = auto()
    KEYS_RESUMED = auto()  # what was heard between them is no answer
    SILENCE_NOTED = auto()
    PATIENCE_ENDED = auto()
    PATIENCE_SPENT = auto()  # the same, and farewells have been taken back often enough
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
    """Ask the recogniser about what was said so far; it answers with `Understood(turn)`."""

    turn: int


@dataclass(frozen=True, slots=True)
class Discard:
    """What was said over the agent was no answer: forget it."""


@dataclass(frozen=True, slots=True)
class StartReply:
    """Let the agent answer `event`. `silent_since`: the caller's last voiced sample; `endpoint_due`: when the
    policy wanted the turn to end (both loop time, None where the caller had not spoken). `presumed`: the
    turn may yet go on; `Settle(turn)` or `Interrupt` follows."""

    turn: int
    event: AgentEvent
    silent_since: float | None = None
    endpoint_due: float | None = None
    presumed: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """The presumed turn is over: its answer may be heard, and may do things. `endpoint_due`: when the policy
    wanted that."""

    turn: int
    endpoint_due: float


@dataclass(frozen=True, slots=True)
class ListenIn:
    """Ask the recogniser about the voice over the agent, unless it is being asked: `Overheard(turn)` and
    `Understood(turn)` say what it is so far."""

    turn: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Look at the words of a voice that goes on: `Overheard(turn)` says what they are so far, or
    `Understood(turn)` of a recogniser that has no partial results."""

    turn: int


@dataclass(frozen=True, slots=True)
class Disregard:
    """What was heard for the last `seconds` had no words in it: noise, which is not the caller. The caller's
    voice ended before it; `SpeechStopped` follows."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Heed:
    """There were words in what was taken for noise."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the agent: its sound, its voice, its thinking; in this order and at once."""


@dataclass(frozen=True, slots=True)
class PlayFiller:
    """Let the caller hear something while the agent takes its time."""

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
    """Is sound still coming in? A sender that suppresses silence stops sending instead of falling silent."""


@dataclass(frozen=True, slots=True)
class EndCall:
    """It is over."""

    reason: EndReason


Action: TypeAlias = (
    Decode | Discard | Disregard | Follow | Heed | ListenIn | StartReply | Settle | Interrupt | PlayFiller
    | SayLastWords | CheckVoice | EndCall
)  # fmt: skip


Kind: TypeAlias = type[Event] | Inner
"""What a column stands for: an outer event's class or an inner event."""


class Effect(Enum):
    """What is done on the way; `Turns` has a method for each."""

    IGNORE = "ignore"  # thought of: nothing to do
    HEAR = "hear"
    HEAR_ON = "hear_on"
    INTERRUPT = "interrupt"
    TAKE_BACK = "take_back"
    CHECK_VOICE = "check_voice"
    FOLLOW = "follow"
    HEED = "heed"
    PAUSE = "pause"
    HOLD = "hold"
    DUCK = "duck"
    LISTEN_IN = "listen_in"
    SUSPECT = "suspect"
    BARGE = "barge"
    INSIST = "insist"
    CONSIDER = "consider"
    CONSIDER_WHOLE = "consider_whole"
    JUDGE_PAUSE = "judge_pause"
    SPARE = "spare"
    HALT = "halt"
    BELIEVE = "believe"
    BELIEVE_WHOLE = "believe_whole"
    RELENT = "relent"
    RESUME = "resume"
    INTERRUPT_WITH_WORDS = "interrupt_with_words"
    INTERRUPT_UNHEARD = "interrupt_unheard"
    SPECULATE = "speculate"
    CUT_OFF = "cut_off"
    DECODE = "decode"
    WEIGH = "weigh"
    FORGET = "forget"
    DISMISS = "dismiss"
    KEY = "key"
    KEY_ON = "key_on"
    FIRST_KEY = "first_key"
    INTERRUPT_BY_KEY = "interrupt_by_key"
    TAKE_TURN = "take_turn"
    LISTEN_ON = "listen_on"
    GUESS = "guess"
    PRESUME = "presume"
    CONFIRM = "confirm"
    REVISE = "revise"
    SETTLE = "settle"
    WAIT = "wait"
    TAKE_KEYS = "take_keys"
    TAKE_TEXT = "take_text"
    INTERRUPT_BY_TEXT = "interrupt_by_text"
    REPROMPT = "reprompt"
    WATCH_ON = "watch_on"
    FORGET_AND_WATCH = "forget_and_watch"
    FILL = "fill"
    SPEAK = "speak"
    LISTEN = "listen"
    PART = "part"
    TAKE_LEAVE = "take_leave"
    CONCLUDE = "conclude"
    APOLOGISE = "apologise"
    SAY_GOODBYE = "say_goodbye"
    TIME_OUT = "time_out"
    LINGER = "linger"
    AWAIT_WORDS = "await_words"
    END = "end"
    BREAK_OFF = "break_off"
