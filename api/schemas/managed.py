"""Defines the bodies of the management API: the configuration's tables in camelCase, with ids and state."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from api.schemas.base import Model
from api.schemas.camel_case import camelled
from mediaserver.queue.requests import BatchStatus
from mediaserver.settings import AgentTerms, CompanyTerms, TrunkTerms

PAGE_LIMIT = 100

Scopes = Annotated[list[Literal["calls", "web-calls", "speech", "admin"]], Field(min_length=1, max_length=4)]
Label = Annotated[str, StringConstraints(max_length=100)]
Cursor = Annotated[str, StringConstraints(max_length=128)]
Limit = Annotated[int, Field(ge=1, le=PAGE_LIMIT)]


class PageQuery(Model):
    """Query of a list: the cursor of the page before, and the page size."""

    cursor: Cursor = ""
    limit: Limit = 50


class Done(Model):
    """Answer where an operation succeeded and has no other result."""

    success: bool


class BanView(Model):
    """An address (IPv6: a /64) whose SIP requests get no answer for `leftS` seconds more: those over UDP, or
    those over its TCP and TLS connections."""

    address: str
    transport: Literal["udp", "stream"]
    leftS: float


class BanList(Model):
    """The bans of the node that was asked."""

    bans: list[BanView]


# Companies, trunks, agents ---------------------------------------------------------------------------------

CompanyBody = camelled(CompanyTerms, "Company")
TrunkBody = camelled(TrunkTerms, "Trunk")
AgentBody = camelled(AgentTerms, "Agent")


def _change(name: str, body: type[BaseModel]) -> type[BaseModel]:
    """Returns `body` with every field optional in the document; the merged settings are validated as
    `body`."""
    config = ConfigDict(json_schema_extra=lambda schema: schema.pop("required", None) and None)
    model: type[BaseModel] = type(name, (body,), {"model_config": config, "__doc__": body.__doc__})
    return model


CompanyChange = _change("CompanyChange", CompanyBody)
TrunkChange = _change("TrunkChange", TrunkBody)
AgentChange = _change("AgentChange", AgentBody)

_MANAGED_BY: Any = (Literal["file", "api"], Field(description="What stands in the file is changed there"))

CompanyId: Any = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

NewCompanyBody: type[BaseModel] = create_model(
    "NewCompany",
    __base__=CompanyBody,
    id=(CompanyId, ...),
)
CompanyView: type[BaseModel] = create_model(
    "CompanyView", __base__=CompanyBody, id=(str, ...), managedBy=_MANAGED_BY
)


class TrunkServer(Model):
    """One server of a carrier, as OPTIONS found it on this node (`optionsPingS`). `status` is that of its
    last answer, null for none."""

    address: str
    transport: str
    health: Literal["unknown", "up", "down"]
    status: int | None
    rttMs: float | None


StunHealth = Literal["up", "down", None]

TrunkView: type[BaseModel] = create_model(
    "TrunkView",
    __base__=TrunkBody,
    id=(str, ...),
    companyId=(str, ...),
    managedBy=_MANAGED_BY,
    registered=(bool, Field(description="A registration with the carrier stands, on this node")),
    servers=(list[TrunkServer], Field(description="The carrier's servers, where they are asked")),
    seenAs=(
        str | None,
        Field(description="The public address that its peers are told; null: the server's own"),
    ),
    stunHealth=(StunHealth, Field(description="Whether its STUN server answered last; null: it has none")),
)
AgentView: type[BaseModel] = create_model(
    "AgentView",
    __base__=AgentBody,
    id=(str, ...),
    companyId=(str, ...),
    managedBy=_MANAGED_BY,
    missing=(str | None, Field(description="Why it cannot take calls on this node; null: it can")),
)


def page_of(name: str, items: str, view: type[BaseModel]) -> type[BaseModel]:
    """Returns the model of a list's page: `items` and the cursor of the next page, null on the last."""
    page: type[BaseModel] = create_model(name, **{items: (list[view], ...), "cursor": (str | None, ...)})  # type: ignore[call-overload, valid-type]
    return page


CompanyPage = page_of("CompanyPage", "companies", CompanyView)
TrunkPage = page_of("TrunkPage", "trunks", TrunkView)
AgentPage = page_of("AgentPage", "agents", AgentView)


# Webhooks --------------------------------------------------------------------------------------------------


class NewWebhook(Model):
    """A new webhook. Without `secret` the server makes one and shows it once, in the answer."""

    url: str = Field(max_length=2000)
    secret: str | None = Field(default=None, max_length=200, description='"whsec_" and base64')
    events: list[Annotated[str, StringConstraints(max_length=100)]] = Field(
        default=["*"], min_length=1, max_length=50, description='"*", "call.*" or events by name'
    )


class WebhookChange(Model):
    """Changes to a webhook. Fields left out stay."""

    url: str | None = Field(default=None, max_length=2000)
    events: list[Annotated[str, StringConstraints(max_length=100)]] | None = Field(
        default=None, min_length=1, max_length=50
    )
    dropPreviousSecret: bool = Field(default=False, description="Ends the rotation of the secret")


