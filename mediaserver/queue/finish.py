"""Ends calls, and decides which of them get another attempt.

A node that holds a call ends it once, with its events. One case is looser: a node that was stopped, or cut
off from the database, for longer than its lease finds its call UNKNOWN when it is back. Nobody has dialled
the call meanwhile (nobody ever dials an UNKNOWN call), so the node's outcome replaces UNKNOWN.

A new attempt needs a *definite* outcome, a final response from the far end: an INVITE without a response may
have rung all the same. The agent's retry table then decides, by cause."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mediaserver.db.database import Row, Tx, values_of
from mediaserver.errors import LocalError
from mediaserver.queue import batches, decisions, rules, search
from mediaserver.queue.decisions import Rule, Ruling
from mediaserver.queue.outbox import iso, write_event
from mediaserver.queue.records import TRANSITIONS, CallStatus, Claim, Outcome, Stage
from mediaserver.queue.requests import BatchStatus

_END_EVENT: Mapping[CallStatus, str] = {
    CallStatus.COMPLETED: "call.completed",
    CallStatus.NO_ANSWER: "call.failed",
    CallStatus.BUSY: "call.failed",
    CallStatus.FAILED: "call.failed",
    CallStatus.CANCELLED: "call.cancelled",
    CallStatus.UNKNOWN: "call.unknown",
}

# Changes nothing, but locks the row for what follows, where the engine has row locks.
HOLD = """
UPDATE calls SET epoch = epoch WHERE id = :id AND epoch = :epoch AND owner = :node
    AND (stage IN ('CLAIMED', 'ARMED') OR status = 'UNKNOWN')
RETURNING status, stage, hangup_requested, direction, batch_id, company_id, trunk_id, agent_id, phone_number
"""

_END = """
UPDATE calls SET stage = 'FINISHED', status = :status, cause = :cause, sip_status = :sip_status,
    ended_by = :ended_by, error = :error, transcript = :transcript, turns = :turns, analysis = :analysis,
    sip = CASE WHEN :sip = '' THEN sip ELSE :sip END,
    recording_path = :recording_path, recording_url = :recording_url, recording_node = :recording_node,
    ended_at_ms = CASE WHEN :ended_at_ms > 0 THEN :ended_at_ms ELSE {now} END
WHERE id = :id RETURNING *
"""

_END_ATTEMPT = """
UPDATE attempts SET status = :status, cause = :cause, sip_status = :sip_status, ended_at_ms = :ended_at_ms
WHERE call_id = :id AND (ended_at_ms = 0 OR status = 'UNKNOWN')
"""

_RETRY = """
UPDATE calls SET stage = :stage, status = 'PENDING', owner = '', lease_until_ms = 0, dialing_at_ms = 0,
    ringing_at_ms = 0, not_before_ms = :not_before_ms
WHERE id = :id
"""

_RETRY_TABLE = """
SELECT a.retry, {now} AS now_ms, (
    SELECT COUNT(*) FROM attempts t WHERE t.call_id = :id AND t.cause = :cause AND t.ended_at_ms > 0
) AS before
FROM agents a WHERE a.id = :agent_id
"""


def fence(held: Claim) -> dict[str, Any]:
    """Returns the values by which every statement of a claim's holder is restricted."""
    return {"id": held.call_id, "epoch": held.epoch, "node": held.node}


def finish(tx: Tx, claim: Claim, outcome: Outcome) -> bool:
    """Ends an armed call, or one that failed before it was armed, with its events. False: the claim no longer
    holds the call, and nothing was written. Raises `LocalError` for an outcome that cannot follow the call's
    status."""
    row = tx.row(HOLD, **fence(claim))
    if row is None:
        return False
    before = CallStatus(row["status"])
    if before is CallStatus.UNKNOWN and outcome.status.final:
        if outcome.status is not CallStatus.UNKNOWN:
            _end(tx, claim.call_id, outcome)
        return True
    if not outcome.status.final or outcome.status not in TRANSITIONS[before]:
        raise LocalError(f"a call that is {before} cannot become {outcome.status}")
    if not _tried_again(tx, row, claim.call_id, outcome):
        end(tx, claim.call_id, outcome)
    return True


def end(tx: Tx, call_id: str, outcome: Outcome) -> None:
    """Ends a call that is not over and that the transaction holds."""
    call = _end(tx, call_id, outcome)
    batches.call_over(tx, batch_id=call["batch_id"], call_id=call_id)


