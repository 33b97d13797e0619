"""What a conversation leaves behind, and who is told while it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pipeline.agent import AgentReport
from pipeline.latency import TurnLatency
from pipeline.transcript import TranscriptEntry


class EndReason(StrEnum):
    """Why a conversation ended."""

    AGENT = "agent"  # the agent hung up, its words heard
    FAR_END = "far_end"  # the leg ended: the caller hung up, or the media died
    TRANSFER = "transfer"  # the agent hands the caller on: the leg is alive and now somebody else's
    SILENCE = "silence"  # nobody spoke through every reprompt
    MAX_DURATION = "max_duration"
    ENGINE_ERROR = "engine_error"  # an engine or the agent failed for good; the caller heard an apology
    STOPPED = "stopped"  # `Session.stop`: the API, a shutdown


@dataclass(frozen=True, slots=True)
class EngineFault:
    """Something an engine or the agent did wrong, survived or not. `at_ms` is on the call's media clock."""

    role: str  # "stt", "tts", "agent", "recording"
    message: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Silence:
    """More than 2 s in which the caller heard nothing, and it was not their turn. `ms`: how much of it was
    ours. `cause`: what most of that was spent on: "endpointing", "stt_late", "agent_late", "agent_silent" (it
    answered with nothing), "tts_late", "keying", "waiting" (the agent said so), "interrupted" (a noise had
    stopped it), "noise" (it was taken for the caller), "held" (the far end took no sound), "tts_silent" (what
    the voice made is silence), "closing"."""

    start_ms: int
    ms: int
    cause: str


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One exchange: what the caller said (or keyed, or did not say) and what they heard for it.

    `interrupted`: the caller cut the agent's words short. `latency` is None where the caller had not
    spoken; with `fillers` above 0 it ends at the filler, which is what the caller heard first.
    """

    number: int
    user_text: str
    keyed: str
    confidence: float
    agent_text: str
    interrupted: bool
    start_ms: int
    end_ms: int
    latency: TurnLatency | None
    fillers: int = 0
    silences: tuple[Silence, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionResult:
    """Everything known at the end. Times are on the call's media clock, 0 where the session began."""

    reason: EndReason
    disposition: str
    transfer_target: str
    leg_reason: str
    transcript: tuple[TranscriptEntry, ...]
    turns: tuple[TurnRecord, ...]
    interruptions: int
    report: AgentReport
    faults: tuple[EngineFault, ...]
    duration_ms: int
    caller_speech_ms: int
    agent_speech_ms: int
    recording: Path | None = field(default=None)
    line: str = ""
    silences: tuple[Silence, ...] = ()
    do_not_call: str | None = None
    """The caller does not want to be called again, and why; None: they did not say so."""


class SessionObserver:
    """Told at once, on the event loop: methods return immediately and never raise. Subclass it; these do
    nothing."""

    def turn_completed(self, turn: TurnRecord) -> None:
        """An exchange is over: heard to its end, or interrupted."""

    def transcript_added(self, entry: TranscriptEntry) -> None:
        """Somebody said something and is done with it."""

    def words_heard(self, text: str, now: float) -> None:
        """What the caller has said so far, as understood so far; `transcript_added` says what stands."""

    def agent_speaking(self, text: str, now: float) -> None:
        """The caller begins to hear these words of the agent; more may follow them."""

    def do_not_call(self, reason: str, now: float) -> None:
        """The caller does not want to be called again: their number goes on the company's list."""

    def state_changed(self, state: str, now: float) -> None:
        """Turn-taking moved to `state` (a name of `turns.State` in lower case)."""
