"""Defines the bodies for placing, cancelling and connecting calls, and for rooms."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from api.schemas.base import Model

Variable = str | int | float | bool | None
Variables = Annotated[dict[str, Variable], Field(max_length=100)]
PhoneNumber = Annotated[str, StringConstraints(max_length=64)]
AgentId = Annotated[str, StringConstraints(min_length=1, max_length=128)]

BATCH_LIMIT = 100
USER_REF_LIMIT = 128


_HEADERS = "Further header fields of the INVITE, of the names in the trunk's allow_headers"

SipHeaders = Annotated[dict[str, Annotated[str, StringConstraints(max_length=2048)]], Field(max_length=20)]
"""Header fields for the INVITE, by name."""


class BatchCall(Model):
    """One call of a batch. A malformed number fails this item only, not the batch."""

    phoneNumber: str = Field(max_length=1000, description="Digits with country prefix")
    promptVariables: Variables | None = None
    metadata: dict[str, Any] | None = Field(
        default=None, description="Attached to the call and its webhooks; never given to the agent's prompt"
    )
    headers: SipHeaders | None = Field(default=None, description=_HEADERS)


class OutboundRequest(Model):
    """Body of `POST /api/v1/calls/outbound`: one call (`phoneNumber`) or a batch (`calls`), never both."""

    agentId: AgentId = Field(description="Outbound agent of the caller's company")
    phoneNumber: PhoneNumber | None = Field(
        default=None, description="Digits with country prefix: places one call"
    )
    calls: list[BatchCall] | None = Field(
        default=None, min_length=1, max_length=BATCH_LIMIT, description="Places a batch"
    )
    promptVariables: Variables | None = Field(
        default=None, description="Injected into the agent's prompt; of one call only"
    )
    metadata: dict[str, Any] | None = Field(
        default=None,
        description="Attached to the call and its webhooks, never given to the prompt; of one call only",
    )
    headers: SipHeaders | None = Field(default=None, description=f"{_HEADERS}; of one call only")
    dryRun: bool = Field(default=False, description="Answers what would happen and why, and queues nothing")


class OutboundData(Model):
    """The call that was queued, by its ids."""

    callTaskId: str
    webhookId: str
    phoneNumber: str
    agentId: str
    companyId: str
    isTest: bool


class OutboundResponse(Model):
    """Answer of `POST /api/v1/calls/outbound` to one call."""

    success: bool
    data: OutboundData


class TrialData(Model):
    """What would become of a call with `dryRun`. `scheduledFor` is ISO 8601 in UTC, null for now; `reason`
    says why the call would not be queued."""

    dryRun: bool
    phoneNumber: str
    agentId: str
    companyId: str
    action: Literal["queued_now", "queued_later", "failed", "deduped"]
    scheduledFor: str | None
    reason: str | None


class TrialResponse(Model):
    """Answer to one call with `dryRun`. `success`: the call would be queued."""

    success: bool
    data: TrialData


class BatchPolicy(Model):
    """The company's rule for a number that occurs twice: DEDUPE drops the second, SPACED dials it
    `spacingMinutes` later."""

    mode: Literal["DEDUPE", "SPACED"]
    spacingMinutes: int


class BatchSummary(Model):
    """How many items of the batch had each outcome."""

    received: int
    queuedNow: int
    queuedLater: int
    deduped: int
    failed: int


class BatchItem(Model):
    """Outcome of one item. `scheduledFor` (ISO 8601, UTC) only with `queued_later`, `reason` only with
    `failed` and `deduped`, `callTaskId` only where a call was queued."""

    phoneNumber: str
    action: Literal["queued_now", "queued_later", "failed", "deduped"]
    scheduledFor: str | None = None
    reason: str | None = None
    callTaskId: str | None = None


class BatchData(Model):
    """Outcome of a batch: counts, and every item in request order."""

    policy: BatchPolicy
    summary: BatchSummary
    items: list[BatchItem]
    webhookId: str
    agentId: str
    batchId: str | None = Field(default=None, description="Absent where nothing was queued")
    total: int
    queued: int
    failed: int
    duplicatesRemoved: int
    dryRun: bool | None = None


class BatchResponse(Model):
    """Answer to a batch. `success`: at least one call was queued."""

    success: bool
    data: BatchData


class CancelRequest(Model):
    """Body of `POST /api/v1/calls/queue/cancel/{phoneNumber}`; it may be absent."""

    agentId: AgentId | None = Field(default=None, description="Only this agent's calls")


class CancelData(Model):
    """Outcome of a cancellation. `callQueueId`, `previousStatus`, `status` and `batchId` describe the queued
    call that was due first; `cancelledCount` counts all that were cancelled. All five are absent where
    nothing was cancelled."""

    cancelled: bool
    phoneNumber: str
    callQueueId: str | None = None
    previousStatus: str | None = None
    status: Literal["CANCELLED"] | None = None
    batchId: str | None = None
    cancelledCount: int | None = None


class CancelResponse(Model):
    """Answer of a cancellation. `message` only where nothing was cancelled."""

    success: bool
    message: str | None = None
    data: CancelData


class WebCallMetadata(Model, extra="allow"):
    """Data for the agent; fields beside the named ones are passed on unchanged."""

    promptVariables: Variables | None = None
    preCallVariables: dict[str, Any] | None = Field(
        default=None, description="For the tools that fetch data before the call"
    )


class WebCallRequestBody(Model):
    """Body of `POST /api/v1/web-calls/connect`."""

    agentId: str = Field(max_length=128, description="UUID of an agent of the caller's company")
    userRef: str | None = Field(default=None, max_length=USER_REF_LIMIT)
    metadata: WebCallMetadata | None = None


class WebCallResponse(Model):
    """Where and with which token a LiveKit SDK or WHIP client joins the room."""

    serverUrl: str
    roomName: str
    participantToken: str
    participantName: str


Identity = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.@+-]+$")


class CallInBody(Model):
    """Body of `POST /api/v1/rooms/{roomName}/participants`: the number to dial into the room."""

    phoneNumber: str = Field(min_length=1, max_length=40, description="As for an outbound call")
    name: str | None = Field(default=None, max_length=128, description="What the others see")


class ParticipantView(Model):
    """A participant of a room. `phoneNumber` and `callStatus` only where `kind` is `phone`."""

    identity: str
    name: str
    kind: Literal["person", "agent", "phone"]
    state: Literal["joining", "joined", "active", "gone"]
    canPublish: bool
    phoneNumber: str | None = None
    callStatus: str | None = None


class ParticipantList(Model):
    """Answer with every participant of a room, the agent included."""

    participants: list[ParticipantView]


class Removed(Model):
    """Answer where a participant was removed from a room."""

    success: bool


class TokenBody(Model):
    """Body of `POST /api/v1/rooms/{roomName}/tokens`. Without `canPublish` the participant only listens; with
    `hidden` the others do not see the participant."""

    identity: str = Identity
    name: str | None = Field(default=None, max_length=128)
    canPublish: bool = True
    hidden: bool = False


class LivekitKeyView(Model):
    """The API key and secret that LiveKit's server SDKs take."""

    apiKey: str
    apiSecret: str


class TokenView(Model):
    """Where and with which token a client joins the room."""

    serverUrl: str
    participantToken: str
