"""Batches: calls that were requested together.

```
SCHEDULED ─due─► QUEUED ─first call dialled─► ONGOING ─last call over─► COMPLETED
      └──────────────┴── pause ─► PAUSED ─ resume ─┘    any of them ── cancel ─► CANCELLED
```

The row counts the calls that are not over, and the transaction that ends the last one ends the batch. A
batch's row is locked after those of its calls."""

from __future__ import annotations

from typing import Any

from mediaserver.db.database import Page, Row, Tx, among, check_limit, page_of, position_of, read_row
from mediaserver.queue.outbox import write_event
from mediaserver.queue.requests import BatchRow, BatchStatus

# SCHEDULED becomes QUEUED by time alone, without a write.
_SHOWN = "CASE WHEN status = 'SCHEDULED' AND due_at_ms <= {now} THEN 'QUEUED' ELSE status END"

_SELECT = f"""
SELECT position, id, company_id, agent_id, webhook_id, {_SHOWN} AS shown, total, open, created_at_ms,
    ended_at_ms
FROM batches WHERE company_id = :company_id
"""

_INSERT = """
INSERT INTO batches (id, company_id, agent_id, webhook_id, status, total, open, due_at_ms, created_at_ms)
VALUES (:id, :company_id, :agent_id, :webhook_id, :status, :total, :total, :due_at_ms, {now})
"""

_BEGUN = (
    "UPDATE batches SET status = 'ONGOING' WHERE id = :id AND status IN ('PENDING', 'SCHEDULED', 'QUEUED')"
)

_ONE_OVER = """
UPDATE batches SET open = open - 1,
    status = CASE WHEN open = 1 AND status <> 'CANCELLED' THEN 'COMPLETED' ELSE status END,
    ended_at_ms = CASE WHEN open = 1 THEN {now} ELSE ended_at_ms END
WHERE id = :id RETURNING open, status, total
"""


def insert(tx: Tx, **columns: Any) -> None:
    """Inserts a batch into the table, with the id and the counts in `columns`."""
    tx.run(_INSERT, **columns)


def get(tx: Tx, company_id: str, batch_id: str) -> BatchRow | None:
    """Returns a batch of the company, None for an unknown one."""
    row = tx.row(f"{_SELECT} AND id = :batch_id", company_id=company_id, batch_id=batch_id)
    return _batch(row) if row is not None else None


def find(
    tx: Tx,
    company_id: str,
    *,
    status: BatchStatus | None = None,
    cursor: str = "",
    limit: int = 50,
    agents: frozenset[str] = frozenset(),
) -> Page[BatchRow]:
    """Returns the company's batches, newest first, of `agents` or (empty) of all. Raises `InvalidRequest`
    for an invalid cursor."""
    check_limit(limit)
    before = position_of(cursor)
    theirs, bound = among("agent_id", agents)
    rows = tx.rows(
        f"{_SELECT} AND (:before = 0 OR position < :before) AND (:status = '' OR {_SHOWN} = :status)"
        f"{theirs} ORDER BY position DESC LIMIT :limit",
        **bound,
        company_id=company_id,
        before=before,
        status=status or "",
        limit=limit + 1,
    )
    return page_of(rows, limit, _batch)


def _batch(row: Row) -> BatchRow:
    return read_row(BatchRow, row, status=BatchStatus(row["shown"]))


def held_status(tx: Tx, batch_id: str) -> BatchStatus | None:
    """Returns the status of the batch of a call that the transaction holds, and locks the batch until the
    transaction ends; None for a call without one."""
    if not batch_id:
        return None
    row = tx.row("SELECT status FROM batches WHERE id = :id {lock}", id=batch_id)
    return BatchStatus(row["status"]) if row is not None else None


def begun(tx: Tx, batch_id: str) -> None:
    """Marks the batch ONGOING: one of its calls is being dialled."""
    if batch_id:
        tx.run(_BEGUN, id=batch_id)


def call_over(tx: Tx, *, batch_id: str, call_id: str) -> None:
    """Counts a call of the batch as over. The last one completes the batch and writes `batch.completed` among
    that call's events."""
    if not batch_id:
        return
    row = tx.row(_ONE_OVER, id=batch_id)
    if row is None or row["open"] > 0:
        return
    statuses = tx.rows(
        "SELECT status, COUNT(*) AS many FROM calls WHERE batch_id = :id GROUP BY status", id=batch_id
    )
    data = {
        "batchId": batch_id,
        "status": row["status"],
        "total": row["total"],
        "calls": {counted["status"]: counted["many"] for counted in statuses},
    }
    write_event(tx, call_id=call_id, kind="batch.completed", data=data)
