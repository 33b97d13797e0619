"""The dispatch ledger: who dials what, so that nobody is ever dialled twice.

A call goes `QUEUED → CLAIMED → ARMED → FINISHED`. A claim has an owner, a lease and an epoch that grows with
every claim; each later step names all three and changes nothing when they are no longer the row's, so a node
that was stopped past its lease and woke up again cannot dial, and cannot write over what another one knows.
Arming commits the attempt row, and with it the wish to dial, *before* the INVITE leaves, and asks every rule
(`mediaserver.queue.rules`) in the same transaction. A call of a paused batch is HELD instead of QUEUED. What
is left after a crash is then plain: an expired claim without an attempt was never dialled and goes back to
the queue; with one it may have been, becomes UNKNOWN, and no machine dials it again. An ordinary queue that
requeues what it lost redialled 4.5 to 6.5 % under the same kills.

All functions run inside one transaction of the store's database.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import chain, zip_longest

from mediaserver.db.database import Row, Tx, read_row, values_of
from mediaserver.errors import LocalError
from mediaserver.queue import batches, decisions, history, rules, search
from mediaserver.queue.cancel import cancel_orphans
from mediaserver.queue.decisions import Rule, Ruling
from mediaserver.queue.finish import HOLD, end, fence, finish, not_dialled
from mediaserver.queue.outbox import write_event
from mediaserver.queue.records import (
    TRANSITIONS,
    CallStatus,
    Claim,
    NewInboundCall,
    Outcome,
    Reaped,
    Renewal,
    Stage,
)
from mediaserver.queue.requests import BatchStatus

NODE_LOST = "node_lost"
"""The cause of an UNKNOWN call: its node stopped renewing after the attempt was armed."""

NOT_DIALLED = "not_dialled"
"""The cause of an attempt whose INVITE never left, as its node said. It counts for no limit."""

REAP_LIMIT = 500
"""The most lost calls that one transaction handles."""

_PROGRESS_COLUMN: Mapping[CallStatus, str] = {
    CallStatus.DIALING: "dialing_at_ms",
    CallStatus.RINGING: "ringing_at_ms",
    CallStatus.ANSWERED: "answered_at_ms",
}

# A lane for each trunk: a trunk that is full, or dials too fast, holds up no other one.
_LANES = f"""
SELECT trunk_id, company_id, company_room, trunk_room, trunk_pace FROM (
    SELECT t.id AS trunk_id, t.company_id AS company_id, c.max_concurrent_calls - (
            SELECT COUNT(*) FROM calls h WHERE h.company_id = c.id AND h.stage IN ('CLAIMED', 'ARMED')
        ) - (
            SELECT COUNT(*) FROM legs l WHERE l.company_id = c.id AND {rules.LIVE_LEG}
        ) AS company_room,
        CASE WHEN t.max_concurrent_calls = 0 THEN :limit ELSE t.max_concurrent_calls - (
            SELECT COUNT(*) FROM calls h WHERE h.trunk_id = t.id AND h.stage IN ('CLAIMED', 'ARMED')
        ) - (
            SELECT COUNT(*) FROM legs l WHERE l.trunk_id = t.id AND {rules.LIVE_LEG}
        ) END AS trunk_room,
        CASE WHEN t.calls_per_second = 0 THEN :limit ELSE t.calls_per_second - (
            SELECT COUNT(*) FROM attempts p WHERE p.trunk_id = t.id AND p.started_at_ms > {{now}} - 1000
        ) - (
            SELECT COUNT(*) FROM passed_over o WHERE o.trunk_id = t.id AND o.at_ms > {{now}} - 1000
        ) - (
            SELECT COUNT(*) FROM calls h WHERE h.trunk_id = t.id AND h.stage = 'CLAIMED'
        ) END AS trunk_pace
    FROM trunks t JOIN companies c ON c.id = t.company_id AND c.enabled = 1
    WHERE EXISTS (
        SELECT 1 FROM calls q WHERE q.trunk_id = t.id AND q.stage = 'QUEUED' AND q.not_before_ms <= {{now}}
    )
) AS lane WHERE company_room > 0 AND trunk_room > 0 AND trunk_pace > 0 ORDER BY random() LIMIT :limit
"""

_DUE = """
SELECT position FROM calls WHERE trunk_id = :trunk_id AND stage = 'QUEUED' AND not_before_ms <= {now}
ORDER BY not_before_ms, position LIMIT :room {skip_locked}
"""

_CLAIM = f"""
WITH due AS MATERIALIZED ({_DUE})
UPDATE calls SET stage = 'CLAIMED', owner = :node, epoch = epoch + 1, lease_until_ms = {{now}} + :ttl_ms
WHERE position IN (SELECT position FROM due) AND stage = 'QUEUED' RETURNING *
"""

_MINE = """
SELECT batch_id FROM calls WHERE id = :id AND epoch = :epoch AND owner = :node AND stage = 'CLAIMED'
    AND hangup_requested = 0 AND lease_until_ms > {now} {lock}
