"""Cancels calls that are not dialled yet: one, all to a number, or a batch; and pauses a batch.

Each function locks the rows of calls whose INVITE has not left. Arming locks the same rows and checks the
stage again, so one of the two comes first and the other finds nothing to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mediaserver.db.database import Row, Tx, among
from mediaserver.queue import batches, calls
from mediaserver.queue.finish import end
from mediaserver.queue.records import CallStatus, Outcome, Stage, Stopping
from mediaserver.queue.requests import BatchRow, BatchStatus, Cancelled

_PENDING = """
SELECT * FROM calls WHERE company_id = :company_id AND phone_number = :phone_number
    AND stage IN ('QUEUED', 'CLAIMED', 'HELD') AND direction = 'outbound'
"""

_UNDIALLED = """
SELECT * FROM calls WHERE batch_id = :batch_id AND batch_id <> '' AND stage IN ('QUEUED', 'CLAIMED', 'HELD')
ORDER BY position {lock}
"""

_WISH = """
UPDATE calls SET hangup_requested = 1 WHERE id = :id AND company_id = :company_id RETURNING stage
"""

_MOVE = "UPDATE calls SET stage = :stage, owner = '', lease_until_ms = 0 WHERE position = :position"

_RESUMED = """
UPDATE batches SET status = CASE
    WHEN EXISTS (SELECT 1 FROM calls c WHERE c.batch_id = batches.id AND c.stage IN ('ARMED', 'FINISHED'))
        OR EXISTS (SELECT 1 FROM calls c JOIN attempts a ON a.call_id = c.id WHERE c.batch_id = batches.id)
        THEN 'ONGOING'
    WHEN due_at_ms > {now} THEN 'SCHEDULED' ELSE 'QUEUED' END
WHERE id = :id AND status = 'PAUSED'
"""

_GONE = """
SELECT id, from_file FROM companies c WHERE enabled = 0 AND EXISTS (
    SELECT 1 FROM calls q WHERE q.company_id = c.id AND q.stage IN ('QUEUED', 'HELD')
) LIMIT :limit
"""

_ORPHANED = """
SELECT id FROM calls WHERE company_id = :company_id AND stage IN ('QUEUED', 'HELD')
    AND (:patience_ms = 0 OR not_before_ms <= {now} - :patience_ms)
LIMIT :limit {skip_locked}
"""

COMPANY_REMOVED = "company_removed"
"""The cause of calls that were waiting when their company was removed."""

PATIENCE_MS = 3600 * 1000
"""How long the due calls of a company that is no longer in the file wait for it to come back, as it may with
the next start. A company that was removed over the API does not come back."""

_CANCELLED = Outcome(status=CallStatus.CANCELLED, cause="cancelled", ended_by="local")


def request_hangup(tx: Tx, company_id: str, call_id: str) -> Stopping | None:
    """Ends a call. One not armed yet becomes CANCELLED and no INVITE will leave; for a live one the request
    is noted (`pending_hangups` returns it) and the caller must hang up if it owns the call. None: no such
    call."""
    row = tx.row(_WISH, id=call_id, company_id=company_id)
    if row is None:
        return None
    stage = Stage(row["stage"])
    if stage is Stage.FINISHED:
        return Stopping.ENDED
    if stage is Stage.ARMED:
        return Stopping.REQUESTED
    # From here on a claim on the call is void: arming checks the stage.
    end(tx, call_id, _CANCELLED)
    return Stopping.CANCELLED


def cancel_pending(
    tx: Tx, company_id: str, phone_number: str, *, agents: frozenset[str] = frozenset()
) -> Cancelled | None:
    """Cancels every PENDING call of the company (of `agents`, unless empty) to `phone_number` (E.164): after
    the commit no INVITE leaves for any of them. None: there was none."""
    theirs, bound = among("agent_id", agents)
    pending = f"{_PENDING}{theirs} ORDER BY position {{lock}}"
    rows = tx.rows(pending, company_id=company_id, phone_number=phone_number, **bound)
    if not rows:
        return None
    for row in rows:
        end(tx, row["id"], _CANCELLED)
    first, *others = sorted(rows, key=lambda row: (row["not_before_ms"], row["position"]))
    return Cancelled(
        call=calls.call_row(first),
        previous_status=first["status"],
        batch_id=first["batch_id"],
        others=tuple(row["id"] for row in others),
    )


def pause_batch(tx: Tx, company_id: str, batch_id: str) -> BatchRow | None:
    """Pauses a batch: its calls that are not dialled yet are held; calls in progress go on. A batch that is
    over, or paused, stays as it is. None: no such batch."""
    batch = batches.get(tx, company_id=company_id, batch_id=batch_id)
    if batch is None or batch.status.final:
        return batch
    _move(tx, tx.rows(_UNDIALLED, batch_id=batch_id), Stage.HELD)
    tx.run(
        "UPDATE batches SET status = 'PAUSED' WHERE id = :id AND status NOT IN ('COMPLETED', 'CANCELLED')",
        id=batch_id,
    )
    return batches.get(tx, company_id=company_id, batch_id=batch_id)


def resume_batch(tx: Tx, company_id: str, batch_id: str) -> BatchRow | None:
    """Resumes a paused batch; a batch in another state stays as it is. None: no such batch."""
    batch = batches.get(tx, company_id=company_id, batch_id=batch_id)
    if batch is None or batch.status is not BatchStatus.PAUSED:
        return batch
    held = [row for row in tx.rows(_UNDIALLED, batch_id=batch_id) if row["stage"] == Stage.HELD]
    _move(tx, held, Stage.QUEUED)
    tx.run(_RESUMED, id=batch_id)
    return batches.get(tx, company_id=company_id, batch_id=batch_id)


def cancel_batch(tx: Tx, company_id: str, batch_id: str) -> BatchRow | None:
    """Cancels a batch: its calls that are not dialled yet end CANCELLED; calls in progress go on. A batch
    that is over stays as it is. None: no such batch."""
    batch = batches.get(tx, company_id=company_id, batch_id=batch_id)
    if batch is None or batch.status.final:
        return batch
    rows = tx.rows(_UNDIALLED, batch_id=batch_id)
    tx.run("UPDATE batches SET status = 'CANCELLED' WHERE id = :id AND status <> 'COMPLETED'", id=batch_id)
    for row in rows:
        end(tx, row["id"], _CANCELLED)
    return batches.get(tx, company_id=company_id, batch_id=batch_id)


def cancel_orphans(tx: Tx, *, limit: int) -> tuple[str, ...]:
    """Cancels up to `limit` waiting calls whose company no longer exists; returns their ids."""
    outcome = replace(_CANCELLED, cause=COMPANY_REMOVED, error="The company was removed")
    ended: list[str] = []
    for company in tx.rows(_GONE, limit=limit):
        patience_ms = PATIENCE_MS if company["from_file"] else 0
        rows = tx.rows(_ORPHANED, company_id=company["id"], patience_ms=patience_ms, limit=limit - len(ended))
        for row in rows:
            end(tx, row["id"], outcome)
            ended.append(row["id"])
    return tuple(ended)


def _move(tx: Tx, rows: Sequence[Row], stage: Stage) -> None:
    for row in rows:
        tx.run(_MOVE, position=row["position"], stage=stage)
