"""The dispatch ledger: who dials what, so that nobody is ever dialled twice.

A call goes `QUEUED → CLAIMED → ARMED → FINISHED`. A claim has an owner, a lease and an epoch that grows with
every claim; each later step names all three and changes nothing when they are no longer the row's, so a node
that was stopped past its lease and woke up again cannot dial, and cannot write over what another one knows.
Arming commits the attempt row, and with it the wish to dial, *before* the INVITE leaves, and looks at
cancellation and the company's limit in the same transaction. What is left after a crash is then plain: an
expired claim without an attempt was never dialled and goes back to the queue; with one it may have been,
becomes UNKNOWN, and no machine dials it again. An ordinary queue that requeues what it lost redialled 4.5 to
6.5 % under the same kills.

All functions run inside one transaction of the store's database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Any
from uuid import uuid4

from mediaserver.db import Row, Tx
from mediaserver.errors import LocalError
from mediaserver.outbox import iso, write_event
from mediaserver.records import (
    TRANSITIONS,
    CallStatus,
    Claim,
    NewInboundCall,
    Outcome,
    Reaped,
    Renewal,
    Stage,
    Stopping,
)

FULL_PAUSE_MS = 1000
"""How long a call that found its company at its limit waits in the queue before it is looked at again."""

NODE_LOST = "node_lost"
"""The cause of an UNKNOWN call: its node stopped renewing after the attempt was armed."""

_PROGRESS_COLUMN: Mapping[CallStatus, str] = {
    CallStatus.DIALING: "dialing_at_ms",
    CallStatus.RINGING: "ringing_at_ms",
    CallStatus.ANSWERED: "answered_at_ms",
}

_END_EVENT: Mapping[CallStatus, str] = {
    CallStatus.COMPLETED: "call.completed",
    CallStatus.NO_ANSWER: "call.failed",
    CallStatus.BUSY: "call.failed",
    CallStatus.FAILED: "call.failed",
    CallStatus.CANCELLED: "call.cancelled",
    CallStatus.UNKNOWN: "call.unknown",
}

_WITH_ROOM = """
SELECT id, room FROM (
    SELECT c.id AS id, c.max_concurrent_calls - (
        SELECT COUNT(*) FROM calls h WHERE h.company_id = c.id AND h.stage IN ('CLAIMED', 'ARMED')
    ) AS room
    FROM companies c
    WHERE c.enabled = 1 AND EXISTS (
        SELECT 1 FROM calls q WHERE q.company_id = c.id AND q.stage = 'QUEUED' AND q.not_before_ms <= {now}
    )
) AS waiting WHERE room > 0 ORDER BY room DESC, id
"""

_DUE = """
SELECT position FROM calls WHERE company_id = :company_id AND stage = 'QUEUED' AND not_before_ms <= {now}
ORDER BY not_before_ms, position LIMIT :room {skip_locked}
"""

_CLAIM = """
UPDATE calls SET stage = 'CLAIMED', owner = :node, epoch = epoch + 1, lease_until_ms = {now} + :ttl_ms
WHERE position = :position AND stage = 'QUEUED' RETURNING *
"""

_ARM = """
UPDATE calls SET stage = 'ARMED', status = 'DIALING', dialing_at_ms = {now}, lease_until_ms = {now} + :ttl_ms
WHERE id = :id AND epoch = :epoch AND owner = :node AND stage = 'CLAIMED' AND hangup_requested = 0
    AND lease_until_ms > {now} AND (
        SELECT COUNT(*) FROM calls h WHERE h.company_id = calls.company_id AND h.stage = 'ARMED'
    ) < (SELECT max_concurrent_calls FROM companies c WHERE c.id = calls.company_id)
RETURNING dialing_at_ms
"""

_ATTEMPT = """
INSERT INTO attempts (call_id, number, epoch, node, trunk_id, dial_number, sip_call_id, status, started_at_ms)
SELECT :id, COALESCE(MAX(number), 0) + 1, :epoch, :node, :trunk_id, :dial_number, :sip_call_id, 'DIALING',
    {now}
FROM attempts WHERE call_id = :id
"""

_RELEASE = """
UPDATE calls SET stage = 'QUEUED', owner = '', lease_until_ms = 0, not_before_ms = {now} + :pause_ms
WHERE id = :id AND epoch = :epoch AND owner = :node AND stage = 'CLAIMED' AND lease_until_ms > {now}
"""

# Changes nothing, and so locks the row for what follows, where an engine has row locks.
_HOLD = """
UPDATE calls SET epoch = epoch WHERE id = :id AND epoch = :epoch AND owner = :node
    AND stage IN ('CLAIMED', 'ARMED') RETURNING status, stage
"""

_END = """
UPDATE calls SET stage = 'FINISHED', status = :status, cause = :cause, sip_status = :sip_status,
    ended_by = :ended_by, error = :error, transcript = :transcript, turns = :turns, analysis = :analysis,
    recording_path = :recording_path, recording_url = :recording_url,
    ended_at_ms = CASE WHEN :ended_at_ms > 0 THEN :ended_at_ms ELSE {now} END