"""

_ARM = """
UPDATE calls SET stage = 'ARMED', status = 'DIALING', dialing_at_ms = {now}, lease_until_ms = {now} + :ttl_ms
WHERE id = :id AND epoch = :epoch AND owner = :node AND stage = 'CLAIMED' AND lease_until_ms > {now}
RETURNING dialing_at_ms
"""

_ATTEMPT = """
INSERT INTO attempts (call_id, number, epoch, node, trunk_id, dial_number, sip_call_id, status, started_at_ms,
    company_id, phone_number)
SELECT :id, COALESCE(MAX(number), 0) + 1, :epoch, :node, :trunk_id, :dial_number, :sip_call_id, 'DIALING',
    {now}, :company_id, :phone_number
FROM attempts WHERE call_id = :id
"""

_REROUTE = """
UPDATE calls SET trunk_id = :trunk_id, dial_number = :dial_number
WHERE id = :id AND epoch = :epoch AND owner = :node AND stage = 'ARMED' AND hangup_requested = 0
    AND lease_until_ms > {now}
"""

_FORGET_PASSED_OVER = "DELETE FROM passed_over WHERE trunk_id = :trunk_id AND at_ms <= {now} - 1000"

_PASSED_OVER = """
INSERT INTO passed_over (trunk_id, at_ms)
SELECT trunk_id, started_at_ms FROM attempts WHERE call_id = :id AND epoch = :epoch AND node = :node
"""

_ATTEMPT_REROUTED = """
UPDATE attempts SET trunk_id = :trunk_id, dial_number = :dial_number, started_at_ms = {now}
WHERE call_id = :id AND epoch = :epoch AND node = :node
"""

_RELEASE = """
UPDATE calls SET stage = 'QUEUED', owner = '', lease_until_ms = 0, not_before_ms = {now} + :pause_ms
WHERE id = :id AND epoch = :epoch AND owner = :node AND stage = 'CLAIMED' AND lease_until_ms > {now}
"""

_POSTPONE = """
UPDATE calls SET stage = :stage, owner = '', lease_until_ms = 0, not_before_ms = :until_ms
WHERE id = :id AND epoch = :epoch AND owner = :node AND stage = 'CLAIMED'
"""

_RENEW = """
UPDATE calls SET lease_until_ms = {now} + :ttl_ms WHERE owner = :node AND stage IN ('CLAIMED', 'ARMED')
RETURNING id, epoch, hangup_requested
"""

_HELD = "SELECT id FROM calls WHERE owner = :node AND stage IN ('CLAIMED', 'ARMED')"

_LEASE = """
SELECT id, lease_until_ms AS until_ms FROM calls
WHERE id = :id AND owner = :node AND stage IN ('CLAIMED', 'ARMED') {lock}
"""

_LET_EXPIRE = "UPDATE calls SET lease_until_ms = :until_ms WHERE id = :id"

_WISHES = """
SELECT id FROM calls WHERE owner = :node AND stage = 'ARMED' AND hangup_requested = 1
"""

# Locked rows are skipped until another time: a node that was stopped in the middle of a transaction must
# not stop the node that reaps its calls.
_EXPIRED = """
SELECT id FROM calls WHERE stage = 'CLAIMED' AND lease_until_ms <= {now}
ORDER BY lease_until_ms LIMIT :limit {skip_locked}
"""

_REQUEUE = """
UPDATE calls SET stage = 'QUEUED', owner = '', lease_until_ms = 0 WHERE id = :id AND stage = 'CLAIMED'
"""

_LOST = """
SELECT id FROM calls WHERE stage = 'ARMED' AND lease_until_ms <= {now}
ORDER BY lease_until_ms LIMIT :limit {skip_locked}
"""

_INBOUND = """
INSERT INTO calls (id, company_id, agent_id, trunk_id, direction, phone_number, dial_number, webhook_id,
    variables, sip, metadata, is_test, status, stage, owner, epoch, lease_until_ms, created_at_ms,
    not_before_ms, ringing_at_ms)
