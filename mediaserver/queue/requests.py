"""What the queue is asked and what it answers: batches, cancellations, rules, repeated requests.

Times named `_ms` are milliseconds since 1970 UTC; 0 means "none".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mediaserver.queue.decisions import Rule
from mediaserver.queue.records import CallRow, NewCall

SPACING_MINUTES = 10
"""Between calls of one batch to the same number, where the company's policy is SPACED."""


class Action(StrEnum):
    """What became of one item of a batch; spec.md 2.5."""

    QUEUED_NOW = "queued_now"
    QUEUED_LATER = "queued_later"
    FAILED = "failed"
    DEDUPED = "deduped"


@dataclass(frozen=True, slots=True)
class ItemRefused:
    """An item that was refused before it came to the store (its number, its trunk's format)."""

    reason: str


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What became of an item. `call_id` is "" where nothing was queued, and in a dry run."""

    action: Action
    reason: str = ""
    scheduled_for_ms: int = 0
    call_id: str = ""
    rule: Rule | None = None


class BatchStatus(StrEnum):
    """Where a batch is; contract.md. COMPLETED and CANCELLED are final."""

    PENDING = "PENDING"  # accepted, nothing in the queue yet
    SCHEDULED = "SCHEDULED"  # all of it waits for a later time
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
    """A batch request. `items` in request order; the calls carry the batch's own agent and webhook."""

    company_id: str
    agent_id: str
    webhook_id: str
    items: Sequence[NewCall | ItemRefused]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReceipt:
    """What became of a batch request, in request order. `batch_id` is "" where nothing was queued."""

    batch_id: str
    webhook_id: str
    policy: str
    items: tuple[ItemResult, ...]

    def count(self, action: Action) -> int:
        """How many items came to `action`."""
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
class BatchPage:
    """A piece of a list, newest first; `cursor` asks for the next one, "" on the last."""

    batches: tuple[BatchRow, ...]
    cursor: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A call that will not be dialled any more: the one that was due first. `others` are the ids of further
    ones to the same number that were cancelled with it."""

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
class DoNotCallPage:
    """A piece of the list, by number; `cursor` asks for the next one, "" on the last."""

    numbers: tuple[DoNotCall, ...]
    cursor: str


@dataclass(frozen=True, slots=True)
class Repeatable:
    """A request that may be sent twice: the client's Idempotency-Key and the SHA-256 of the body. Kept for a
    day."""

    key: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the first request with this key came to: a call or a batch."""

    call: CallRow | None = None
    batch: BatchReceipt | None = None
