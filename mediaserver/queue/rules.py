"""Rules for dialling, checked when a call is queued and again when it is about to be dialled.

Some rules refuse for ever (a destination that the company may not call, a number on its do-not-call list),
the others say when to check again. `forbidden` and `planned` are checked when a call is queued. `arming`
checks every rule, limits and rates of the moment included, in the transaction that lets the INVITE leave, so
that changes in between count. A transaction that counts holds the company's row (`lock_company`), so that two
nodes do not both take the last place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mediaserver.db.database import Row, Tx
from mediaserver.errors import InvalidNumber, LocalError, RuleBroken
from mediaserver.numbers.calling_windows import local_zones, next_open_ms
from mediaserver.numbers.e164 import may_dial, normalise
from mediaserver.numbers.users import user_named
from mediaserver.queue.decisions import Rule, Ruling
from mediaserver.queue.outbox import iso

FULL_PAUSE_MS = 1000
"""How long a call waits whose company or trunk was at its limit, before the limits are checked again."""

GO = Ruling()

_FACTS = """
SELECT c.id AS company_id, c.duplicate_policy, c.dial_prefixes, c.contact_calls, c.contact_minutes, c.country,
    c.max_concurrent_calls AS company_calls, c.calling_windows AS company_windows, c.caller_ids,
    COALESCE(t.enabled, 0) AS trunk_enabled, t.id AS trunk_id, t.caller_id AS trunk_caller_id,
    t.max_concurrent_calls AS trunk_calls, t.calls_per_second,
    c.enabled AS company_enabled, COALESCE(a.enabled, 0) AS agent_enabled, a.phone_number AS agent_number,
    a.calling_windows AS agent_windows, {now} AS now_ms
FROM companies c
LEFT JOIN trunks t ON t.id = :trunk_id AND t.company_id = c.id
LEFT JOIN agents a ON a.id = :agent_id AND a.company_id = c.id
WHERE c.id = :company_id
"""

_CONTACTS = """
SELECT started_at_ms AS at_ms FROM attempts
WHERE company_id = :company_id AND phone_number = :phone_number AND started_at_ms > :since_ms
    AND cause <> 'not_dialled'
UNION ALL SELECT at_ms FROM erased_contacts
WHERE company_id = :company_id AND fingerprint = :fingerprint AND at_ms > :since_ms
"""

_EXPECTED = """
SELECT not_before_ms AS at_ms FROM calls
WHERE company_id = :company_id AND phone_number = :phone_number AND stage IN ('QUEUED', 'CLAIMED', 'HELD')
"""

_OTHERS_NUMBER = """
SELECT id FROM companies WHERE id <> :company_id AND enabled = 1 AND caller_ids LIKE :pattern
"""

UNWRITTEN_MS = 120_000
"""A leg may be dialled into a room before the room's call is written, with the first participant. For so long
the leg counts by itself; it rings for a minute at the most."""

LIVE_LEG = f"""
(l.started_at_ms > {{now}} - {UNWRITTEN_MS}
    OR EXISTS (SELECT 1 FROM calls o WHERE o.id = l.call_id AND o.stage = 'ARMED'))
"""
"""Condition on the legs `l` besides a call's first (`mediaserver.queue.extra_legs`): those that count."""

_COMPANY_ARMED = f"""
SELECT (SELECT COUNT(*) FROM calls h WHERE h.company_id = :company_id AND h.stage = 'ARMED')
    + (SELECT COUNT(*) FROM legs l WHERE l.company_id = :company_id AND {LIVE_LEG}) AS many
FROM companies c WHERE c.id = :company_id
"""

_TRUNK_ARMED = f"""
SELECT (SELECT COUNT(*) FROM calls h WHERE h.trunk_id = :trunk_id AND h.stage = 'ARMED')
    + (SELECT COUNT(*) FROM legs l WHERE l.trunk_id = :trunk_id AND {LIVE_LEG}) AS many
FROM trunks t WHERE t.id = :trunk_id
"""

_TRUNK_RECENT = """
SELECT started_at_ms AS at_ms FROM attempts WHERE trunk_id = :trunk_id AND started_at_ms > {now} - 1000
UNION ALL SELECT at_ms FROM passed_over WHERE trunk_id = :trunk_id AND at_ms > {now} - 1000
ORDER BY at_ms DESC LIMIT :most
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Settings of a company, a trunk and an agent that the rules need, at `now_ms`."""

    company_id: str
    trunk_id: str
    configured: bool
    duplicate_policy: str
    prefixes: tuple[str, ...]
    caller_id: str
    caller_ids: frozenset[str] | None
    contact_calls: int
    contact_ms: int
    windows: tuple[str, ...]
    country: str
    company_calls: int
    trunk_calls: int
    calls_per_second: int
    now_ms: int