VALUES (:id, :company_id, :agent_id, :trunk_id, 'inbound', :phone_number, :called_number, :webhook_id,
    :variables, :sip, '{}', 0, 'RINGING', 'ARMED', :node, 1, {now} + :ttl_ms,
    CASE WHEN :ringing_at_ms > 0 THEN :ringing_at_ms ELSE {now} END,
    CASE WHEN :ringing_at_ms > 0 THEN :ringing_at_ms ELSE {now} END,
    CASE WHEN :ringing_at_ms > 0 THEN :ringing_at_ms ELSE {now} END)
ON CONFLICT (id) DO NOTHING RETURNING *
"""


def claim(tx: Tx, node: str, limit: int, ttl_ms: int) -> list[Claim]:
    """Claims up to `limit` due calls, in turn between trunks and within the companies' concurrency. Raises
    `HistoryChanged` while the database may lack what nodes did.

    `node` names one run of one process (a restarted process is another node). The lease ends after `ttl_ms`
    unless renewed. One call of each trunk in turn: a company with a hundred thousand calls in the queue
    delays nobody else's."""
    if limit <= 0:
        return []
    history.check(tx)
    shares = _shares(tx, tx.rows(_LANES, limit=limit), limit)
    claims: list[list[Claim]] = []
    for trunk_id, room in shares.items():
        rows = tx.rows(_CLAIM, trunk_id=trunk_id, room=room, node=node, ttl_ms=ttl_ms)
        claims.append([claim_of(row) for row in sorted(rows, key=_place)])
    return [each for each in chain.from_iterable(zip_longest(*claims)) if each is not None]


def _place(row: Row) -> tuple[int, int]:
    return row["not_before_ms"], row["position"]


def _shares(tx: Tx, lanes: Sequence[Row], limit: int) -> Counter[str]:
    """Returns how many calls of each trunk to claim: one in turn, as far as there are any, and as their
    companies have room."""
    shares: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    due = [[lane] * len(tx.rows(_DUE, **_room(lane, limit))) for lane in lanes]
    for lane in chain.from_iterable(zip_longest(*due)):
        if lane is None or taken[lane["company_id"]] == lane["company_room"]:
            continue
        taken[lane["company_id"]] += 1
        shares[lane["trunk_id"]] += 1
        if shares.total() == limit:
            break
    return shares


def _room(lane: Row, limit: int) -> dict[str, object]:
    room = min(limit, lane["company_room"], lane["trunk_room"], lane["trunk_pace"])
    return {"trunk_id": lane["trunk_id"], "room": room}


def claim_of(row: Row) -> Claim:
    """Makes the claim of a row of `calls`."""
    documents = {name: json.loads(row[name]) for name in ("variables", "metadata", "sip")}
    return read_row(
        Claim, row, call_id=row["id"], node=row["owner"], is_test=bool(row["is_test"]), **documents
    )


