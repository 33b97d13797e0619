"""Erases calls: what is personal in the rows of a call, its events and their deliveries, and its recording.

What stays of a call is its id, its times, its causes and its agent: bills and statistics go on adding up. The
erasure itself stays as a row, the proof of it. A call that is not over is erased when it is; a recording lies
on the disk of one node, which removes it (`mediaserver.node.retention`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import uuid4

from mediaserver.db.database import PAGE_LIMIT, Page, Row, Tx, among, page_of, read_row
from mediaserver.errors import Conflict, NotFound
from mediaserver.queue import search
from mediaserver.queue.cancel import request_hangup
from mediaserver.queue.personal_data.holds import HELD
from mediaserver.queue.records import Stage
from mediaserver.queue.rules import erased_contact

UNDER_HOLD = "It is under a legal hold"

_ABOUT = """
SELECT c.id, c.stage, c.company_id FROM calls c
WHERE c.company_id = :company_id AND c.erased_at_ms = 0 AND (
    c.id = :call_id OR c.phone_number IN (NUMBERS)
    OR (c.direction = 'outbound' AND c.dial_number IN (NUMBERS))
)
ORDER BY c.position {lock}
"""

_ERASURE = """
INSERT INTO erasures (id, company_id, fingerprint, key_id, created_at_ms)
VALUES (:id, :company_id, :fingerprint, :key_id, {now})
"""

_WAITING = f"""
SELECT DISTINCT c.id, c.position, c.company_id FROM erased_calls e JOIN calls c ON c.id = e.call_id
WHERE e.erased_at_ms = 0 AND c.stage = 'FINISHED' AND NOT {HELD} ORDER BY c.position LIMIT :limit
"""

# Whoever still held the call as UNKNOWN holds it no more, and writes nothing to it.
_CLEAR = """
UPDATE calls SET phone_number = '', dial_number = '', variables = '{}', metadata = '{}', transcript = '[]',
    turns = '[]', analysis = '{}', sip = '{}', error = '',
    recording_path = '', recording_url = '', recording_node = '',
    transcript_kept = 0, signalling_kept = 0, erased_at_ms = {now}, owner = '', epoch = epoch + 1
WHERE id = :id AND stage = 'FINISHED'
"""

_CLEAR_ATTEMPTS = (
    "UPDATE attempts SET dial_number = '', phone_number = '', sip_call_id = '' WHERE call_id = :id"
)

_CONTACTS = """
SELECT a.company_id, a.phone_number, a.started_at_ms FROM attempts a JOIN companies c ON c.id = a.company_id
WHERE a.call_id = :id AND a.phone_number <> '' AND a.cause <> 'not_dialled' AND c.contact_calls > 0
    AND a.started_at_ms > {now} - c.contact_minutes * 60000
