"""Webhook deliveries: listed, read, and replayed.

A replay sends the event as it was, with its own `webhook-id`, so that a receiver which did get it can tell.
Only settled deliveries (DELIVERED, DEAD) are replayed: a pending one is still being sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mediaserver.db.database import Page, Row, Tx, check_limit, page_of, position_of, read_row

REPLAY_LIMIT = 10_000
"""The most deliveries that one request replays, oldest first: they share the receiver with new events."""


class DeliveryState(StrEnum):
    """The state of a delivery."""

    PENDING = "PENDING"  # being sent, or to be repeated
    DELIVERED = "DELIVERED"
    DEAD = "DEAD"  # given up


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Selects deliveries; a field that is "", 0 or None selects all. Times are milliseconds since 1970 of the
    event, `since_ms` inclusive, `until_ms` exclusive."""

    delivery_id: int = 0
    call_id: str = ""
    subscription_id: str = ""
    state: DeliveryState | None = None
    since_ms: int = 0
    until_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow:
    """One event to one subscription. `last_*`: of the last attempt; `due_at_ms`: of the next one, while the
    delivery is PENDING."""

    id: int
    event_id: str
    kind: str
    sequence: int
    call_id: str
    subscription_id: str
    url: str
    state: DeliveryState
    attempts: int
    created_at_ms: int
    due_at_ms: int
    settled_at_ms: int
    last_status: int
    last_error: str
    last_duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryAttempt:
    """One attempt. `status` is 0 and `error` set where no response came; `response`: its beginning."""

    number: int
    ended_at_ms: int
    duration_ms: int
    status: int
    error: str
    response: str


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """A delivery with its attempts and the body that was sent."""

    row: DeliveryRow
    body: str
    attempts: tuple[DeliveryAttempt, ...]


_SELECT = """
SELECT d.id, o.event_id, o.kind, o.sequence, d.call_id, d.subscription_id, s.url, d.state, d.attempts,
    o.created_at_ms, d.due_at_ms, d.settled_at_ms, d.last_status, d.last_error, d.last_duration_ms, o.body
FROM deliveries d
JOIN outbox o ON o.position = d.outbox_position
JOIN subscriptions s ON s.id = d.subscription_id
WHERE d.company_id = :company_id
"""

_REPLAY = """
UPDATE deliveries SET state = 'PENDING', due_at_ms = {now}, settled_at_ms = 0, attempts_before = attempts
WHERE id IN (
    SELECT d.id FROM deliveries d
    JOIN outbox o ON o.position = d.outbox_position
    JOIN subscriptions s ON s.id = d.subscription_id AND s.enabled = 1
    WHERE d.company_id = :company_id AND d.state <> 'PENDING'
"""

WRITE_ATTEMPT = """
INSERT INTO delivery_attempts (delivery_id, number, ended_at_ms, duration_ms, status, error, response)
VALUES (:id, :attempt, {now}, :duration_ms, :status, :error, :response)
"""
"""Records an attempt at the delivery `id` that has just ended."""


def find(
    tx: Tx, company_id: str, *, wanted: DeliveryFilter, cursor: str = "", limit: int = 50
) -> Page[DeliveryRow]:
    """Returns the company's deliveries, newest first. Raises `InvalidRequest` for an invalid cursor."""
    check_limit(limit)
    conditions, values = _conditions(wanted)
    if cursor:
        conditions += " AND d.id < :before"
        values["before"] = position_of(cursor)
    rows = tx.rows(
        f"{_SELECT}{conditions} ORDER BY d.id DESC LIMIT :limit",
        company_id=company_id,
        limit=limit + 1,
        **values,
    )
    return page_of(rows, limit, _row, place="id")


def get(tx: Tx, company_id: str, delivery_id: int) -> DeliveryReport | None:
    """Returns a delivery of the company with its attempts, None for an unknown one."""
    row = tx.row(f"{_SELECT} AND d.id = :delivery_id", company_id=company_id, delivery_id=delivery_id)
    if row is None:
        return None
    attempts = tx.rows(
        "SELECT * FROM delivery_attempts WHERE delivery_id = :delivery_id ORDER BY number",
        delivery_id=delivery_id,
    )
    return DeliveryReport(_row(row), row["body"], tuple(read_row(DeliveryAttempt, each) for each in attempts))


def replay(tx: Tx, company_id: str, wanted: DeliveryFilter) -> int:
    """Makes settled deliveries pending again, with a new series of attempts each. Returns how many, at most
    `REPLAY_LIMIT`, oldest first."""
    conditions, values = _conditions(wanted)
    return tx.run(
        f"{_REPLAY}{conditions} ORDER BY d.id LIMIT :limit)",
        company_id=company_id,
        limit=REPLAY_LIMIT,
        **values,
    )


def _conditions(wanted: DeliveryFilter) -> tuple[str, dict[str, Any]]:
    """Returns SQL conditions for the fields that `wanted` sets, and their values. Unset fields add no
    condition, so that an index fits."""
    parts: Sequence[tuple[str, str, Any]] = (
        ("d.id = :delivery_id", "delivery_id", wanted.delivery_id),
        ("d.call_id = :call_id", "call_id", wanted.call_id),
        ("d.subscription_id = :subscription_id", "subscription_id", wanted.subscription_id),
        ("d.state = :state", "state", wanted.state.value if wanted.state is not None else ""),
        ("o.created_at_ms >= :since_ms", "since_ms", wanted.since_ms),
        ("o.created_at_ms < :until_ms", "until_ms", wanted.until_ms),
    )
    used = [(text, name, value) for text, name, value in parts if value]
    return "".join(f" AND {text}" for text, _, _ in used), {name: value for _, name, value in used}


def _row(row: Row) -> DeliveryRow:
    return read_row(DeliveryRow, row, state=DeliveryState(row["state"]))
