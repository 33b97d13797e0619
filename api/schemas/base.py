"""Defines the common bodies of requests and answers, for validation and the OpenAPI document.

Field names are those of the public API (camelCase). Handlers and tests build answers from the same models
that the document shows."""

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
    """A JSON object with exactly the named fields."""

    # Built when first used, which is not while the server starts.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class Word(Model):
    """One word of a transcript with its times in the recording, in milliseconds."""

    text: str
    startMs: int
    endMs: int


class TranscriptLine(Model):
    """One utterance of the transcript, with its times in the recording in milliseconds. The agent's text ends
    with the last word that the caller heard; `interrupted`: the agent was cut off there, and nobody heard the
    words `unheard` after it."""

    role: Literal["agent", "caller", "colleague"]
    text: str
    startMs: int
    endMs: int
    confidence: float
    interrupted: bool
    words: list[Word]
    unheard: str = ""


class Latency(Model):
    """Time in milliseconds from the caller's last voiced sample to the agent's first sample sent, and its
    parts."""

    voiceToVoiceMs: float
    endpointMs: float
    sttMs: float
    agentMs: float
    ttsMs: float
    serverMs: float


class Silence(Model):
    """More than two seconds of silence to the caller while it was the agent's turn, in milliseconds."""

    startMs: int
    ms: int
    cause: str


class Turn(Model):
    """One exchange: the caller's words (`userText`) and DTMF digits (`keyed`), and the agent's words that the
    caller heard."""

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
    """A call as lists show it. Times are ISO 8601 in UTC, null for "not yet"."""

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


class ListedCall(CallSummary):
    """A call in a list. `name`: the prompt variable of that name, or what the caller's telephone shows;
    `durationMs` from the answer to the end, `latencyMs` from the caller's last sound to the agent's first in
    the median turn, `slowestMs` in the slowest; null: there is none."""

    name: str | None
    disposition: str | None
    durationMs: int | None
    latencyMs: int | None
    slowestMs: int | None


class Attempt(Model):
    """One attempt to dial the number."""

    number: int
    trunkId: str
    dialedNumber: str
    sipCallId: str | None
    startedAt: str | None
    endedAt: str | None
    status: CallStatus
    hangupCause: str | None
    sipStatus: int | None


class Decision(Model):
    """One dialling rule's reason not to dial the number. It holds until `until`, null for ever; `times`
    counts how often the same reason held."""

    rule: str
    reason: str
    times: int
    at: str | None
    lastAt: str | None
    until: str | None


class SipDiversion(Model):
    """A number that an inbound call was diverted from, and why."""

    number: str
    reason: str


class SipReason(Model):
    """A reason that the far end gave for the end of a call: `protocol` is "Q.850" or "SIP"."""

    protocol: str
    cause: int
    text: str


class MediaEncryption(Model):
    """How a call's audio was protected on the wire: where the keys of SRTP came from ("none": plain RTP), and
    the suite."""

    keys: Literal["none", "sdes", "dtls"]
    suite: str | None


class PassedOver(Model):
    """A trunk that did not take a call, which went on over the next one. `status`: what its last server said,
    408 for nothing."""

    trunkId: str
    status: int


class SipReport(Model):
    """What SIP said of a call. `mediaEncryption`: null until the call has ended. `passedOver`: trunks that
    did not take it.

    `headers`: chosen ones of the INVITE that came, or those that ours carried.
    `displayName` to `userToUser`: of inbound calls whose INVITE has them; `asserted`: the network vouches for
    the number; `withheld`: the caller does not show it."""

    headers: dict[str, str] = Field(default_factory=dict)
    displayName: str = ""
    asserted: bool = False
    withheld: bool = False
    verstat: str = ""
    diversions: list[SipDiversion] = Field(default_factory=list)
    userToUser: str = ""
    reasons: list[SipReason] = Field(default_factory=list)
    mediaEncryption: MediaEncryption | None = None
    passedOver: list[PassedOver] = Field(default_factory=list)


class CallReport(CallSummary):
    """Answer of `GET /api/v1/calls/{callTaskId}`. `transcript` and `turns` grow while the call lasts."""

    promptVariables: dict[str, str]
    metadata: dict[str, Any]
    transcript: list[TranscriptLine]
    turns: list[Turn]
    attempts: list[Attempt]
    decisions: list[Decision]
    nextAttemptAt: str | None
    recordingUrl: str | None
    analysis: dict[str, Any] | None
    sip: SipReport


class CallPage(Model):
    """Answer of `GET /api/v1/calls`. `cursor` fetches the next page; null on the last page. A page may have
    fewer calls than were asked for, even none, and a cursor: the search goes on there."""

    calls: list[ListedCall]
    cursor: str | None


class HangupData(Model):
    """Outcome of ending a call. `cancelled`: the call was never dialled and will not be; `requested`: the
    call is being ended; `ended`: the call had ended before."""

    callTaskId: str
    outcome: Literal["cancelled", "requested", "ended"]


class HangupResponse(Model):
    """Answer of `POST /api/v1/calls/{callTaskId}/hangup`."""

    success: bool
    data: HangupData


class ErrorResponse(Model):
    """Body of every answer with an error status. `requestId` only where the server failed: by it, the
    operator finds the failure in the log."""

    error: str
    requestId: str | None = None


class Readiness(Model):
    """Body of `GET /readyz`, one text per line. `missing`: what the server waits for; `chosen`: the engine
    that each `engine = "auto"` became."""

    ready: bool
    missing: list[str]
    chosen: list[str] = []