def lock_company(tx: Tx, company_id: str) -> None:
    """Locks the company's row until the transaction ends, so that counts stay true."""
    tx.rows("SELECT id FROM companies WHERE id = :company_id {lock}", company_id=company_id)


def facts(tx: Tx, *, company_id: str, trunk_id: str, agent_id: str) -> Facts:
    """Reads the facts of now. Raises `LocalError` for an unknown company."""
    row = tx.row(_FACTS, company_id=company_id, trunk_id=trunk_id, agent_id=agent_id)
    if row is None:
        raise LocalError(f"there is no company {company_id!r}")
    configured = bool(row["company_enabled"] and row["trunk_enabled"] and row["agent_enabled"])
    return Facts(
        company_id=company_id,
        trunk_id=trunk_id,
        configured=configured,
        duplicate_policy=row["duplicate_policy"],
        prefixes=tuple(json.loads(row["dial_prefixes"])),
        caller_id=_caller_id(row) if configured else "",
        caller_ids=frozenset(json.loads(row["caller_ids"])) if row["caller_ids"] else None,
        contact_calls=row["contact_calls"],
        contact_ms=row["contact_minutes"] * 60_000,
        windows=tuple(json.loads(row["agent_windows"] or row["company_windows"])),
        country=row["country"],
        company_calls=row["company_calls"],
        trunk_calls=row["trunk_calls"] or 0,
        calls_per_second=row["calls_per_second"] or 0,
        now_ms=row["now_ms"],
    )


def _caller_id(row: Row) -> str:
    """Returns the caller ID, as E.164 where it is a number: the agent's own, else the trunk's."""
    shown: str = row["agent_number"] or row["trunk_caller_id"]
    try:
        return normalise(shown, row["country"] or None) if shown else ""
    except InvalidNumber:
        return shown


def forbidden(tx: Tx, known: Facts, phone_number: str) -> Ruling:
    """Refuses a number that may not be dialled, whatever the time and the limits."""
    if not known.configured:
        return Ruling(Rule.NOT_CONFIGURED, "The agent or its trunk is not configured any more")
    if not user_named(phone_number) and not may_dial(phone_number, known.prefixes):
        return Ruling(Rule.DIAL_PREFIX, "Phone number is outside the destinations that your company may call")
    listed = tx.row(
        "SELECT phone_number FROM do_not_call WHERE company_id = :company_id AND phone_number = :number",
        company_id=known.company_id,
        number=phone_number,
    )
    if listed is not None:
        return Ruling(Rule.DO_NOT_CALL, "Phone number is on your company's do-not-call list")
    return _owned(tx, known)


def _owned(tx: Tx, known: Facts) -> Ruling:
    """Refuses a caller ID that another company lists, or that is missing from this company's own list."""
    if not known.caller_id:
        return GO
    if known.caller_ids is not None:
        owned = known.caller_id in known.caller_ids
    else:
        pattern = f'%"{known.caller_id}"%'
        owned = tx.row(_OTHERS_NUMBER, company_id=known.company_id, pattern=pattern) is None
    return GO if owned else Ruling(Rule.CALLER_ID, "The agent's caller ID does not belong to your company")


def open_at(known: Facts, phone_number: str, at_ms: int) -> Ruling:
    """Checks the calling hours at `at_ms`, by the called party's clock."""
    if not known.windows:
        return GO
    user = bool(user_named(phone_number))
    zones = local_zones("" if user else phone_number, known.country)
    opens_ms = next_open_ms(known.windows, zones, at_ms)
    if opens_ms == at_ms:
        return GO
    if opens_ms is None:
        return Ruling(Rule.CALLING_WINDOW, "There is no hour at which this phone number may be called")
    reason = f"Outside the calling hours of the called party until {iso(opens_ms)}"
    return Ruling(Rule.CALLING_WINDOW, reason, opens_ms)


def planned(tx: Tx, known: Facts, phone_number: str, *, at_ms: int, also_ms: Iterable[int] = ()) -> Ruling:
    """Checks the contact limit for a call to be queued for `at_ms`: dialled calls, queued calls and `also_ms`
    all count."""
    if not known.contact_calls:
        return GO
    values = {"company_id": known.company_id, "phone_number": phone_number}
    dialled = _dialled(tx, known, phone_number, at_ms)
    expected = tx.rows(_EXPECTED, **values)
    times = dialled + [max(row["at_ms"], known.now_ms) for row in expected]
    return _contacted(known, [*times, *also_ms], at_ms)


