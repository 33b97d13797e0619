"""The bodies of management: the configuration's tables by camelCase, and what the server knows beside
them."""

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
    """Where a list goes on, and how much of it."""

    cursor: Cursor = ""
    limit: Limit = 50


class Done(Model):
    """Answer of what has nothing to tell."""

    success: bool


# Companies, trunks, agents ---------------------------------------------------------------------------------

CompanyBody = camelled(CompanyTerms, "Company")
TrunkBody = camelled(TrunkTerms, "Trunk")
AgentBody = camelled(AgentTerms, "Agent")


def _change(name: str, body: type[BaseModel]) -> type[BaseModel]:
    """A body of which every field may be left out: described so, and checked when it has been merged."""
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
TrunkView: type[BaseModel] = create_model(
    "TrunkView",
    __base__=TrunkBody,
    id=(str, ...),
    companyId=(str, ...),
    managedBy=_MANAGED_BY,
    registered=(bool, Field(description="A registration with the carrier stands, on this node")),
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
    """A page of a list: `items` and the cursor of the next page, null on the last."""
    page: type[BaseModel] = create_model(name, **{items: (list[view], ...), "cursor": (str | None, ...)})  # type: ignore[call-overload, valid-type]
    return page


CompanyPage = page_of("CompanyPage", "companies", CompanyView)
TrunkPage = page_of("TrunkPage", "trunks", TrunkView)
AgentPage = page_of("AgentPage", "agents", AgentView)


# Webhooks --------------------------------------------------------------------------------------------------


class NewWebhook(Model):
    """A webhook to be made. Without a `secret` one is made up and shown in the answer, once."""

    url: str = Field(max_length=2000)
    secret: str | None = Field(default=None, max_length=200, description='"whsec_" and base64')
    events: list[Annotated[str, StringConstraints(max_length=100)]] = Field(
        default=["*"], min_length=1, max_length=50, description='"*", "call.*" or events by name'
    )


class WebhookChange(Model):
    """What of a webhook is to be changed."""

    url: str | None = Field(default=None, max_length=2000)
    events: list[Annotated[str, StringConstraints(max_length=100)]] | None = Field(
        default=None, min_length=1, max_length=50
    )
    dropPreviousSecret: bool = Field(default=False, description="Ends the rotation of the secret")


class WebhookView(Model):
    """A webhook; `secret` only where it was made up just now."""

    id: str
    companyId: str
    url: str
    events: list[str]
    managedBy: Literal["file", "api"]
    rotating: bool = Field(description="Events are signed with the previous secret as well")
    secret: str | None = None


class WebhookPage(Model):
    """One page of a company's webhooks, and the cursor of the next."""

    webhooks: list[WebhookView]
    cursor: str | None


# Keys ------------------------------------------------------------------------------------------------------


class NewKeyBody(Model):
    """A key to be made."""

    scopes: Scopes
    name: Label = ""
    agentIds: list[Annotated[str, StringConstraints(max_length=64)]] = Field(
        default=[], max_length=100, description="The agents that it is for; none: all of the company's"
    )


class RotateBody(Model):
    """How a key is replaced."""

    overlapS: int = Field(default=86_400, ge=0, le=30 * 86_400, description="How long the old one goes on")


class KeyView(Model):
    """A key; `key` only where it was made just now: it cannot be shown again."""

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
    """One page of a company's API keys, and the cursor of the next."""

    keys: list[KeyView]
    cursor: str | None


# Do not call -----------------------------------------------------------------------------------------------


class DoNotCallBody(Model):
    """Numbers that are never to be called again."""

    phoneNumbers: list[Annotated[str, StringConstraints(max_length=64)]] = Field(
        min_length=1, max_length=1000
    )
    reason: Label = ""


class DoNotCallAdded(Model):
    """How many of them were not on the list."""

    success: bool
    added: int


class DoNotCallRow(Model):
    """A number on the list."""

    phoneNumber: str
    reason: str
    createdAt: str | None


class DoNotCallList(Model):
    """A page of the list."""

    numbers: list[DoNotCallRow]
    cursor: str | None


# Batches ---------------------------------------------------------------------------------------------------


class BatchesQuery(PageQuery):
    """Query of `GET` on batches: the page, and the status that batches must have."""

    status: (
        Literal["PENDING", "SCHEDULED", "QUEUED", "ONGOING", "PAUSED", "COMPLETED", "CANCELLED"] | None
    ) = None


class BatchView(Model):
    """A batch: `total` calls were queued, `open` are not over."""

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
    """A page of batches, newest first."""

    batches: list[BatchView]
    cursor: str | None


# Deliveries ------------------------------------------------------------------------------------------------


class DeliveriesQuery(PageQuery):
    """Which deliveries. Times are ISO 8601, of the event."""

    callTaskId: Cursor = ""
    webhook: Cursor = Field(default="", description="Id of a webhook")
    state: Literal["PENDING", "DELIVERED", "DEAD"] | None = None
    since: Cursor = ""
    until: Cursor = ""


class ReplayBody(Model):
    """Which settled deliveries are sent again: at least one of these must be given."""

    deliveryId: int | None = Field(default=None, ge=1, le=2**53)
    callTaskId: Cursor | None = None
    webhook: Cursor | None = None
    since: Cursor | None = None
    until: Cursor | None = None


class Replayed(Model):
    """How many are sent again."""

    success: bool
    replayed: int


class DeliveryView(Model):
    """One event on its way to one webhook."""

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
    """A page of deliveries, newest first."""

    deliveries: list[DeliveryView]
    cursor: str | None


class DeliveryAttemptView(Model):
    """One attempt; `response` is the beginning of the receiver's answer."""

    number: int
    endedAt: str | None
    durationMs: int
    status: int | None
    error: str | None
    response: str


class DeliveryReportView(DeliveryView):
    """A delivery with what was sent and its log."""

    body: dict[str, Any]
    log: list[DeliveryAttemptView]
