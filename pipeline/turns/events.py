"""The states, events (past tense) and actions (imperative) of turn-taking."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import TypeAlias

from pipeline.agent import AgentEvent
from pipeline.result import EndReason


class State(Enum):
    """The states of turn-taking: who has the floor, and how certain that is."""

    OPENING = auto()  # the agent's first words are being prepared, and the line is silent
    LISTENING = auto()  # nobody speaks; the caller has the floor
    HEARING = auto()  # the caller speaks
    ENDPOINTING = auto()  # the caller pauses, and the turn may be over
    PRESUMING = auto()  # the turn is probably over: an answer is prepared, and nothing of it is heard
    REPLYING = auto()  # the agent or its voice prepares the answer, and the line is silent
    WAITING = auto()  # the agent is silent on purpose (`Wait`)
    SPEAKING = auto()  # the agent's words are on their way to the caller
    OVERLAPPING = auto()  # both speak, the caller for less than `duck_ms`
    DUCKED = auto()  # both speak, the agent with lowered volume; the recogniser is asked for words
    OVERLAPPED = auto()  # the caller spoke over the agent and stopped; the agent speaks on
    JUDGING = auto()  # the same, with lowered volume until the caller's words are known
    HALTED = auto()  # the agent is silenced by a voice that may turn out to be noise
    DOUBTING = auto()  # the voice that silenced the agent stopped; its words decide whether the agent goes on
    KEYING = auto()  # the caller is keying digits
    LEAVING = auto()  # the farewell was heard; the caller's words still count
    CLOSING = auto()  # the last words, which the caller cannot interrupt
    ENDED = auto()

    __hash__ = object.__hash__  # Python's of an `Enum` is not compiled, and each event looks states up


# Events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Voice activity detection found the beginning of the caller's voice."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The caller's voice stopped. `silent_since`: loop time of the last voiced sample; `voiced_ms`: length
    of all voice in the utterance."""

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
    """The recogniser's interim transcript. `heard_until`: loop time, free of jitter, of the end of the audio
    that the recogniser has."""

    turn: int
    text: str
    heard_until: float = inf


@dataclass(frozen=True, slots=True)
class KeyPressed:
    """The caller pressed a DTMF digit while the agent's words may be interrupted."""

    key: str


@dataclass(frozen=True, slots=True)
class TextWritten:
    """The caller wrote a chat message while the agent's words may be interrupted."""

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
    """The playout has audio of the reply."""

    turn: int


@dataclass(frozen=True, slots=True)
class SpeechRanOut:
    """The leg has sent all audio of the reply so far, and the reply is not complete."""

    turn: int


@dataclass(frozen=True, slots=True)
class WaitBegan:
    """The agent's words so far have been heard, and the agent is silent on purpose for `seconds`."""

    turn: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ReplyHeard:
    """The reply is complete, and the caller has heard all of it (or it had no words)."""

    turn: int


@dataclass(frozen=True, slots=True)
class ReplyFailed:
    """The agent or every voice failed for good."""

    turn: int


@dataclass(frozen=True, slots=True)
class CallConcluded:
    """The agent ends or transfers the call once its words so far are heard. `final`: whatever the caller
    answers."""

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
    """The events that the machine's own timers, judgements and effects raise."""

    VOICE_CHECK_DUE = auto()
    TALKED_TOO_LONG = auto()
    DECODE_DUE = auto()
    WORDS_OVERDUE = auto()
    GUESS_DUE = auto()
    TURN_LIKELY = auto()
    TURN_CHANGED = auto()  # the final words differ from those that the agent is answering
    TURN_TAKEN = auto()
    NOISE_HEARD = auto()
    WORDS_HEARD = auto()  # in sound that was taken for noise
    OVERLAP_CHECK_DUE = auto()
    OVERLAP_FORGOTTEN = auto()
    ALARMED = auto()  # the voice over the agent is probably meant for the agent
    INTERRUPTED = auto()  # the voice over the agent is meant for the agent
    SPARED = auto()  # the voice over the agent was not meant for the agent
    KEYS_COMPLETED = auto()
    KEYS_RESUMED = auto()  # speech between the keys was no answer
    SILENCE_NOTED = auto()
    PATIENCE_ENDED = auto()
    PATIENCE_SPENT = auto()  # the same, after the caller interrupted `MAX_RETRACTED` farewells
    WAIT_OVER = auto()
    DEAD_AIR_NOTED = auto()
    DEAD_AIR_REPEATED = auto()
    TURN_FAILED = auto()  # and the caller is asked to say it again
    FAREWELL_BEGAN = auto()  # the agent's words under way are its last unless the caller interrupts
    FAREWELL_HEARD = auto()
    FAREWELL_OVERDUE = auto()
    CLOSING_ENDED = auto()
    DURATION_REACHED = auto()

    __hash__ = object.__hash__