def arm(tx: Tx, claim: Claim, ttl_ms: int, *, sip_call_id: str = "") -> bool:
    """Commits the attempt: the INVITE may leave only after True. The call is then DIALING, and `call.dialing`
    is written.

    False: do not dial. The call was cancelled, another node has it, or a rule refuses it, in which case it
    has ended or is queued for later, with a decision. Where this raises, the commit may have happened or not:
    `release` the claim, and do not dial."""
    rules.lock_company(tx, claim.company_id)
    held = tx.row(_MINE, **fence(claim))
    if held is None:
        return False
    batch = batches.held_status(tx, held["batch_id"])
    if batch is BatchStatus.CANCELLED:
        end(tx, claim.call_id, Outcome(status=CallStatus.CANCELLED, cause="cancelled", ended_by="local"))
        return False
    ruling = _ruling(tx, claim, batch)
    if ruling.rule is not None:
        _not_now(tx, claim, ruling)
        return False
    row = tx.row(_ARM, **fence(claim), ttl_ms=ttl_ms)
    if row is None:
        return False
    tx.run(_ATTEMPT, **values_of(claim, id=claim.call_id, sip_call_id=sip_call_id))
    batches.begun(tx, held["batch_id"])
    write_event(tx, call_id=claim.call_id, kind="call.dialing", data={}, at_ms=row["dialing_at_ms"])
    return True


def _ruling(tx: Tx, claim: Claim, batch: BatchStatus | None) -> Ruling:
    known = rules.facts(tx, company_id=claim.company_id, trunk_id=claim.trunk_id, agent_id=claim.agent_id)
    if batch is BatchStatus.PAUSED:
        return Ruling(Rule.BATCH_PAUSED, "The batch is paused", known.now_ms)
    return rules.arming(tx, known, claim.phone_number)


def _not_now(tx: Tx, claim: Claim, ruling: Ruling) -> None:
    """Ends a call that is never to be dialled, or queues it for later; records the decision."""
    decisions.note(tx, claim.call_id, ruling)
    if ruling.refused:
        cause = str(ruling.rule)
        end(tx, claim.call_id, Outcome(status=CallStatus.FAILED, cause=cause, error=ruling.reason))
        return
    stage = Stage.HELD if ruling.rule is Rule.BATCH_PAUSED else Stage.QUEUED
    tx.run(_POSTPONE, **fence(claim), stage=stage, until_ms=ruling.until_ms)


def reroute(tx: Tx, claim: Claim, *, trunk_id: str, dial_number: str) -> bool:
    """Moves an armed call to another trunk, before its INVITE leaves over that one; the attempt is then over
    that trunk, and counts among its calls; for a second it counts for the pace of the one before as well.
    False: the trunk is full, too fast or not configured, the number may not be called any more, the call's
    end was requested, or its lease is over."""
    rules.lock_company(tx, claim.company_id)
    known = rules.facts(tx, company_id=claim.company_id, trunk_id=trunk_id, agent_id=claim.agent_id)
    if rules.over_another(tx, known, claim.phone_number).rule is not None:
        return False
    values = {**fence(claim), "trunk_id": trunk_id, "dial_number": dial_number}
    if not tx.run(_REROUTE, **values):
        return False
    tx.run(_FORGET_PASSED_OVER, trunk_id=claim.trunk_id)
    tx.run(_PASSED_OVER, **fence(claim))
    tx.run(_ATTEMPT_REROUTED, **values)
    return True


def release(tx: Tx, claim: Claim, *, pause_ms: int = 0) -> bool:
    """Returns a claim that was *not dialled* to the queue: one not armed (the node drains, or lacks an
    engine), or armed without an INVITE having left. An unarmed call is not claimed again within `pause_ms`.
    False: the claim no longer holds the call."""
    if tx.run(_RELEASE, **fence(claim), pause_ms=pause_ms):
        return True
    row = tx.row(HOLD, **fence(claim))
    if row is None or row["stage"] == Stage.CLAIMED:
        return False
    outcome = Outcome(status=CallStatus.FAILED, cause=NOT_DIALLED, error="The INVITE never left")
    if row["stage"] == Stage.FINISHED:  # the call is UNKNOWN, and is now known not to have been dialled
        return finish(tx, claim=claim, outcome=outcome)
    if row["hangup_requested"]:
        end(tx, claim.call_id, Outcome(status=CallStatus.CANCELLED, cause="cancelled", ended_by="local"))
    else:
        not_dialled(tx, claim.call_id, row["batch_id"], outcome)
    return True