"""

_KEEP_CONTACT = """
INSERT INTO erased_contacts (company_id, fingerprint, at_ms) VALUES (:company_id, :fingerprint, :at_ms)
"""

_FORGET_CONTACTS = """
DELETE FROM erased_contacts WHERE at_ms <= {now} - 60000 * COALESCE((
    SELECT c.contact_minutes FROM companies c WHERE c.id = erased_contacts.company_id AND c.contact_calls > 0
), 0)
"""

MAY_HAVE_LEFT_A_FILE = (
    "c.recording_path = '' AND c.owner <> '' AND (c.status = 'UNKNOWN' OR c.cause = 'server_error')"
)
"""Condition on the calls `c` whose node did not write how they ended: a recording may lie on its disk."""

_REMOVE_FILE = f"""
INSERT INTO file_removals (call_id, node_url, owner, reason, created_at_ms)
SELECT c.id, c.recording_node, c.owner, :reason, {{now}} FROM calls c
WHERE c.id = :id AND (c.recording_path <> '' OR ({MAY_HAVE_LEFT_A_FILE}))
ON CONFLICT (call_id) DO UPDATE SET removed_at_ms = 0, node_url = excluded.node_url, owner = excluded.owner
"""

_ERASED = """
UPDATE erased_calls SET erased_at_ms = {now}, events = :events WHERE call_id = :id AND erased_at_ms = 0
"""

_LOG = """
DELETE FROM delivery_attempts WHERE delivery_id IN (SELECT d.id FROM deliveries d WHERE d.call_id = :id)
"""

_LIST = """
SELECT e.id, e.fingerprint, e.key_id, e.created_at_ms, e.position,
    COUNT(k.call_id) AS calls,
    COALESCE(SUM(k.events), 0) AS events,
    COALESCE(SUM(CASE WHEN k.call_id IS NOT NULL AND k.erased_at_ms = 0 THEN 1 ELSE 0 END), 0) AS open_calls,
    COALESCE(SUM(CASE WHEN f.call_id IS NOT NULL AND f.reason = 'erasure' THEN 1 ELSE 0 END), 0) AS files,
    COALESCE(SUM(CASE WHEN f.removed_at_ms = 0 THEN 1 ELSE 0 END), 0) AS open_files,
    COALESCE(MAX(k.erased_at_ms), 0) AS erased_at_ms,
    COALESCE(MAX(f.removed_at_ms), 0) AS removed_at_ms
FROM erasures e
LEFT JOIN erased_calls k ON k.erasure_id = e.id
LEFT JOIN file_removals f ON f.call_id = k.call_id
WHERE e.company_id = :company_id AND (:id = '' OR e.id = :id)
    AND (:fingerprint = '' OR e.fingerprint = :fingerprint) AND (:before = 0 OR e.position < :before)
GROUP BY e.id, e.fingerprint, e.key_id, e.created_at_ms, e.position ORDER BY e.position DESC LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is to be erased: a call, or everything with one of `numbers`, spellings of one number whose
    `fingerprint` stays as the proof."""

    call_id: str = ""
    numbers: tuple[str, ...] = ()
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """An erasure: what it took away, and what of it still waits. `ended_at_ms` 0: something does."""

    id: str
    fingerprint: str
    key_id: str
    created_at_ms: int
    calls: int
    events: int
    files: int
    open_calls: int
    open_files: int
    ended_at_ms: int


def about(tx: Tx, company_id: str, subject: Subject) -> Sequence[Row]:
    """Returns id and stage of the calls that are about a subject, and locks them."""
    names = {f"number_{place}": number for place, number in enumerate(subject.numbers)}
    sql = _ABOUT.replace("NUMBERS", ", ".join(f":{name}" for name in names) or "NULL")
    return tx.rows(sql, company_id=company_id, call_id=subject.call_id, **names)


def erase(tx: Tx, company_id: str, subject: Subject, *, key_id: str) -> Erasure:
    """Erases what there is of a subject. A call in the queue is cancelled first; one in progress is erased
    when it is over. Raises `NotFound` for an unknown call, and `Conflict` under a legal hold."""
    found = about(tx, company_id=company_id, subject=subject)
    if subject.call_id and not found:
        raise NotFound("Call not found")
    ids = [row["id"] for row in found]
    _check_no_hold(tx, company_id, subject, ids)
    erasure_id = f"era_{uuid4().hex}"
    tx.run(_ERASURE, id=erasure_id, company_id=company_id, fingerprint=subject.fingerprint, key_id=key_id)
    for row in found:
        tx.run(
            "INSERT INTO erased_calls (erasure_id, call_id) VALUES (:erasure_id, :call_id)",
            erasure_id=erasure_id,
            call_id=row["id"],
        )
        if row["stage"] in (Stage.QUEUED, Stage.HELD, Stage.CLAIMED):
            request_hangup(tx, company_id, row["id"])
        _erase_call(tx, row["id"])
    if subject.numbers:
        named, bound = among("user_ref", subject.numbers)
        tx.run(f"DELETE FROM web_rooms WHERE company_id = :company_id{named}", company_id=company_id, **bound)
    return find(tx, company_id, erasure_id=erasure_id).items[0]


def erase_ended(tx: Tx, *, limit: int = PAGE_LIMIT) -> int:
    """Erases calls that had not ended when their erasure was asked for; returns how many. Forgets attempts
    of erased calls that the contact limit counts no more."""
    tx.run(_FORGET_CONTACTS)
    return sum(_erase_call(tx, row["id"]) for row in tx.rows(_WAITING, limit=limit))


def find(
    tx: Tx, company_id: str, *, erasure_id: str = "", fingerprint: str = "", before: int = 0, limit: int = 50
) -> Page[Erasure]:
    """Returns the company's erasures, newest first: all, one, or those of a number."""
    rows = tx.rows(
        _LIST,
        company_id=company_id,
        id=erasure_id,
        fingerprint=fingerprint,
        before=before,
        limit=min(limit, PAGE_LIMIT) + 1,
    )
    return page_of(rows, limit, _erasure)