# Actions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decode:
    """Ask the recogniser for a final transcript of the utterance; `FinalTranscript(turn)` follows."""

    turn: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop the caller's utterance, which was no answer."""


@dataclass(frozen=True, slots=True)
class StartReply:
    """Let the agent answer `event`. `silent_since`: loop time of the caller's last voiced sample;
    `endpoint_due`: loop time of the end-point by policy; both None where the caller had not spoken.
    `presumed`: the turn may go on; `ConfirmTurn(turn)` or `Interrupt` follows."""

    turn: int
    event: AgentEvent
    silent_since: float | None = None
    endpoint_due: float | None = None
    presumed: bool = False


@dataclass(frozen=True, slots=True)
class ConfirmTurn:
    """Let the caller hear the answer to a presumed turn, which is over, and let tools run. `endpoint_due`:
    loop time of the end-point by policy."""

    turn: int
    endpoint_due: float


@dataclass(frozen=True, slots=True)
class RequestPartial:
    """Ask the recogniser for the words of a voice that is being judged, unless a request is under way:
    `PartialTranscript(turn)` and `FinalTranscript(turn)` follow."""

    turn: int


@dataclass(frozen=True, slots=True)
class PollPartial:
    """Read the interim words of a voice that goes on: `PartialTranscript(turn)` follows, or
    `FinalTranscript(turn)` of a recogniser without interim transcripts."""

    turn: int


@dataclass(frozen=True, slots=True)
class RejectAsNoise:
    """Take the sound of the last `seconds`, which had no words, for noise. The caller's voice ended before
    the noise; `SpeechStopped` follows."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AcceptSpeech:
    """Take back `RejectAsNoise`, since the sound had words."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the agent at once: clear the playout and cancel the reply."""


@dataclass(frozen=True, slots=True)
class PlayFiller:
    """Play a filler while the agent is late."""

    turn: int


@dataclass(frozen=True, slots=True)
class AskAgain:
    """Stop a reply under way, which failed or is too late, and ask the caller to say it again;
    `ReplyHeard(turn)` follows."""

    turn: int


@dataclass(frozen=True, slots=True)
class SayLastWords:
    """Stop a reply under way and play the phrase for `reason`; `ReplyHeard(turn)` follows. `final`: the
    caller cannot interrupt the phrase."""

    turn: int
    reason: EndReason
    final: bool = True


@dataclass(frozen=True, slots=True)
class CheckVoice:
    """Check whether frames still arrive: a sender that suppresses silence sends none."""


@dataclass(frozen=True, slots=True)
class EndCall:
    """End the call for `reason`."""

    reason: EndReason


Action: TypeAlias = (
    Decode | Discard | RejectAsNoise | PollPartial | AcceptSpeech | RequestPartial | StartReply | ConfirmTurn
    | Interrupt | PlayFiller | AskAgain | SayLastWords | CheckVoice | EndCall
)  # fmt: skip


Kind: TypeAlias = type[Event] | Inner
"""A column of the table: the class of an event, or an inner event."""
