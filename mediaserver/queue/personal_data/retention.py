"""Takes away what was kept for as long as its company wants: recordings, transcripts, events, signalling.

Each function takes the oldest part, at most `AT_ONCE` calls or events in one transaction, and leaves what is
under a legal hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mediaserver.db.database import Row, Tx, read_row
from mediaserver.queue import search
from mediaserver.queue.personal_data.erasure import MAY_HAVE_LEFT_A_FILE, remove_file
from mediaserver.queue.personal_data.holds import HELD

AT_ONCE = 200
DAY_MS = 24 * 3600 * 1000


class Kept(StrEnum):
    """A kind of data that is kept for a time of its own."""

    RECORDINGS = "recordings"
    TRANSCRIPTS = "transcripts"
    EVENTS = "events"
    SIGNALLING = "signalling"


_ENDED = f"""
SELECT c.id FROM calls c
WHERE c.company_id = :company_id AND c.stage = 'FINISHED' AND c.ended_at_ms < {{now}} - :age_ms
    AND NOT {HELD} AND (CONDITION) ORDER BY c.ended_at_ms LIMIT :limit {{lock}}
"""

_EVENTS = f"""
SELECT o.position FROM outbox o JOIN calls c ON c.id = o.call_id
WHERE o.company_id = :company_id AND o.body <> '' AND o.created_at_ms < {{now}} - :age_ms AND NOT {HELD}
    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.outbox_position = o.position AND d.state = 'PENDING')
ORDER BY o.created_at_ms LIMIT :limit
"""

# A call that may have left a file is asked about once.
_RECORDED = f"""
c.recording_path <> '' OR ({MAY_HAVE_LEFT_A_FILE}
    AND NOT EXISTS (SELECT 1 FROM file_removals f WHERE f.call_id = c.id))
"""

_FORGET_FILE = "UPDATE calls SET recording_path = '', recording_url = '', recording_node = '' WHERE id = :id"

_FORGET_WORDS = """
UPDATE calls SET transcript = '[]', turns = '[]', analysis = '{}', variables = '{}', metadata = '{}',
    transcript_kept = 0
WHERE id = :id
"""

_REMOVALS = f"""
SELECT r.call_id, r.node_url, r.owner FROM file_removals r JOIN calls c ON c.id = r.call_id
WHERE r.removed_at_ms = 0 AND NOT {HELD} ORDER BY r.created_at_ms LIMIT :limit
"""

_REMOVED = """
UPDATE file_removals SET removed_at_ms = {now}, removed_by = :node
WHERE call_id = :call_id AND removed_at_ms = 0
"""


@dataclass(frozen=True, slots=True)
class Removal:
    """A recording to be removed. `node_url`: where the node that has it is reached; `owner`: the run of a
    node that held the call; "": not known."""

    call_id: str
    node_url: str
    owner: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """What erasures wait for: calls that are not over, and recordings that no node has removed."""

    calls: int
    files: int


def sweep(tx: Tx, company_id: str, kind: Kept, *, days: int) -> int:
    """Takes the oldest of what a company has kept for more than `days` days; returns how much."""
    return _SWEEPS[kind](tx, company_id, days * DAY_MS)


def removals(tx: Tx, *, limit: int = 10_000) -> list[Removal]:
    """Returns the recordings that are to be removed, the longest due first."""
    return [read_row(Removal, row) for row in tx.rows(_REMOVALS, limit=limit)]


def removed(tx: Tx, call_ids: Sequence[str], *, node: str) -> int:
    """Notes that `node` has removed recordings; returns how many that were due."""
    return sum(tx.run(_REMOVED, call_id=call_id, node=node) for call_id in call_ids)


def waiting(tx: Tx) -> Waiting:
    """Counts what erasures wait for, for metrics."""
    calls = tx.row("SELECT COUNT(*) AS many FROM erased_calls WHERE erased_at_ms = 0")
    files = tx.row("SELECT COUNT(*) AS many FROM file_removals WHERE removed_at_ms = 0")
    return Waiting(calls["many"] if calls is not None else 0, files["many"] if files is not None else 0)


def _ended(tx: Tx, company_id: str, age_ms: int, condition: str) -> list[str]:
    sql = _ENDED.replace("CONDITION", condition)
    return [row["id"] for row in tx.rows(sql, company_id=company_id, age_ms=age_ms, limit=AT_ONCE)]


def _recordings(tx: Tx, company_id: str, age_ms: int) -> int:
    ids = _ended(tx, company_id, age_ms, _RECORDED)
    for call_id in ids:
        remove_file(tx, call_id, reason="retention")
        tx.run(_FORGET_FILE, id=call_id)
    return len(ids)


def _transcripts(tx: Tx, company_id: str, age_ms: int) -> int:
    ids = _ended(tx, company_id, age_ms, "c.transcript_kept = 1")
    for call_id in ids:
        tx.run(_FORGET_WORDS, id=call_id)
        search.forget(tx, call_id)
    return len(ids)


def _signalling(tx: Tx, company_id: str, age_ms: int) -> int:
    ids = _ended(tx, company_id, age_ms, "c.signalling_kept = 1")
    for call_id in ids:
        tx.run("UPDATE attempts SET dial_number = '', sip_call_id = '' WHERE call_id = :id", id=call_id)
        tx.run("DELETE FROM call_traces WHERE call_id = :id", id=call_id)
        tx.run("UPDATE calls SET signalling_kept = 0, sip = '{}' WHERE id = :id", id=call_id)
        search.forget_shown_name(tx, call_id)
    return len(ids)


def _events(tx: Tx, company_id: str, age_ms: int) -> int:
    rows: Sequence[Row] = tx.rows(_EVENTS, company_id=company_id, age_ms=age_ms, limit=AT_ONCE)
    for row in rows:
        at = {"position": row["position"]}
        theirs = "SELECT d.id FROM deliveries d WHERE d.outbox_position = :position"
        tx.run(f"DELETE FROM delivery_attempts WHERE delivery_id IN ({theirs})", **at)
        tx.run("DELETE FROM deliveries WHERE outbox_position = :position", **at)
        tx.run("UPDATE outbox SET body = '' WHERE position = :position", **at)
    return len(rows)


_SWEEPS: Final[Mapping[Kept, Callable[[Tx, str, int], int]]] = {
    Kept.RECORDINGS: _recordings,
    Kept.TRANSCRIPTS: _transcripts,
    Kept.EVENTS: _events,
    Kept.SIGNALLING: _signalling,
}