def clear_events(tx: Tx, call_ids: Collection[str]) -> int:
    """Takes the content of all events of calls away, and their deliveries; returns how many events."""
    count = 0
    for call_id in call_ids:
        tx.run(_LOG, id=call_id)
        tx.run("DELETE FROM deliveries WHERE call_id = :id", id=call_id)
        count += tx.run("UPDATE outbox SET body = '' WHERE call_id = :id AND body <> ''", id=call_id)
    return count


def remove_file(tx: Tx, call_id: str, *, reason: str) -> bool:
    """Asks the node that has the recording of a call to remove it. False: the call has none."""
    return tx.run(_REMOVE_FILE, id=call_id, reason=reason) > 0


def _erase_call(tx: Tx, call_id: str) -> bool:
    remove_file(tx, call_id, reason="erasure")
    if not tx.run(_CLEAR, id=call_id):
        return False
    _keep_contacts(tx, call_id)
    tx.run(_CLEAR_ATTEMPTS, id=call_id)
    tx.run("DELETE FROM decisions WHERE call_id = :id", id=call_id)
    tx.run("DELETE FROM call_traces WHERE call_id = :id", id=call_id)
    search.forget(tx, call_id)
    tx.run("DELETE FROM web_rooms WHERE name = :id", id=call_id)
    events = clear_events(tx, (call_id,))
    tx.run(_ERASED, id=call_id, events=events)
    return True


def _keep_contacts(tx: Tx, call_id: str) -> None:
    """Keeps when a number was dialled, and of the number what nobody can read: without it the person would be
    called again within the time that the contact limit gives them."""
    for row in tx.rows(_CONTACTS, id=call_id):
        tx.run(
            _KEEP_CONTACT,
            company_id=row["company_id"],
            fingerprint=erased_contact(tx, row["company_id"], row["phone_number"]),
            at_ms=row["started_at_ms"],
        )


def _check_no_hold(tx: Tx, company_id: str, subject: Subject, ids: Sequence[str]) -> None:
    named, bound = among("c.id", ids)
    held = bool(ids) and tx.row(f"SELECT c.id FROM calls c WHERE {HELD}{named}", **bound) is not None
    numbers, values = among("phone_number", subject.numbers)
    if subject.numbers and not held:
        sql = f"SELECT id FROM holds WHERE company_id = :company_id{numbers}"
        held = tx.row(sql, company_id=company_id, **values) is not None
    if held:
        raise Conflict(UNDER_HOLD)


def _erasure(row: Row) -> Erasure:
    done = row["open_calls"] == 0 and row["open_files"] == 0
    ended_at_ms = max(row["created_at_ms"], row["erased_at_ms"], row["removed_at_ms"]) if done else 0
    return read_row(Erasure, row, ended_at_ms=ended_at_ms)