def progress(tx: Tx, claim: Claim, status: CallStatus, at_ms: int) -> bool:
    """Records DIALING, RINGING or ANSWERED at `at_ms`, with its event. A state that the call has reached or
    passed changes nothing. False: the claim no longer holds the call. Raises `LocalError` for another
    status."""
    column = _PROGRESS_COLUMN.get(status)
    if column is None:
        raise LocalError(f"{status} is not progress")
    row = tx.row(HOLD, **fence(claim))
    if row is None or row["stage"] == Stage.CLAIMED:
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


def held(tx: Tx, node: str) -> list[str]:
    """Returns the calls that are claimed by `node` or live on it, as far as the database knows."""
    return [row["id"] for row in tx.rows(_HELD, node=node)]


def renew(tx: Tx, node: str, ttl_ms: int, *, unheld: frozenset[str] = frozenset()) -> list[Renewal]:
    """Extends the leases of `node`, except those of `unheld`: claims that the node never received, because
    the database's answer was lost. Those expire. A lease that ran out while the database was away is extended
    as well: the node that the row names holds the call."""
    leases = [row for call_id in sorted(unheld) for row in tx.rows(_LEASE, id=call_id, node=node)]
    rows = tx.rows(_RENEW, node=node, ttl_ms=ttl_ms)
    for lease in leases:
        tx.run(_LET_EXPIRE, id=lease["id"], until_ms=lease["until_ms"])
    return [
        Renewal(row["id"], row["epoch"], bool(row["hangup_requested"]))
        for row in rows
        if row["id"] not in unheld
    ]


def pending_hangups(tx: Tx, node: str) -> list[str]:
    """Returns the live calls of `node` that a client has asked to end."""
    return [row["id"] for row in tx.rows(_WISHES, node=node)]


def reap_expired(tx: Tx) -> Reaped:
    """Handles expired leases: a call that was never armed is requeued, an armed one becomes UNKNOWN for ever.
    To be called after `renew`."""
    # While the database may lack rows, it is not known whether a claim was armed.
    expired = [row["id"] for row in tx.rows(_EXPIRED, limit=REAP_LIMIT)] if history.whole(tx) else []
    requeued = tuple(call_id for call_id in expired if tx.run(_REQUEUE, id=call_id))
    unknown = tuple(row["id"] for row in tx.rows(_LOST, limit=REAP_LIMIT))
    for call_id in unknown:
        end(tx, call_id, Outcome(status=CallStatus.UNKNOWN, cause=NODE_LOST))
    return Reaped(requeued, unknown, cancel_orphans(tx, limit=REAP_LIMIT))


def record_inbound(tx: Tx, call: NewInboundCall, *, node: str, ttl_ms: int, is_up: bool = False) -> Claim:
    """Writes an inbound call, RINGING and held by `node`; continue with `progress` and `finish`. A call that
    is written already stays as it is. `is_up`: the call was answered while the database was away, and is
    written whatever the limits. Raises `RuleBroken` where its company or trunk is at the limit of concurrent
    calls."""
    if not is_up:
        rules.take_place(tx, company_id=call.company_id, trunk_id=call.trunk_id)
    row = tx.row(_INBOUND, **values_of(call, id=call.call_id, node=node, ttl_ms=ttl_ms))
    if row is not None:
        at_ms = row["ringing_at_ms"]
        search.name_call(tx, row["id"], call.variables, call.sip)
        data = {"direction": "inbound", "calledNumber": call.called_number, "sip": dict(call.sip)}
        write_event(tx, call_id=row["id"], kind="call.ringing", data=data, at_ms=at_ms)
    return inbound_claim(call, node)


def inbound_claim(call: NewInboundCall, node: str) -> Claim:
    """Makes the claim of `node` on an inbound call, written or not."""
    shared = {each.name: getattr(call, each.name) for each in fields(call)}
    own = {"epoch": 1, "node": node, "dial_number": call.called_number, "metadata": {}, "is_test": False}
    return read_row(Claim, shared, **own)