def _end(tx: Tx, call_id: str, outcome: Outcome) -> Row:
    call = tx.row(_END, **values_of(outcome, id=call_id, sip=outcome.sip or ""))
    if call is None:
        raise LocalError(f"there is no call {call_id!r}")
    search.note_content(tx, call_id, outcome)
    ended_at_ms = call["ended_at_ms"]
    end_attempt(tx, call_id, outcome, ended_at_ms)
    kind = "webcall.ended" if call["direction"] == "web" else _END_EVENT[outcome.status]
    write_event(tx, call_id=call_id, kind=kind, data=_summary(call), at_ms=ended_at_ms)
    for kind, data in _contents(outcome):
        write_event(tx, call_id=call_id, kind=kind, data=data)
    return call


def end_attempt(tx: Tx, call_id: str, outcome: Outcome, ended_at_ms: int) -> None:
    """Records the outcome of the call's open attempt."""
    tx.run(
        _END_ATTEMPT,
        id=call_id,
        status=outcome.status,
        cause=outcome.cause,
        sip_status=outcome.sip_status,
        ended_at_ms=ended_at_ms,
    )


# Another attempt --------------------------------------------------------------------------------------------


def _tried_again(tx: Tx, row: Row, call_id: str, outcome: Outcome) -> bool:
    """Requeues the call if its agent's retry table says so; False: the call is over."""
    if not outcome.definite or row["stage"] != Stage.ARMED or row["direction"] != "outbound":
        return False
    if CallStatus(row["status"]) is CallStatus.ANSWERED or row["hangup_requested"]:
        return False
    batch = batches.held_status(tx, row["batch_id"])
    if batch is BatchStatus.CANCELLED:
        return False
    table = tx.row(_RETRY_TABLE, id=call_id, agent_id=row["agent_id"], cause=outcome.cause)
    pauses_s = json.loads(table["retry"]).get(outcome.cause, []) if table is not None else []
    if table is None or table["before"] >= len(pauses_s):
        return False
    now_ms: int = table["now_ms"]
    end_attempt(tx, call_id, outcome, outcome.ended_at_ms or now_ms)
    at_ms = _allowed(tx, row, now_ms + int(pauses_s[table["before"]] * 1000))
    _put_back(tx, call_id, at_ms, paused=batch is BatchStatus.PAUSED)
    reason = f"Attempt ended {outcome.cause}: retry {table['before'] + 1} of {len(pauses_s)} for that cause"
    decisions.note(tx, call_id, Ruling(Rule.RETRY, reason, at_ms))
    write_event(tx, call_id=call_id, kind="call.queued", data=_attempted(outcome, at_ms))
    return True


def _allowed(tx: Tx, row: Row, at_ms: int) -> int:
    """Returns the first moment from `at_ms` on within the calling hours."""
    known = rules.facts(tx, company_id=row["company_id"], trunk_id=row["trunk_id"], agent_id=row["agent_id"])
    return max(at_ms, rules.open_at(known, row["phone_number"], at_ms).until_ms)


def not_dialled(tx: Tx, call_id: str, batch_id: str, outcome: Outcome) -> None:
    """Requeues a call whose attempt was written and whose INVITE never left."""
    row = tx.row("SELECT {now} AS now_ms")
    now_ms = row["now_ms"] if row is not None else 0
    end_attempt(tx, call_id, outcome, now_ms)
    _put_back(tx, call_id, now_ms, paused=batches.held_status(tx, batch_id) is BatchStatus.PAUSED)
    decisions.note(tx, call_id, Ruling(Rule.NOT_DIALLED, outcome.error, now_ms))
    write_event(tx, call_id=call_id, kind="call.queued", data=_attempted(outcome, now_ms))


def _put_back(tx: Tx, call_id: str, at_ms: int, *, paused: bool) -> None:
    tx.run(_RETRY, id=call_id, not_before_ms=at_ms, stage=Stage.HELD if paused else Stage.QUEUED)


def _attempted(outcome: Outcome, at_ms: int) -> dict[str, Any]:
    """Returns the data of `call.queued` about the attempt before."""
    attempt = {
        "status": outcome.status,
        "hangupCause": outcome.cause,
        "sipStatus": outcome.sip_status or None,
    }
    return {"attempt": attempt, "scheduledFor": iso(at_ms)}


# What is told -----------------------------------------------------------------------------------------------


def _summary(call: Row) -> dict[str, Any]:
    """Returns the data of an event about a call that is over."""
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
        "sip": json.loads(call["sip"]),
        **times,
    }


def _contents(outcome: Outcome) -> Iterator[tuple[str, dict[str, Any]]]:
    if outcome.transcript:
        yield "transcript.completed", {"transcript": list(outcome.transcript)}
    if outcome.analysis:
        yield "analysis.completed", {"analysis": dict(outcome.analysis)}
    if outcome.recording_path:
        yield "recording.completed", {"recordingUrl": outcome.recording_url}