def _contacted(known: Facts, times: Iterable[int], at_ms: int) -> Ruling:
    recent = sorted(time for time in times if time > at_ms - known.contact_ms)
    if len(recent) < known.contact_calls:
        return GO
    reset_ms = recent[len(recent) - known.contact_calls] + known.contact_ms
    return Ruling(
        Rule.CONTACT_LIMIT, f"Contact was called too recently: limit resets at {iso(reset_ms)}", reset_ms
    )


def arming(tx: Tx, known: Facts, phone_number: str) -> Ruling:
    """Checks every rule at this moment. The company's row must be locked."""
    verdicts = _all(tx, known, phone_number)
    return next((ruling for ruling in verdicts if ruling.rule is not None), GO)


def _all(tx: Tx, known: Facts, phone_number: str) -> Iterator[Ruling]:
    yield forbidden(tx, known, phone_number)
    yield open_at(known, phone_number, known.now_ms)
    yield _recent(tx, known, phone_number)
    yield room(tx, known)
    yield _pace(tx, known)


def _recent(tx: Tx, known: Facts, phone_number: str) -> Ruling:
    if not known.contact_calls:
        return GO
    return _contacted(known, _dialled(tx, known, phone_number, known.now_ms), known.now_ms)


def _dialled(tx: Tx, known: Facts, phone_number: str, at_ms: int) -> list[int]:
    """Returns when a number was dialled within the contact limit before `at_ms`, erased attempts included."""
    rows = tx.rows(
        _CONTACTS,
        company_id=known.company_id,
        phone_number=phone_number,
        fingerprint=erased_contact(tx, known.company_id, phone_number),
        since_ms=at_ms - known.contact_ms,
    )
    return [row["at_ms"] for row in rows]


def erased_contact(tx: Tx, company_id: str, phone_number: str) -> str:
    """Returns by what an erased attempt is known to have dialled a number."""
    return tx.fingerprint(f"contact {company_id} {phone_number}")


def room(tx: Tx, known: Facts) -> Ruling:
    """Checks the limits of concurrent calls of company and trunk. The company's row must be locked."""
    if _many(tx.row(_COMPANY_ARMED, company_id=known.company_id)) >= known.company_calls:
        until_ms = known.now_ms + FULL_PAUSE_MS
        return Ruling(Rule.COMPANY_LIMIT, "The company is at its limit of concurrent calls", until_ms)
    return _trunk_room(tx, known)


def _trunk_room(tx: Tx, known: Facts) -> Ruling:
    until_ms = known.now_ms + FULL_PAUSE_MS
    if known.trunk_calls and _many(tx.row(_TRUNK_ARMED, trunk_id=known.trunk_id)) >= known.trunk_calls:
        return Ruling(Rule.TRUNK_LIMIT, "The trunk is at its limit of concurrent calls", until_ms)
    return GO


def over_another(tx: Tx, known: Facts, phone_number: str) -> Ruling:
    """Checks whether a call that is armed may go over the trunk of `known` instead of its own."""
    verdicts = (forbidden(tx, known, phone_number), _trunk_room(tx, known), _pace(tx, known))
    return next((ruling for ruling in verdicts if ruling.rule is not None), GO)


def take_place(tx: Tx, *, company_id: str, trunk_id: str = "") -> None:
    """Reserves a place for a call that the server does not dial: an inbound one, or a web call (which has no
    trunk). Holds the company's row until the call is written. Raises `RuleBroken` where company or trunk is
    full."""
    lock_company(tx, company_id)
    ruling = room(tx, facts(tx, company_id=company_id, trunk_id=trunk_id, agent_id=""))
    if ruling.rule is not None:
        raise RuleBroken(ruling.reason, rule=ruling.rule)


def _many(row: Row | None) -> int:
    many: int = row["many"] if row is not None else 0
    return many


def _pace(tx: Tx, known: Facts) -> Ruling:
    if not known.calls_per_second:
        return GO
    recent: Sequence[Row] = tx.rows(_TRUNK_RECENT, trunk_id=known.trunk_id, most=known.calls_per_second)
    if len(recent) < known.calls_per_second:
        return GO
    free_ms = max(recent[-1]["at_ms"] + 1000, known.now_ms + 1)
    return Ruling(Rule.TRUNK_RATE, "The trunk is at its limit of calls per second", free_ms)