class WebhookView(Model):
    """A webhook. `secret` only in the answer that made it."""

    id: str
    companyId: str
    url: str
    events: list[str]
    managedBy: Literal["file", "api"]
    rotating: bool = Field(description="Events are signed with the previous secret as well")
    secret: str | None = None


class WebhookPage(Model):
    """A page of a company's webhooks. `cursor` fetches the next page; null on the last page."""

    webhooks: list[WebhookView]
    cursor: str | None


# Keys ------------------------------------------------------------------------------------------------------


class NewKeyBody(Model):
    """A new API key: scopes, name and agents."""

    scopes: Scopes
    name: Label = ""
    agentIds: list[Annotated[str, StringConstraints(max_length=64)]] = Field(
        default=[], max_length=100, description="The agents that it is for; none: all of the company's"
    )


class RotateBody(Model):
    """Body of rotating a key: how long the old key stays valid."""

    overlapS: int = Field(default=86_400, ge=0, le=30 * 86_400, description="How long the old one goes on")


class KeyView(Model):
    """An API key. `key`, the secret, only in the answer that made it."""

    id: str
    companyId: str
    name: str
    hint: str
    scopes: list[str]
    agentIds: list[str]
    managedBy: Literal["file", "api"]
    createdAt: str | None
    lastUsedAt: str | None
    expiresAt: str | None
    key: str | None = None


class KeyPage(Model):
    """A page of a company's API keys. `cursor` fetches the next page; null on the last page."""

    keys: list[KeyView]
    cursor: str | None


# Do not call -----------------------------------------------------------------------------------------------


class DoNotCallBody(Model):
    """Numbers to add to the do-not-call list, and the reason."""

    phoneNumbers: list[Annotated[str, StringConstraints(max_length=64)]] = Field(
        min_length=1, max_length=1000
    )
    reason: Label = ""


class DoNotCallAdded(Model):
    """How many of the numbers were new on the do-not-call list."""

    success: bool
    added: int


class DoNotCallRow(Model):
    """A number of the do-not-call list."""

    phoneNumber: str
    reason: str
    createdAt: str | None


class DoNotCallList(Model):
    """A page of the do-not-call list. `cursor` fetches the next page; null on the last page."""

    numbers: list[DoNotCallRow]
    cursor: str | None


# Batches ---------------------------------------------------------------------------------------------------


class BatchesQuery(PageQuery):
    """Query of the batch list: page and status."""

    status: (
        Literal["PENDING", "SCHEDULED", "QUEUED", "ONGOING", "PAUSED", "COMPLETED", "CANCELLED"] | None
    ) = None


class BatchView(Model):
    """A batch. `total` counts the queued calls, `open` those that have not ended."""

    batchId: str
    companyId: str
    agentId: str
    webhookId: str
    status: BatchStatus
    total: int
    open: int
    createdAt: str | None
    endedAt: str | None


class BatchPage(Model):
    """A page of batches, newest first. `cursor` fetches the next page; null on the last page."""

    batches: list[BatchView]
    cursor: str | None


# Deliveries ------------------------------------------------------------------------------------------------


class DeliveriesQuery(PageQuery):
    """Query of the delivery list. `since` and `until` are ISO 8601 times of the event."""

    callTaskId: Cursor = ""
    webhook: Cursor = Field(default="", description="Id of a webhook")
    state: Literal["PENDING", "DELIVERED", "DEAD"] | None = None
    since: Cursor = ""
    until: Cursor = ""


class ReplayBody(Model):
    """Settled deliveries to send again; at least one field must be given."""

    deliveryId: int | None = Field(default=None, ge=1, le=2**53)
    callTaskId: Cursor | None = None
    webhook: Cursor | None = None
    since: Cursor | None = None
    until: Cursor | None = None


class Replayed(Model):
    """How many deliveries are sent again."""

    success: bool
    replayed: int


class DeliveryView(Model):
    """The delivery of one event to one webhook."""

    id: int
    eventId: str
    type: str
    sequence: int
    callTaskId: str
    webhook: str
    url: str
    state: Literal["PENDING", "DELIVERED", "DEAD"]
    attempts: int
    createdAt: str | None
    dueAt: str | None
    settledAt: str | None
    lastStatus: int | None
    lastError: str | None
    lastDurationMs: int


class DeliveryPage(Model):
    """A page of deliveries, newest first. `cursor` fetches the next page; null on the last page."""

    deliveries: list[DeliveryView]
    cursor: str | None


class DeliveryAttemptView(Model):
    """One attempt to deliver. `response` is the beginning of the receiver's answer."""

    number: int
    endedAt: str | None
    durationMs: int
    status: int | None
    error: str | None
    response: str


class DeliveryReportView(DeliveryView):
    """A delivery with the event's body and the log of its attempts."""

    body: dict[str, Any]
    log: list[DeliveryAttemptView]
