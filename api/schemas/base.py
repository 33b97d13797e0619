"""The bodies of requests and answers, as pydantic models: validation and the OpenAPI document come from them.

Field names are those of the public API (camelCase); the models that only describe answers are used for the
document and for tests, so that neither can drift from what is sent.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

CallStatus = Literal[
    "PENDING",
    "DIALING",
    "RINGING",
    "ANSWERED",
    "COMPLETED",
    "NO_ANSWER",
    "BUSY",
    "FAILED",
    "CANCELLED",
    "UNKNOWN",
]


class Model(BaseModel):
    """A JSON object with exactly the fields named."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Word(Model):
    """A word and its place in the recording."""

    text: str
    startMs: int
    endMs: int


class TranscriptLine(Model):
    """Who said what and when, in milliseconds of the recording. The agent's text ends with the last word that
    the caller heard; `interrupted` says that it was cut there."""

    role: Literal["agent", "caller"]
    text: str
    startMs: int
    endMs: int
    confidence: float
    interrupted: bool
    words: list[Word]


class Latency(Model):
    """From the caller's last voiced sample to the agent's first sample on the wire, and its parts."""

    voiceToVoiceMs: float
    endpointMs: float
    sttMs: float
    agentMs: float
    ttsMs: float
    serverMs: float


class Silence(Model):
    """More than two seconds in which the caller heard nothing though it was the agent's turn."""

    startMs: int
    ms: int
    cause: str


class Turn(Model):
    """One exchange: what the caller said or keyed, and what they heard for it."""

    turn: int
    userText: str
    keyed: str
    confidence: float
    agentText: str
    interrupted: bool
    startMs: int
    endMs: int
    latency: Latency | None
    silences: list[Silence] = Field(default_factory=list)


class CallSummary(Model):
    """A call as a list shows it. Times are ISO 8601 in UTC, null for "not yet"."""

    callTaskId: str
    webhookId: str
    agentId: str
    companyId: str
    batchId: str | None
    direction: Literal["inbound", "outbound", "web"]
    phoneNumber: str
    isTest: bool
    status: CallStatus
    createdAt: str | None
    dialedAt: str | None
    ringingAt: str | None
    answeredAt: str | None
    endedAt: str | None
    hangupCause: str | None
    sipStatus: int | None
    endedBy: Literal["local", "remote"] | None
    error: str | None


class Attempt(Model):
    """One time that the number was dialled."""

    number: int
    trunkId: str
    dialedNumber: str
    startedAt: str | None
    endedAt: str | None
    status: CallStatus
    hangupCause: str | None
    sipStatus: int | None


class Decision(Model):
    """Why the number was not dialled at a moment, and until when that holds; `until` null: for good. The same
    reason again counts up `times`."""

    rule: str
    reason: str
    times: int
    at: str | None
    lastAt: str | None
    until: str | None


class CallReport(CallSummary):
    """Answer of `GET /api/v1/calls/{callTaskId}`. Transcript and turns grow while the call goes on."""

    promptVariables: dict[str, str]
    metadata: dict[str, Any]
    transcript: list[TranscriptLine]
    turns: list[Turn]
    attempts: list[Attempt]
    decisions: list[Decision]
    nextAttemptAt: str | None
    recordingUrl: str | None
    analysis: dict[str, Any] | None


class CallPage(Model):
    """Answer of `GET /api/v1/calls`. `cursor` fetches the next page; null: this was the last."""

    calls: list[CallSummary]
    cursor: str | None


class HangupData(Model):
    """`cancelled`: it had not been dialled and never will be; `requested`: it is being ended; `ended`: it was
    over already."""

    callTaskId: str
    outcome: Literal["cancelled", "requested", "ended"]


class HangupResponse(Model):
    """Answer of `POST /api/v1/calls/{callTaskId}/hangup`."""

    success: bool
    data: HangupData


class ErrorResponse(Model):
    """Body of every answer with an error status."""

    error: str


class Readiness(Model):
    """Body of `GET /readyz`: `missing` says what the server waits for, `chosen` what each `engine = "auto"`
    became; one line each."""

    ready: bool
    missing: list[str]
    chosen: list[str] = []