WHERE id = :id RETURNING *
"""

_END_ATTEMPT = """
UPDATE attempts SET status = :status, cause = :cause, sip_status = :sip_status, ended_at_ms = :ended_at_ms
WHERE call_id = :id AND ended_at_ms = 0
"""

_RENEW = """
UPDATE calls SET lease_until_ms = {now} + :ttl_ms WHERE owner = :node AND stage IN ('CLAIMED', 'ARMED')
RETURNING id, epoch, hangup_requested
"""

_REQUEUE = """
UPDATE calls SET stage = 'QUEUED', owner = '', lease_until_ms = 0
WHERE stage = 'CLAIMED' AND lease_until_ms <= {now} RETURNING id
"""

_LOST = """
SELECT id FROM calls WHERE stage = 'ARMED' AND lease_until_ms <= {now} ORDER BY lease_until_ms {skip_locked}
"""

_INBOUND = """
INSERT INTO calls (id, company_id, agent_id, trunk_id, direction, phone_number, dial_number, webhook_id,
    variables, metadata, is_test, status, stage, owner, epoch, lease_until_ms, created_at_ms, not_before_ms,
    ringing_at_ms)
VALUES (:id, :company_id, :agent_id, :trunk_id, 'inbound', :phone_number, :called_number, :webhook_id,
    '{}', '{}', 0, 'RINGING', 'ARMED', :node, 1, {now} + :ttl_ms, {now}, {now}, {now})
RETURNING *
"""


def claim(tx: Tx, *, node: str, limit: int, ttl_ms: int) -> list[Claim]:
    """See `Store.claim`. One call of each company in turn, the company with the most room first: a company
    with a hundred thousand calls in the queue delays nobody else's."""
    queues = [
        [row["position"] for row in tx.rows(_DUE, company_id=company["id"], room=min(limit, company["room"]))]
        for company in tx.rows(_WITH_ROOM)
    ]
    claims = []
    for position in islice(_in_turn(queues), max(0, limit)):
        row = tx.row(_CLAIM, position=position, node=node, ttl_ms=ttl_ms)
        if row is not None:
            claims.append(claim_of(row))
    return claims


def _in_turn(queues: Iterable[Sequence[int]]) -> Iterator[int]:
    return (item for item in chain.from_iterable(zip_longest(*queues)) if item is not None)


def claim_of(row: Row) -> Claim:
    """The claim that a row of `calls` is."""
    return Claim(
        call_id=row["id"],
        epoch=row["epoch"],
        node=row["owner"],
        company_id=row["company_id"],
        agent_id=row["agent_id"],
        trunk_id=row["trunk_id"],
        phone_number=row["phone_number"],
        dial_number=row["dial_number"],
        webhook_id=row["webhook_id"],
        variables=json.loads(row["variables"]),
        metadata=json.loads(row["metadata"]),
        is_test=bool(row["is_test"]),
    )


def _fence(held: Claim) -> dict[str, Any]:
    return {"id": held.call_id, "epoch": held.epoch, "node": held.node}


def arm(tx: Tx, *, claim: Claim, ttl_ms: int, sip_call_id: str) -> bool:
    """See `Store.arm`."""
    row = tx.row(_ARM, **_fence(claim), ttl_ms=ttl_ms)
    if row is None:
        # At the company's limit it is still ours and goes back; cancelled or lost, this changes nothing.
        release(tx, claim=claim, pause_ms=FULL_PAUSE_MS)
        return False
    tx.run(
        _ATTEMPT,
        **_fence(claim),
        trunk_id=claim.trunk_id,
        dial_number=claim.dial_number,
        sip_call_id=sip_call_id,
    )
    write_event(tx, call_id=claim.call_id, kind="call.dialing", data={}, at_ms=row["dialing_at_ms"])
    return True


def release(tx: Tx, *, claim: Claim, pause_ms: int = 0) -> bool:
    """See `Store.release`."""
    return tx.run(_RELEASE, **_fence(claim), pause_ms=pause_ms) > 0


def progress(tx: Tx, *, claim: Claim, status: CallStatus, at_ms: int) -> bool:
    """See `Store.progress`."""
    column = _PROGRESS_COLUMN.get(status)
    if column is None:
        raise LocalError(f"{status} is not progress")
    row = tx.row(_HOLD, **_fence(claim))
    if row is None or row["stage"] != Stage.ARMED:
        return False
    if status in TRANSITIONS[CallStatus(row["status"])]:
        tx.run(
            f"UPDATE calls SET status = :status, {column} = :at_ms WHERE id = :id",
            status=status,
            at_ms=at_ms,
            id=claim.call_id,
        )
        write_event(tx, call_id=claim.call_id, kind=f"call.{status.lower()}", data={}, at_ms=at_ms)
    return True


