"""Recovers from a database that lost rows: one restored from a copy, or a standby promoted before it had
everything.

What the database lost may have been dialled, so no call is claimed from it before every node has compared its
own notes (`mediaserver.restore.dial_log`) with it. Two things show that the database may have lost something.
The engine has another identity than the one in which the database was last found complete (`{identity}`:
another system, another timeline after a recovery or a promotion, tables made anew by a dump). Or a node
misses what it knows to have been written.

Either raises the generation; a node that has compared its notes joins the new one. A call that was dialled
and lost is UNKNOWN from then on, and no machine dials it again. All functions run inside one transaction of
the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain

from mediaserver.db.database import Row, Tx, among
from mediaserver.errors import StoreError
from mediaserver.queue.finish import end
from mediaserver.queue.records import CallStatus, Outcome

RESTORED = "database_restored"
"""The cause of a call that was dialled, or may have been, according to notes outside of the database."""

GONE_MS = 600_000
"""A node that has been silent for so long, twenty leases, wrote nothing that this database lacks."""

_STANDING = """
SELECT h.generation, h.identity, {identity} AS found FROM history h WHERE h.id = 1
"""

_BEHIND = """
SELECT n.id FROM nodes n JOIN history h ON h.id = 1 WHERE n.generation <> h.generation ORDER BY n.id
"""

_LIST = """
INSERT INTO nodes (id, generation, seen_at_ms) VALUES (:id, :generation, {now})
ON CONFLICT (id) DO UPDATE SET generation = excluded.generation, seen_at_ms = excluded.seen_at_ms
"""

_MENTION = """
INSERT INTO nodes (id, generation, seen_at_ms) VALUES (:id, 0, {now}) ON CONFLICT (id) DO NOTHING
"""

_SEEN = "UPDATE nodes SET seen_at_ms = {now} WHERE id = :id"

_FORGET_GONE = """
DELETE FROM nodes WHERE seen_at_ms < {now} - :gone_ms AND generation = (SELECT generation FROM history)
"""

_LEAVE = """
DELETE FROM nodes WHERE id = :id AND generation = (
    SELECT generation FROM history WHERE id = 1 AND identity = {identity}
)
"""

_CALL = """
SELECT id, stage, company_id, trunk_id, phone_number, dial_number FROM calls WHERE id = :id {lock}
"""

_ATTEMPT = """
INSERT INTO attempts (call_id, number, epoch, node, trunk_id, dial_number, sip_call_id, status, cause,
    started_at_ms, ended_at_ms, company_id, phone_number)
SELECT :id, COALESCE(MAX(number), 0) + 1, :epoch, :node, :trunk_id, :dial_number, '', 'UNKNOWN', :cause,
    :at_ms, {now}, :company_id, :phone_number
FROM attempts WHERE call_id = :id
"""

# The node that dialled the call may still hold it, and know its outcome (`mediaserver.queue.finish`).
_HAND_BACK = """
UPDATE calls SET owner = :node, epoch = CASE WHEN epoch > :epoch THEN epoch ELSE :epoch END WHERE id = :id
"""

_DUE = """
SELECT id FROM calls
WHERE stage = 'QUEUED' AND trunk_id IN (SELECT t.id FROM trunks t) AND not_before_ms <= {now}
LIMIT :limit {lock}
"""

_PAUSED = """
SELECT id FROM calls WHERE batch_id IN (SELECT b.id FROM batches b WHERE b.status = 'PAUSED')
    AND batch_id <> '' AND stage = 'HELD' AND not_before_ms <= {now}
LIMIT :limit {lock}
"""

_CLAIMED = "SELECT id FROM calls WHERE stage = 'CLAIMED' AND lease_until_ms >= 0 LIMIT :limit {lock}"

_ARMED = """
SELECT id FROM calls WHERE stage = 'ARMED' AND lease_until_ms >= 0 AND direction = 'outbound'
LIMIT :limit {lock}
"""

_LAST = "SELECT position, event_id FROM outbox WHERE position = (SELECT MAX(position) FROM outbox)"


class HistoryChanged(StoreError):
    """The database may lack what nodes did: no call is claimed before every node has compared its notes."""


@dataclass(frozen=True, slots=True)
class Note:
    """A node's own note that it dialled a call, and under which claim."""

    call_id: str
    epoch: int
    node: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The database's generation and the identity in which it was last complete; `found`: the identity of its
    engine now."""

    generation: int
    identity: str
    found: str


@dataclass(frozen=True, slots=True)
class Witness:
    """An event that was in the database, and its position."""

    position: int
    event_id: str


@dataclass(frozen=True, slots=True)
class Recalled:
    """Calls of which attempts were restored (`marked`), and calls that the database has no row of
    (`gone`)."""

    marked: tuple[str, ...]
    gone: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Present:
    """What a node reads with each look: whether it is listed, the listed nodes, and the last event."""

    listed: bool
    nodes: tuple[str, ...]
    witness: Witness | None


def check(tx: Tx) -> None:
    """Raises `HistoryChanged` while the database may lack what nodes did."""
    if why := _doubtful(tx):
        raise HistoryChanged(why)


def whole(tx: Tx) -> bool:
    """Whether the database has everything that nodes did, so that `check` passes."""
    return not _doubtful(tx)


def _doubtful(tx: Tx) -> str:
    """Why the database may lack what nodes did, "" where it does not."""
    row = standing(tx)
    if row.identity != row.found:
        return "the database was restored or promoted"
    waits = behind(tx)
    return f"the database was restored or promoted: waits for {', '.join(waits)}" if waits else ""


def standing(tx: Tx) -> Standing:
    """Reads the database's generation and identity."""
    row = _one(tx.row(_STANDING))
    return Standing(row["generation"], row["identity"], row["found"])


