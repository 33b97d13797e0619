"""Requests to the queue and their results: batches, cancellations, rules, repeated requests.

Times named `_ms` are milliseconds since 1970 UTC; 0 means "none"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mediaserver.queue.decisions import Rule
from mediaserver.queue.records import CallRow, NewCall

SPACING_MINUTES = 10
"""Minutes between calls of one batch to the same number, where the company's policy is SPACED."""


class Action(StrEnum):
    """The outcome of one item of a batch; the values are those of the API."""

    QUEUED_NOW = "queued_now"
    QUEUED_LATER = "queued_later"
    FAILED = "failed"
    DEDUPED = "deduped"


@dataclass(frozen=True, slots=True)
class ItemRefused:
    """An item that was refused before it reached the queue (its number, its trunk's format)."""

    reason: str


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The result of an item. `call_id` is "" where nothing was queued, and in a dry run."""

    action: Action
    reason: str = ""
    scheduled_for_ms: int = 0
    call_id: str = ""
    rule: Rule | None = None


class BatchStatus(StrEnum):
    """The state of a batch. COMPLETED and CANCELLED are final."""

    PENDING = "PENDING"  # accepted, nothing in the queue yet
    SCHEDULED = "SCHEDULED"  # all of its calls wait for a later time
    QUEUED = "QUEUED"
    ONGOING = "ONGOING"  # at least one of its calls was dialled
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        """Whether a batch stays in this state for ever."""
        return self in (BatchStatus.COMPLETED, BatchStatus.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A request for a batch. `items` in the order of the request; every call has the batch's agent and
    webhook."""

    company_id: str
    agent_id: str
    webhook_id: str
    items: Sequence[NewCall | ItemRefused]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReceipt:
    """The result of a request for a batch, `items` in its order. `batch_id` is "" where nothing was
    queued."""

    batch_id: str
    webhook_id: str
    policy: str
    items: tuple[ItemResult, ...]

    def count(self, action: Action) -> int:
        """Returns how many items have the outcome `action`."""
        return sum(item.action is action for item in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A batch. `total` calls were queued, `open` of them are not over."""

    id: str
    company_id: str
    agent_id: str
    webhook_id: str
    status: BatchStatus
    total: int
    open: int
    created_at_ms: int
    ended_at_ms: int


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The cancelled call that was due first. `others`: the ids of further calls to the same number that were
    cancelled with it."""

    call: CallRow
    previous_status: str
    batch_id: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DoNotCall:
    """A number that a company never dials. `phone_number` is E.164 with "+"."""

    phone_number: str
    reason: str
    created_at_ms: int


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that may be repeated: the client's Idempotency-Key and the SHA-256 of the body. Kept for a
    day."""

    key: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """The result of the first request with this key: a call or a batch."""

    call: CallRow | None = None
    batch: BatchReceipt | None = None
