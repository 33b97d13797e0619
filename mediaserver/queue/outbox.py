"""Webhook events: written in the transaction that makes them true, delivered later, at least once.

`write_event` numbers an event (contiguous per call) and inserts one delivery for every subscription that
wants it. `take` and `settle` are for the sender: a delivery that was taken is due again when its lease ends,
so one whose process died is repeated. While a delivery of a call is not settled, later ones of the same call
to the same subscription wait, which keeps them in order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from mediaserver.db.database import Row, Tx, read_row, values_of
from mediaserver.errors import LocalError
from mediaserver.queue.deliveries import WRITE_ATTEMPT
from mediaserver.queue.records import Delivery

EVENTS = frozenset(
    {
        "call.queued",
        "call.dialing",
        "call.ringing",
        "call.answered",
        "call.completed",
        "call.failed",
        "call.cancelled",
        "call.unknown",
        "call.transferred",
        "turn.completed",
        "transcript.completed",
        "analysis.completed",
        "recording.completed",
        "batch.completed",
        "webcall.started",
        "webcall.ended",
    }
)
"""Every kind of event."""

_NEXT = """
UPDATE calls SET sequence = sequence + 1 WHERE id = :call_id
RETURNING sequence, company_id, agent_id, webhook_id, phone_number, metadata, {now} AS now_ms
"""

_PUT = """
INSERT INTO outbox (event_id, company_id, call_id, sequence, kind, body, created_at_ms)
VALUES (:event_id, :company_id, :call_id, :sequence, :kind, :body, {now}) RETURNING position
"""

_LAY_ASIDE = """
INSERT INTO deliveries (outbox_position, company_id, subscription_id, call_id, due_at_ms)
VALUES (:position, :company_id, :subscription_id, :call_id, {now})
"""

# Of one call only the oldest unsettled delivery: ids are in the order of events.
_DUE = """
SELECT d.id, d.subscription_id, d.call_id, d.attempts, d.attempts_before, o.event_id, o.body,
    o.created_at_ms, s.url
FROM deliveries d
JOIN outbox o ON o.position = d.outbox_position
JOIN subscriptions s ON s.id = d.subscription_id AND s.enabled = 1
WHERE d.subscription_id = :subscription_id AND d.state = 'PENDING' AND d.due_at_ms <= {now}
AND NOT EXISTS (
    SELECT 1 FROM deliveries e
    WHERE e.subscription_id = d.subscription_id AND e.call_id = d.call_id AND e.state = 'PENDING'
        AND e.id < d.id
)
ORDER BY d.due_at_ms, d.id LIMIT :room
"""

_TAKE = """
UPDATE deliveries SET attempts = attempts + 1, due_at_ms = {now} + :lease_ms
WHERE id = :id AND state = 'PENDING' AND attempts = :attempts
"""

_SETTLE = """
UPDATE deliveries SET state = :state, due_at_ms = {now} + :retry_ms, last_status = :status,
    last_error = :error, last_duration_ms = :duration_ms,
    settled_at_ms = CASE WHEN :state = 'PENDING' THEN 0 ELSE {now} END
WHERE id = :id AND state = 'PENDING' AND attempts = :attempt
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one attempt to deliver. Without `delivered` it is repeated after `retry_ms`, or given up
    where that is None. `response`: the beginning of the receiver's answer, for the log."""

    delivered: bool
    status: int = 0
    error: str = ""
    response: str = ""
    duration_ms: int = 0
    retry_ms: int | None = None

    @property
    def state(self) -> str:
        """The state of the delivery after this result: DELIVERED, PENDING or DEAD."""
        if self.delivered:
            return "DELIVERED"
        return "DEAD" if self.retry_ms is None else "PENDING"


def write_once(tx: Tx, call_id: str, kind: str, data: Mapping[str, Any], *, event_id: str = "") -> None:
    """Writes an event of a call (`turn.completed`, ...), unless the call was erased, or an event with this
    `event_id` is there: the database's answer to the first time may have been lost. Raises `LocalError` for
    an unknown call."""
    erased = tx.row("SELECT id FROM calls WHERE id = :call_id AND erased_at_ms > 0", call_id=call_id)
    if erased is not None:
        return
    if tx.row("SELECT position FROM outbox WHERE event_id = :event_id", event_id=event_id) is None:
        write_event(tx, call_id=call_id, kind=kind, data=data, event_id=event_id)


