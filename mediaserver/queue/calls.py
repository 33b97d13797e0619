"""Calls in the database: inserted into the queue, read, counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from mediaserver.db.database import Row, Tx, read_row, values_of
from mediaserver.errors import LocalError
from mediaserver.queue import decisions, search
from mediaserver.queue.outbox import write_event
from mediaserver.queue.records import (
    AttemptRow,
    CallRecord,
    CallRow,
    CallStatus,
    Claim,
    NewCall,
    Stage,
    StoreCounts,
    call_states,
)

_INSERT = """
INSERT INTO calls (id, company_id, agent_id, trunk_id, batch_id, direction, phone_number, dial_number,
    webhook_id, variables, metadata, sip, is_test, status, stage, created_at_ms, not_before_ms)
VALUES (:id, :company_id, :agent_id, :trunk_id, :batch_id, 'outbound', :phone_number, :dial_number,
    :webhook_id, :variables, :metadata, :sip, :is_test, 'PENDING', 'QUEUED', {now},
    CASE WHEN :not_before_ms > 0 THEN :not_before_ms ELSE {now} END)
RETURNING *
"""

_DOCUMENTS = ("variables", "metadata", "transcript", "turns", "analysis", "sip")


def insert(tx: Tx, *, call: NewCall, batch_id: str = "", data: Mapping[str, Any] | None = None) -> CallRow:
    """Inserts a call into the queue and writes `call.queued`; `data` goes into the event."""
    row = tx.row(
        _INSERT,
        **values_of(
            call,
            id=str(uuid4()),
            batch_id=batch_id,
            sip={"headers": call.headers} if call.headers else {},
        ),
    )
    if row is None:
        raise LocalError("the call was not written")
    search.name_call(tx, row["id"], call.variables, {})
    write_event(tx, call_id=row["id"], kind="call.queued", data=data or {})
    return call_row(row)


def call_row(row: Row) -> CallRow:
    """Makes a `CallRow` of a row of `calls`."""
    return read_row(CallRow, row, **call_states(row))


def fill_variables(tx: Tx, claim: Claim) -> bool:
    """Stores the claim's variables in its call. False: the claim no longer holds the call."""
    changed = tx.run(
        "UPDATE calls SET variables = :variables"
        " WHERE id = :call_id AND epoch = :epoch AND stage <> 'FINISHED'",
        variables=json.dumps(dict(claim.variables), ensure_ascii=False),
        call_id=claim.call_id,
        epoch=claim.epoch,
    )
    if changed > 0:
        search.name_call(tx, claim.call_id, claim.variables, claim.sip)
    return changed > 0


def call(tx: Tx, company_id: str, call_id: str) -> CallRecord | None:
    """Returns a call of the company with everything known about it, None for an unknown one."""
    row = tx.row(
        "SELECT * FROM calls WHERE id = :call_id AND company_id = :company_id",
        call_id=call_id,
        company_id=company_id,
    )
    if row is None:
        return None
    attempts = tx.rows("SELECT * FROM attempts WHERE call_id = :call_id ORDER BY number", call_id=call_id)
    return read_row(
        CallRecord,
        row,
        **{name: json.loads(row[name]) for name in _DOCUMENTS},
        **call_states(row),
        attempts=tuple(read_row(AttemptRow, each, status=CallStatus(each["status"])) for each in attempts),
        decisions=tuple(decisions.of_call(tx, call_id)),
    )


def counts(tx: Tx) -> StoreCounts:
    """Counts calls and deliveries that are not done, for metrics. One query for each stage: only so are the
    partial indexes used."""
    stages: dict[str, int] = {}
    statuses: Counter[str] = Counter()
    for stage in (Stage.QUEUED, Stage.HELD, Stage.CLAIMED, Stage.ARMED):
        rows = tx.rows(f"SELECT status, COUNT(*) AS many FROM calls WHERE stage = '{stage}' GROUP BY status")
        statuses.update({row["status"]: row["many"] for row in rows})
        stages[stage.value] = sum(row["many"] for row in rows)
    deliveries = {
        state: rows[0]["many"]
        for state in ("PENDING", "DEAD")
        if (rows := tx.rows(f"SELECT COUNT(*) AS many FROM deliveries WHERE state = '{state}'"))
    }
    return StoreCounts(stages, statuses, deliveries)