def behind(tx: Tx) -> list[str]:
    """Returns the nodes that have not compared their notes with this generation."""
    return [row["id"] for row in tx.rows(_BEHIND)]


def holds(tx: Tx, witness: Witness) -> bool:
    """Whether the database still has the event `witness`."""
    sql = "SELECT event_id FROM outbox WHERE position = :position"
    row = tx.row(sql, position=witness.position)
    return row is not None and row["event_id"] == witness.event_id


def forgotten(tx: Tx, notes: Sequence[Note]) -> list[Note]:
    """Returns those of `notes` that the database has no attempt for."""
    named, bound = among("call_id", {note.call_id for note in notes})
    rows = tx.rows(f"SELECT call_id, epoch, node FROM attempts WHERE 1 = 1{named}", **bound) if notes else ()
    known = {(row["call_id"], row["epoch"], row["node"]) for row in rows}
    return [note for note in notes if (note.call_id, note.epoch, note.node) not in known]


def recall(tx: Tx, notes: Sequence[Note]) -> Recalled:
    """Writes the attempts in `notes` that the database lacks. A call that is not over becomes UNKNOWN."""
    marked, gone = [], []
    for note in sorted(forgotten(tx, notes=notes), key=lambda note: (note.call_id, note.epoch)):
        row = tx.row(_CALL, id=note.call_id)
        if row is None:
            gone.append(note.call_id)
            continue
        marked.append(note.call_id)
        _mark(tx, note, row)
    return Recalled(tuple(marked), tuple(gone))


def _mark(tx: Tx, note: Note, call: Row) -> None:
    tx.run(
        _ATTEMPT,
        id=note.call_id,
        epoch=note.epoch,
        node=note.node,
        trunk_id=call["trunk_id"],
        dial_number=call["dial_number"],
        cause=RESTORED,
        at_ms=note.at_ms,
        company_id=call["company_id"],
        phone_number=call["phone_number"],
    )
    if call["stage"] in ("QUEUED", "HELD", "CLAIMED"):
        tx.run(_HAND_BACK, id=note.call_id, epoch=note.epoch, node=note.node)
        end(tx, note.call_id, Outcome(status=CallStatus.UNKNOWN, cause=RESTORED))


def join(tx: Tx, node_id: str, *, compared: Standing, lost: bool, others: Collection[str]) -> bool:
    """Lists a node that has compared its notes with the database in the state `compared`. False: the state
    has changed since. `lost`: something was missing, so that the other nodes have to compare their notes too,
    the `others` that this node knows among them."""
    tx.rows("SELECT id FROM history WHERE id = 1 {lock}")
    now = standing(tx)
    if now != compared:
        return False
    mine = tx.row("SELECT generation FROM nodes WHERE id = :id", id=node_id)
    known = mine is None or mine["generation"] == now.generation
    generation = now.generation
    if now.identity != now.found or (lost and known):
        generation += 1
        tx.run(
            "UPDATE history SET generation = :to, identity = :found WHERE id = 1",
            to=generation,
            found=now.found,
        )
    for other in sorted(others) if lost else ():
        tx.run(_MENTION, id=other)
    tx.run(_LIST, id=node_id, generation=generation)
    return True


def look(tx: Tx, node_id: str) -> Present:
    """Notes that a node is present; returns what the node should remember of the database."""
    listed = tx.run(_SEEN, id=node_id) > 0
    tx.run(_FORGET_GONE, gone_ms=GONE_MS)
    nodes = tuple(row["id"] for row in tx.rows("SELECT id FROM nodes ORDER BY id"))
    row = tx.row(_LAST)
    witness = Witness(row["position"], row["event_id"]) if row is not None else None
    return Present(listed, nodes, witness)


def leave(tx: Tx, node_id: str) -> None:
    """Takes a node off the list that ends in order: everything that it dialled is written."""
    tx.run(_LEAVE, id=node_id)


def doubt(tx: Tx, *, limit: int) -> int:
    """Ends up to `limit` calls UNKNOWN for `mediaserver.store.store.Store.doubt`, and returns how many; 0
    when none is left, with the generation raised and every node off the list."""
    statements = (_DUE, _PAUSED, _CLAIMED, _ARMED)
    rows = list(chain.from_iterable(tx.rows(statement, limit=limit) for statement in statements))
    for row in rows:
        end(tx, row["id"], Outcome(status=CallStatus.UNKNOWN, cause=RESTORED))
    if not rows:
        tx.run("UPDATE history SET generation = generation + 1, identity = {identity} WHERE id = 1")
        tx.run("DELETE FROM nodes")
    return len(rows)


def _one(row: Row | None) -> Row:
    if row is None:
        raise StoreError("the database has no history")
    return row
