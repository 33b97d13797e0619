"""The result of a conversation, and the interface of its observers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from pipeline.agent import AgentReport
from pipeline.latency import TurnLatency
from pipeline.leg import Leg
from pipeline.transcript import TranscriptEntry


class EndReason(StrEnum):
    """The reason for which a conversation ended, as records and webhooks name it."""

    AGENT = "agent"  # the agent hung up, its words heard
    FAR_END = "far_end"  # the leg ended: the caller hung up, or the media died
    TRANSFER = "transfer"  # the agent transfers the caller: the leg stays up for the transfer
    TAKEN_OVER = "taken_over"  # a supervisor talks in the agent's place: the leg stays up
    SILENCE = "silence"  # nobody spoke through every reprompt
    MAX_DURATION = "max_duration"
    ENGINE_ERROR = (
        "engine_error"  # an engine or the agent failed turn after turn, and the caller heard an apology
    )
    STOPPED = "stopped"  # by `Session.stop`: an API request or a shutdown


@dataclass(frozen=True, slots=True)
class EngineFault:
    """A fault of an engine, the agent or the recording, whether or not the call went on. `at_ms`: on the
    call's media clock."""

    role: str  # "stt", "tts", "agent", "recording"
    message: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence in the agent's turn, longer than `LIMIT_S` of `pipeline.session.dead_air`. `start_ms`: on the
    call's media clock; `ms`: the part of the silence that the server caused.

    `cause` of most of that part: "endpointing", "stt_late", "agent_late", "agent_silent" (the agent's answer
    was empty), "tts_late", "keying", "waiting" (the agent announced a wait), "interrupted" (noise stopped the
    agent), "noise" (noise was taken for the caller), "held" (the far end took no audio), "tts_silent" (the
    voice made silence), "closing".
    """

    start_ms: int
    ms: int
    cause: str


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One exchange: the caller's words, keys or silence, and the agent's answer as far as it was heard.
    `interrupted`: the caller cut the agent's words short. `latency` is None where the caller had not spoken;
    with `fillers` above 0 the latency ends at the filler, the first sound that the caller heard. `heard_ms`:
    when that sound was sent; None where nothing was."""

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
    heard_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The result of a conversation. Times are milliseconds on the call's media clock, which is 0 where the
    session began. `line`: the kind of line that answer detection found. `leg_reason`: the reason that
    the leg gave for its end."""

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
    heard: str = ""
    """The part of the agent's last answer that the caller heard."""
    cut_short: bool = False
    """Whether the agent's last answer was not heard to its end."""
    do_not_call: str | None = None
    """The reason for which the caller does not want to be called again; None: the caller did not ask for
    that."""


class SessionObserver:
    """The observer of a conversation, called at once on the event loop: methods return immediately and never
    raise. The methods of this base class do nothing."""

    follows_words: ClassVar[bool] = False
    """Whether `agent_speaking` is called."""

    def turn_completed(self, turn: TurnRecord) -> None:
        """Takes an exchange that is over: heard to its end, or interrupted."""

    def transcript_added(self, entry: TranscriptEntry) -> None:
        """Takes a completed entry of the transcript, the caller's or the agent's."""

    def person_said(self, leg: Leg, entry: TranscriptEntry) -> None:
        """Takes a completed entry of the person behind `leg`, while a person of the company has the call."""
        self.transcript_added(entry)

    def words_heard(self, text: str, now: float) -> None:
        """Takes the interim transcript of the caller's turn; `transcript_added` has the final one."""

    def agent_speaking(self, text: str, now: float) -> None:
        """Takes the words of the agent's utterance that the caller has begun to hear, each time when there
        are more."""

    def do_not_call(self, reason: str, now: float) -> None:
        """Takes the caller's request not to be called again: the number goes on the company's do-not-call
        list."""

    def state_changed(self, state: str, now: float) -> None:
        """Takes the new state of turn-taking: a name of `pipeline.turns.events.State` in lower case."""
