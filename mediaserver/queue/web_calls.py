"""Web calls in the database: calls of direction "web", which are not dialled and begin ANSWERED."""

from __future__ import annotations

from mediaserver.db.database import Tx, values_of
from mediaserver.errors import LocalError
from mediaserver.queue import extra_legs, rules, search
from mediaserver.queue.ledger import claim_of
from mediaserver.queue.outbox import write_event
from mediaserver.queue.records import Claim, NewWebCall

_RECORD = """
INSERT INTO calls (id, company_id, agent_id, trunk_id, direction, phone_number, dial_number, webhook_id,
    variables, metadata, is_test, status, stage, owner, epoch, lease_until_ms, created_at_ms, not_before_ms,
    answered_at_ms)
VALUES (:id, :company_id, :agent_id, '', 'web', :user_ref, '', :webhook_id,
    :variables, :metadata, 0, 'ANSWERED', 'ARMED', :node, 1, {now} + :ttl_ms, {now}, {now}, {now})
RETURNING *
"""


def record(tx: Tx, call: NewWebCall, *, node: str, ttl_ms: int) -> Claim:
    """Writes a web call, ANSWERED and held by `node`; continue with `finish`. It takes the place that was
    reserved for it, if one was. Raises `RuleBroken` where its company is full."""
    extra_legs.leave(tx, leg_id=call.call_id)  # the reserved place becomes the call's own
    rules.take_place(tx, company_id=call.company_id)
    row = tx.row(_RECORD, **values_of(call, id=call.call_id, node=node, ttl_ms=ttl_ms))
    if row is None:
        raise LocalError("the call was not written")
    search.name_call(tx, call.call_id, call.variables, {})
    write_event(
        tx, call_id=call.call_id, kind="webcall.started", data={"direction": "web", "userRef": call.user_ref}
    )
    return claim_of(row)
