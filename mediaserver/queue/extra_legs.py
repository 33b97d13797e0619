"""Legs of a call besides its first: a person to whom the caller is transferred, a number called into a room.

Each counts as a concurrent call of its company and trunk, and is refused where either is full. Destinations,
do-not-call and caller ID are checked. The contact limit and the calling hours, which protect the people that
a campaign calls, are not, and these legs do not count for the limit: a colleague at a desk takes calls all
day."""

from __future__ import annotations

from dataclasses import dataclass

from mediaserver.db.database import Tx, values_of
from mediaserver.queue import rules
from mediaserver.queue.decisions import Ruling

_INSERT = """
INSERT INTO legs (id, call_id, company_id, trunk_id, started_at_ms)
VALUES (:id, :call_id, :company_id, :trunk_id, {now})
"""

_SWEEP = f"DELETE FROM legs AS l WHERE l.company_id = :company_id AND NOT {rules.LIVE_LEG}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLeg:
    """A leg that is about to be dialled for the call `call_id`, by the rules of `agent_id`."""

    id: str
    call_id: str
    company_id: str
    agent_id: str
    trunk_id: str
    phone_number: str


def take(tx: Tx, leg: NewLeg) -> Ruling:
    """Reserves a place for a leg among its company's and its trunk's calls, for as long as the call lasts or
    until `leave`. A ruling with a rule: no place, or the number may not be called."""
    rules.lock_company(tx, leg.company_id)
    tx.run(_SWEEP, company_id=leg.company_id)
    known = rules.facts(tx, company_id=leg.company_id, trunk_id=leg.trunk_id, agent_id=leg.agent_id)
    ruling = rules.forbidden(tx, known, leg.phone_number)
    if ruling.rule is None:
        ruling = rules.room(tx, known)
    if ruling.rule is None:
        tx.run(_INSERT, **values_of(leg))
    return ruling


def reroute(tx: Tx, leg: NewLeg) -> bool:
    """Moves a leg, whose INVITE its trunk did not take, to the trunk that `leg` names. False: that trunk is
    full, too fast or not configured, or the number may not be called any more."""
    rules.lock_company(tx, leg.company_id)
    known = rules.facts(tx, company_id=leg.company_id, trunk_id=leg.trunk_id, agent_id=leg.agent_id)
    if rules.over_another(tx, known, leg.phone_number).rule is not None:
        return False
    return tx.run("UPDATE legs SET trunk_id = :trunk_id WHERE id = :id", id=leg.id, trunk_id=leg.trunk_id) > 0


def hold(tx: Tx, company_id: str, room: str) -> Ruling:
    """Reserves a place among the company's calls for a web call about to begin in `room`: until the call is
    written, `leave` frees the place, or two minutes have passed. The same room keeps its place. A ruling
    with a rule: no place."""
    rules.lock_company(tx, company_id)
    tx.run(_SWEEP, company_id=company_id)
    if tx.row("SELECT id FROM legs WHERE id = :room", room=room) is not None:
        return rules.GO
    ruling = vacancy(tx, company_id=company_id)
    if ruling.rule is None:
        tx.run(_INSERT, id=room, call_id=room, company_id=company_id, trunk_id="")
    return ruling


def vacancy(tx: Tx, company_id: str) -> Ruling:
    """Whether the company is below its limit of concurrent calls at this moment."""
    return rules.room(tx, rules.facts(tx, company_id=company_id, trunk_id="", agent_id=""))


def leave(tx: Tx, leg_id: str) -> bool:
    """Frees the place of a leg that has ended. False: it had none."""
    return tx.run("DELETE FROM legs WHERE id = :id", id=leg_id) > 0
