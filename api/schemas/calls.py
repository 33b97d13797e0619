"""The bodies of placing, cancelling and connecting calls."""

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


class BatchCall(Model):
    """One call of a batch. What is wrong with its number is its own failure, not the batch's."""

    phoneNumber: str = Field(max_length=1000, description="Digits with country prefix")
    promptVariables: Variables | None = None
    metadata: dict[str, Any] | None = Field(
        default=None, description="Attached to the call and its webhooks; never given to the agent's prompt"
    )


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
    dryRun: bool = Field(default=False, description="Answers what would happen and why, and queues nothing")


class OutboundData(Model):
    """What is known about a call as soon as it is queued."""

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
    """What would become of a call."""

    dryRun: bool
    phoneNumber: str
    agentId: str
    companyId: str
    action: Literal["queued_now", "queued_later", "failed", "deduped"]
    scheduledFor: str | None
    reason: str | None


class TrialResponse(Model):
    """Answer to one call with `dryRun`; `success`: it would be queued."""

    success: bool
    data: TrialData


class BatchPolicy(Model):
    """What the company does with a number that occurs twice."""

    mode: Literal["DEDUPE", "SPACED"]
    spacingMinutes: int


class BatchSummary(Model):
    """The items by what became of them."""

    received: int
    queuedNow: int
    queuedLater: int
    deduped: int
    failed: int


class BatchItem(Model):
    """What became of one item. `scheduledFor` only with `queued_later`, `reason` only with `failed` and
    `deduped`, `callTaskId` only where a call was queued."""

    phoneNumber: str
    action: Literal["queued_now", "queued_later", "failed", "deduped"]
    scheduledFor: str | None = None
    reason: str | None = None
    callTaskId: str | None = None


class BatchData(Model):
    """What became of a batch."""

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
    """Answer to a batch; `success`: at least one call was queued."""

    success: bool
    data: BatchData


class CancelRequest(Model):
    """Body of `POST /api/v1/calls/queue/cancel/{phoneNumber}`; may be left away."""

    agentId: AgentId | None = Field(default=None, description="Only this agent's calls")


class CancelData(Model):
    """`callQueueId` to `cancelledCount` only where something was cancelled. They describe the item that was
    due first; `cancelledCount` is how many waited for that number and were cancelled together."""

    cancelled: bool
    phoneNumber: str
    callQueueId: str | None = None
    previousStatus: str | None = None
    status: Literal["CANCELLED"] | None = None
    batchId: str | None = None
    cancelledCount: int | None = None


class CancelResponse(Model):
    """Answer of a cancellation; `message` only where nothing was cancelled."""

    success: bool
    message: str | None = None
    data: CancelData


class WebCallMetadata(Model, extra="allow"):
    """Data for the agent; every field beside the named ones is passed on as it is."""

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
    """What a client SDK of the media server joins with."""

    serverUrl: str
    roomName: str
    participantToken: str
    participantName: str


Identity = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.@+-]+$")


class CallInBody(Model):
    """Body of `POST /api/v1/rooms/{roomName}/participants`."""

    phoneNumber: str = Field(min_length=1, max_length=40, description="As for an outbound call")
    name: str | None = Field(default=None, max_length=128, description="What the others see")


class ParticipantView(Model):
    """Somebody in a room. `phoneNumber` and `callStatus` are a telephone's."""

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
    """Answer where somebody was put out."""

    success: bool


class TokenBody(Model):
    """Body of `POST /api/v1/rooms/{roomName}/tokens`. Without `canPublish` its bearer hears and is not heard;
    `hidden`: nor seen."""

    identity: str = Identity
    name: str | None = Field(default=None, max_length=128)
    canPublish: bool = True
    hidden: bool = False


class TokenView(Model):
    """What a client joins with."""

    serverUrl: str
    participantToken: str