def write_event(
    tx: Tx, *, call_id: str, kind: str, data: Mapping[str, Any], at_ms: int = 0, event_id: str = ""
) -> int:
    """Writes an event of a call; returns its sequence number. `at_ms` 0: now. Raises `LocalError` for an
    unknown event or call."""
    if kind not in EVENTS:
        raise LocalError(f"there is no event {kind!r}")
    call = tx.row(_NEXT, call_id=call_id)
    if call is None:
        raise LocalError(f"there is no call {call_id!r}")
    row = tx.row(
        _PUT,
        event_id=event_id or new_event_id(),
        company_id=call["company_id"],
        call_id=call_id,
        sequence=call["sequence"],
        kind=kind,
        body=_body(call, kind, {**data, **_identity(call_id, call)}, at_ms or call["now_ms"]),
    )
    if row is not None:
        for subscription_id in _wanting(tx, call["company_id"], kind):
            tx.run(
                _LAY_ASIDE,
                position=row["position"],
                company_id=call["company_id"],
                subscription_id=subscription_id,
                call_id=call_id,
            )
    sequence: int = call["sequence"]
    return sequence


def new_event_id() -> str:
    """Makes the id by which receivers know an event (`webhook-id`)."""
    return f"evt_{uuid4().hex}"


def _identity(call_id: str, call: Row) -> dict[str, Any]:
    return {
        "callTaskId": call_id,
        "agentId": call["agent_id"],
        "companyId": call["company_id"],
        "phoneNumber": call["phone_number"],
        "metadata": json.loads(call["metadata"]),
    }


def _body(call: Row, kind: str, data: Mapping[str, Any], at_ms: int) -> str:
    document = {
        "type": kind,
        "timestamp": iso(at_ms),
        "webhookId": call["webhook_id"],
        "sequence": call["sequence"],
        "data": data,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _wanting(tx: Tx, company_id: str, kind: str) -> list[str]:
    rows = tx.rows(
        "SELECT id, events FROM subscriptions WHERE company_id = :company_id AND enabled = 1 ORDER BY id",
        company_id=company_id,
    )
    return [row["id"] for row in rows if any(matches(pattern, kind) for pattern in json.loads(row["events"]))]


def matches(pattern: str, kind: str) -> bool:
    """Whether a subscription's pattern selects the event `kind`: `"*"`, `"call.*"` or the event's own
    name."""
    return pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))


def iso(at_ms: int) -> str:
    """Returns milliseconds since 1970 as an ISO 8601 time in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def take(tx: Tx, room: Mapping[str, int], *, lease_ms: int) -> list[Delivery]:
    """Takes due deliveries, at most `room[subscription]` for each, and of one call only the oldest that is
    not settled. One not settled within `lease_ms` is due again."""
    taken = []
    for subscription_id, free in room.items():
        for row in tx.rows(_DUE, subscription_id=subscription_id, room=free) if free > 0 else ():
            if tx.run(_TAKE, id=row["id"], attempts=row["attempts"], lease_ms=lease_ms):
                taken.append(_delivery(row))
    return taken


def _delivery(row: Row) -> Delivery:
    attempt = row["attempts"] + 1
    return read_row(Delivery, row, attempt=attempt, tries=attempt - row["attempts_before"])


def settle(tx: Tx, delivery: Delivery, result: Result) -> bool:
    """Records the result of a delivery: delivered, to be repeated, or given up. False: the delivery was taken
    again since, and this result is ignored."""
    named = {"id": delivery.id, "attempt": delivery.attempt, "retry_ms": result.retry_ms or 0}
    values = values_of(result, state=result.state, **named)
    if not tx.run(_SETTLE, **values):
        return False
    tx.run(WRITE_ATTEMPT, **values)
    return True


def events_of(tx: Tx, call_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the events of calls as they were told, in their order, without those whose time is over."""
    sql = "SELECT body FROM outbox WHERE call_id = :call_id AND body <> '' ORDER BY sequence"
    return [json.loads(row["body"]) for call_id in call_ids for row in tx.rows(sql, call_id=call_id)]


def subscriptions(tx: Tx) -> Sequence[str]:
    """Returns the ids of all enabled webhook subscriptions."""
    return [row["id"] for row in tx.rows("SELECT id FROM subscriptions WHERE enabled = 1 ORDER BY id")]