def finish(tx: Tx, *, claim: Claim, outcome: Outcome) -> bool:
    """See `Store.finish`. Raises `LocalError` for an outcome that cannot follow the call's status."""
    row = tx.row(_HOLD, **_fence(claim))
    if row is None:
        return False
    before = CallStatus(row["status"])
    if not outcome.status.final or outcome.status not in TRANSITIONS[before]:
        raise LocalError(f"a call that is {before} cannot become {outcome.status}")
    _end(tx, claim.call_id, outcome)
    return True


def _end(tx: Tx, call_id: str, outcome: Outcome) -> None:
    call = tx.row(
        _END,
        id=call_id,
        status=outcome.status,
        cause=outcome.cause,
        sip_status=outcome.sip_status,
        ended_by=outcome.ended_by,
        error=outcome.error,
        transcript=_json(list(outcome.transcript)),
        turns=_json(list(outcome.turns)),
        analysis=_json(dict(outcome.analysis)),
        recording_path=outcome.recording_path,
        recording_url=outcome.recording_url,
        ended_at_ms=outcome.ended_at_ms,
    )
    if call is None:
        raise LocalError(f"there is no call {call_id!r}")
    ended_at_ms = call["ended_at_ms"]
    tx.run(
        _END_ATTEMPT,
        id=call_id,
        status=outcome.status,
        cause=outcome.cause,
        sip_status=outcome.sip_status,
        ended_at_ms=ended_at_ms,
    )
    kind = "webcall.ended" if call["direction"] == "web" else _END_EVENT[outcome.status]
    write_event(tx, call_id=call_id, kind=kind, data=_summary(call), at_ms=ended_at_ms)
    for kind, data in _contents(outcome):
        write_event(tx, call_id=call_id, kind=kind, data=data)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _summary(call: Row) -> dict[str, Any]:
    """What an event tells of a call that is over."""
    times = {
        name: iso(call[column]) if call[column] else None
        for name, column in (
            ("createdAt", "created_at_ms"),
            ("dialingAt", "dialing_at_ms"),
            ("ringingAt", "ringing_at_ms"),
            ("answeredAt", "answered_at_ms"),
            ("endedAt", "ended_at_ms"),
        )
    }
    talked_ms = call["ended_at_ms"] - call["answered_at_ms"] if call["answered_at_ms"] else 0
    return {
        "status": call["status"],
        "hangupCause": call["cause"],
        "sipStatus": call["sip_status"] or None,
        "endedBy": call["ended_by"] or None,
        "error": call["error"] or None,
        "durationMs": max(0, talked_ms),
        **times,
    }


def _contents(outcome: Outcome) -> Iterator[tuple[str, dict[str, Any]]]:
    if outcome.transcript:
        yield "transcript.completed", {"transcript": list(outcome.transcript)}
    if outcome.analysis:
        yield "analysis.completed", {"analysis": dict(outcome.analysis)}
    if outcome.recording_path:
        yield "recording.completed", {"recordingUrl": outcome.recording_url}


def renew(tx: Tx, *, node: str, ttl_ms: int) -> list[Renewal]:
    """See `Store.renew`. A lease that ran out while the database was away is extended as well: whoever still
    has the row holds the call, whatever the time."""
    rows = tx.rows(_RENEW, node=node, ttl_ms=ttl_ms)
    return [Renewal(row["id"], row["epoch"], bool(row["hangup_requested"])) for row in rows]


def reap(tx: Tx) -> Reaped:
    """See `Store.reap`."""
    requeued = tuple(row["id"] for row in tx.rows(_REQUEUE))
    unknown = tuple(row["id"] for row in tx.rows(_LOST))
    for call_id in unknown:
        _end(tx, call_id, Outcome(status=CallStatus.UNKNOWN, cause=NODE_LOST))
    return Reaped(requeued, unknown)


def request_hangup(tx: Tx, *, company_id: str, call_id: str) -> Stopping | None:
    """See `Store.request_hangup`."""
    row = tx.row(
        "UPDATE calls SET hangup_requested = 1 WHERE id = :id AND company_id = :company_id RETURNING stage",
        id=call_id,
        company_id=company_id,
    )
    if row is None:
        return None
    stage = Stage(row["stage"])
    if stage is Stage.FINISHED:
        return Stopping.ENDED
    if stage is Stage.ARMED:
        return Stopping.REQUESTED
    # Its claim, if it has one, is void from here on: arming looks for the stage.
    _end(tx, call_id, Outcome(status=CallStatus.CANCELLED, cause="cancelled", ended_by="local"))
    return Stopping.CANCELLED


def record_inbound(tx: Tx, *, call: NewInboundCall, node: str, ttl_ms: int) -> Claim:
    """See `Store.record_inbound`."""
    row = tx.row(
        _INBOUND,
        id=str(uuid4()),
        company_id=call.company_id,
        agent_id=call.agent_id,
        trunk_id=call.trunk_id,
        phone_number=call.phone_number,
        called_number=call.called_number,
        webhook_id=call.webhook_id,
        node=node,
        ttl_ms=ttl_ms,
    )
    if row is None:
        raise LocalError("the call was not written")
    write_event(tx, call_id=row["id"], kind="call.ringing", data={"direction": "inbound"})
    return claim_of(row)
