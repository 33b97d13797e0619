"""Telephones beside the one that a call began with: a person who is handed the caller, a number called into a
room.

Each is a call of its company and of its trunk, counted like the others and refused where there is no room.
What protects the people that a campaign calls does not hold for them: nobody is called too often, or too
late, who is a colleague at a desk that takes calls all day; the contact limit and the calling hours are not
asked, and these calls do not count for the limit. Destinations, do-not-call and caller ID hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from mediaserver.db.database import Tx
from mediaserver.queue import rules
from mediaserver.queue.decisions import Verdict

_INSERT = """
INSERT INTO legs (id, call_id, company_id, trunk_id, started_at_ms)
VALUES (:id, :call_id, :company_id, :trunk_id, {now})
"""

_SWEEP = f"DELETE FROM legs AS l WHERE l.company_id = :company_id AND NOT {rules.LIVE_LEG}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLeg:
    """A telephone that is about to be called for the call `call_id`, by the rules of `agent_id`."""

    id: str
    call_id: str
    company_id: str
    agent_id: str
    trunk_id: str
    phone_number: str


def take(tx: Tx, leg: NewLeg) -> Verdict:
    """A place for a telephone among its company's and its trunk's calls, as long as the call lasts;
    `leave_leg` gives it back. A verdict with a rule: there is none, or the number may not be called."""
    rules.lock_company(tx, leg.company_id)
    tx.run(_SWEEP, company_id=leg.company_id)
    known = rules.facts(tx, company_id=leg.company_id, trunk_id=leg.trunk_id, agent_id=leg.agent_id)
    verdict = rules.forbidden(tx, known, leg.phone_number)
    if verdict.rule is None:
        verdict = rules.room(tx, known)
    if verdict.rule is None:
        tx.run(_INSERT, id=leg.id, call_id=leg.call_id, company_id=leg.company_id, trunk_id=leg.trunk_id)
    return verdict


def hold(tx: Tx, company_id: str, room: str) -> Verdict:
    """Holds a place among its company's calls for a web call that is about to begin in `room`, until it is
    written, `leave_leg` gives the place back, or two minutes are over. Again for the same room: the same
    place. A verdict with a rule: there is none."""
    rules.lock_company(tx, company_id)
    tx.run(_SWEEP, company_id=company_id)
    if tx.row("SELECT id FROM legs WHERE id = :room", room=room) is not None:
        return rules.GO
    verdict = vacancy(tx, company_id=company_id)
    if verdict.rule is None:
        tx.run(_INSERT, id=room, call_id=room, company_id=company_id, trunk_id="")
    return verdict


def vacancy(tx: Tx, company_id: str) -> Verdict:
    """Whether the company is below its limit of concurrent calls at this moment."""
    return rules.room(tx, rules.facts(tx, company_id=company_id, trunk_id="", agent_id=""))


def leave(tx: Tx, leg_id: str) -> bool:
    """The telephone is gone. Again: False."""
    return tx.run("DELETE FROM legs WHERE id = :id", id=leg_id) > 0
