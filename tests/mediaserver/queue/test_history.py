"""What a node notes beside the database, and what a database is told that has forgotten it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mediaserver.db.database import Tx
from mediaserver.queue import history
from mediaserver.queue.history import HistoryChanged
from mediaserver.queue.records import CallStatus, Claim, Outcome, Stage
from mediaserver.restore.dial_log import DialLog
from mediaserver.restore.recollection import Recollection
from mediaserver.store.store import Store
from tests.support.node.store import ENGINES, TTL_MS, Clock, new_call, on_engine, query, queued, record_of

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    with on_engine(request.param, tmp_path):
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def node(store: Store, folder: Path) -> Recollection:
    """A node with notes of its own."""
    recollection = Recollection(store, DialLog(folder))
    await recollection.open()
    return recollection


async def forget(store: Store, claim: Claim) -> None:
    """The database of before the claim, as a copy of it that is put back."""
    sql = "UPDATE calls SET stage = 'QUEUED', status = 'PENDING', owner = '', epoch = 0 WHERE id = :id"
    await store.db.write(lambda tx: tx.run("DELETE FROM attempts WHERE call_id = :id", id=claim.call_id))
    await store.db.write(lambda tx: tx.run(sql, id=claim.call_id))


async def elsewhere(store: Store) -> None:
    """The database is in another engine now than when it was last looked at."""
    await store.db.write(lambda tx: tx.run("UPDATE history SET identity = 'another'"))


def empty(tx: Tx, table: str) -> None:
    tx.run(f"DELETE FROM {table}")


async def dialled(store: Store, recollection: Recollection) -> Claim:
    (claim,) = await store.claim("node", 1, TTL_MS)
    assert await store.arm(claim, TTL_MS)
    await recollection.note(claim)
    return claim


async def test_what_was_dialled_and_forgotten_is_unknown_and_its_holder_may_know_more(
    store: Store, tmp_path: Path
) -> None:
    one = await node(store, tmp_path / "one")
    await one.compare()
    await queued(store, 2)
    claim = await dialled(store, one)
    await forget(store, claim)
    await one.compare()
    (other,) = await store.claim("node", 5, TTL_MS)
    assert other.call_id != claim.call_id
    record = await record_of(store, claim.call_id)
    assert (record.status, record.cause) == (CallStatus.UNKNOWN, history.RESTORED)
    assert [(each.node, each.cause) for each in record.attempts] == [("node", history.RESTORED)]
    assert await store.finish(claim, Outcome(status=CallStatus.COMPLETED, cause="normal"))
    record = await record_of(store, claim.call_id)
    assert record.status is CallStatus.COMPLETED
    await one.close()


async def test_nobody_takes_a_call_before_every_node_has_compared(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    one, two = await node(store, tmp_path / "one"), await node(store, tmp_path / "two")
    await one.compare()
    await two.compare()
    await queued(store, 3)
    claim = await dialled(store, one)
    (claimed,) = await store.claim("node", 1, TTL_MS)
    await forget(store, claim)
    await elsewhere(store)
    with pytest.raises(HistoryChanged, match="restored or promoted"):
        await store.claim("other", 5, TTL_MS)
    await two.compare()
    with pytest.raises(HistoryChanged, match="waits for"):
        await store.claim("other", 5, TTL_MS)
    clock.advance(TTL_MS + 1)
    assert (await store.reap_expired()).requeued == ()  # it may have been armed
    await one.compare()
    assert (await store.reap_expired()).requeued == (claimed.call_id,)
    assert claim.call_id not in {each.call_id for each in await store.claim("other", 5, TTL_MS)}
    await one.close()
    await two.close()


async def test_a_node_that_ended_in_order_is_not_waited_for(store: Store, tmp_path: Path) -> None:
    one, two = await node(store, tmp_path / "one"), await node(store, tmp_path / "two")
    await one.compare()
    await two.compare()
    await one.close()
    await elsewhere(store)
    await two.compare()
    assert await store.claim("node", 5, TTL_MS) == []
    await two.close()


async def test_a_node_that_is_lost_is_waited_for_until_somebody_says_otherwise(
    store: Store, tmp_path: Path, clock: Clock
) -> None:
    one, lost = await node(store, tmp_path / "one"), await node(store, tmp_path / "two")
    await one.compare()
    await lost.compare()
    due, *_ = await queued(store, 1)
    in_an_hour = clock.now_ms + history.GONE_MS * 6
    later = await store.enqueue(new_call("+966500000777", not_before_ms=in_an_hour))
    await elsewhere(store)
    await one.compare()
    clock.advance(history.GONE_MS * 2)
    await one.look()
    with pytest.raises(HistoryChanged, match="waits for"):
        await store.claim("node", 5, TTL_MS)
    clock.now_ms -= history.GONE_MS * 2
    assert await store.doubt() == 1
    await one.compare()
    assert await store.claim("node", 5, TTL_MS) == []
    stages = {each["id"]: each["stage"] for each in await query(tmp_path, "SELECT id, stage FROM calls")}
    assert stages == {due.id: Stage.FINISHED, later.id: Stage.QUEUED}
    await one.close()
    await lost.close()


async def test_a_node_that_dialled_nothing_knows_by_what_it_has_seen(store: Store, tmp_path: Path) -> None:
    """It has seen an event that is not there any more, so it waits for the node that it has seen too."""
    one, two = await node(store, tmp_path / "one"), await node(store, tmp_path / "two")
    await one.compare()
    await two.compare()
    await queued(store, 1)
    await two.look()
    for table in ("deliveries", "outbox", "nodes"):
        await store.db.write(partial(empty, table=table))
    await two.compare()
    with pytest.raises(HistoryChanged, match="waits for"):
        await store.claim("two", 5, TTL_MS)
    await one.compare()
    assert len(await store.claim("two", 5, TTL_MS)) == 1
    await one.close()
    await two.close()


async def test_calls_that_the_copy_never_had_are_told_once(store: Store, tmp_path: Path) -> None:
    one = await node(store, tmp_path / "one")
    await one.compare()
    await one.note(replace(await claimed(store), call_id="of-the-lost-days"))
    for generation in (2, 2):
        await one.compare()
        assert (await store.standing()).generation == generation
    await one.close()


async def claimed(store: Store) -> Claim:
    await queued(store, 1)
    (claim,) = await store.claim("node", 1, TTL_MS)
    return claim
