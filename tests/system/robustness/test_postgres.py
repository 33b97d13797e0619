"""The PostgreSQL driver: what is acknowledged is there, what fails is whole, an outage is only an outage."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from bench.support.cluster import FASTER, Cluster
from mediaserver.db.database import SCHEMA, Tx, migrations, open_database
from mediaserver.db.postgres import Postgres, translated
from mediaserver.errors import LocalError, StoreError, StoreUnavailable
from tests.support.node.postgres import shared


@pytest.fixture
def url() -> Iterator[str]:
    made = shared().new_database(migrated=False)
    yield made
    shared().drop(made)


@pytest.fixture
async def db(url: str) -> AsyncIterator[Postgres]:
    opened = await Postgres.open(url, connections=4)
    await opened.write(create)
    yield opened
    await opened.close()


def create(tx: Tx) -> None:
    tx.run("CREATE TABLE t (id {serial}, word TEXT NOT NULL UNIQUE, at_ms BIGINT NOT NULL)")


def words(tx: Tx) -> list[str]:
    return [row["word"] for row in tx.rows("SELECT word FROM t ORDER BY id")]


def add(tx: Tx, word: str) -> int:
    return tx.run("INSERT INTO t (word, at_ms) VALUES (:word, {now})", word=word)


async def test_work_that_fails_leaves_nothing_and_hurts_nobody(db: Postgres) -> None:
    def half(tx: Tx) -> None:
        add(tx, "half")
        raise KeyError("half way")

    results = await asyncio.gather(
        db.write(lambda tx: add(tx, "one")),
        db.write(half),
        db.write(lambda tx: tx.run("INSERT INTO nowhere VALUES (1)")),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [int, KeyError, LocalError]
    with pytest.raises(LocalError, match="refused the work: duplicate key"):
        await db.write(lambda tx: add(tx, "one"))
    assert await db.read(words) == ["one"]


async def test_a_reader_cannot_write_and_sees_one_state(db: Postgres) -> None:
    with pytest.raises(StoreError, match="may not be written"):
        await db.read(lambda tx: add(tx, "no"))
    started, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def twice(tx: Tx) -> tuple[list[str], list[str]]:
        first = words(tx)
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)
        return first, words(tx)

    reading = asyncio.ensure_future(db.read(twice))
    await started.wait()
    await db.write(lambda tx: add(tx, "meanwhile"))
    go_on.set()
    assert await reading == ([], [])
    assert await db.read(words) == ["meanwhile"]


async def test_the_clock_is_the_servers_unless_another_is_given(url: str) -> None:
    for clock, expected in ((lambda: 12345, 12345), (None, time.time() * 1000)):
        db = await Postgres.open(url, clock=clock)
        (row,) = await db.read(lambda tx: tx.rows("SELECT {now} AS at_ms"))
        assert row["at_ms"] == pytest.approx(expected, abs=60_000 if clock is None else 0)
        await db.close()


async def test_those_who_wait_for_each_other_both_get_through(db: Postgres) -> None:
    """A deadlock: the server undoes one of the two, and it is run again."""
    await db.write(lambda tx: (add(tx, "a"), add(tx, "b")))
    runs: list[str] = []
    each_has_one = threading.Barrier(2, timeout=30)

    def both(first: str, second: str) -> Callable[[Tx], None]:
        def work(tx: Tx) -> None:
            runs.append(first)
            tx.run("UPDATE t SET at_ms = at_ms + 1 WHERE word = :word", word=first)
            if runs.count(first) == 1:
                each_has_one.wait()
            tx.run("UPDATE t SET at_ms = at_ms + 1 WHERE word = :word", word=second)

        return work

    before = await db.read(lambda tx: [row["at_ms"] for row in tx.rows("SELECT at_ms FROM t ORDER BY id")])
    await asyncio.gather(db.write(both("a", "b")), db.write(both("b", "a")))
    after = await db.read(lambda tx: [row["at_ms"] for row in tx.rows("SELECT at_ms FROM t ORDER BY id")])
    assert after == [before[0] + 2, before[1] + 2]
    assert len(runs) == 3


async def test_a_transaction_that_stands_still_lets_go_of_its_locks(db: Postgres) -> None:
    """A node that was stopped in the middle of its work (SIGSTOP, a frozen virtual machine)."""
    await db.write(lambda tx: add(tx, "a"))
    held = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped(tx: Tx) -> None:
        tx.rows("SET LOCAL idle_in_transaction_session_timeout = '100ms'")
        tx.run("UPDATE t SET at_ms = 1 WHERE word = 'a'")
        loop.call_soon_threadsafe(held.set)
        time.sleep(0.5)
        tx.run("UPDATE t SET at_ms = 2 WHERE word = 'a'")

    frozen = asyncio.ensure_future(db.write(stopped))
    await held.wait()
    async with asyncio.timeout(10):
        await db.write(lambda tx: tx.run("UPDATE t SET at_ms = 3 WHERE word = 'a'"))
    with pytest.raises(StoreUnavailable):
        await frozen
    assert await db.read(lambda tx: [row["at_ms"] for row in tx.rows("SELECT at_ms FROM t")]) == [3]


async def test_nodes_that_start_together_migrate_once(url: str) -> None:
    nodes = await asyncio.gather(*[open_database(url, SCHEMA) for _ in range(4)])
    versions = await nodes[0].read(
        lambda tx: [row["version"] for row in tx.rows("SELECT version FROM schema_version ORDER BY version")]
    )
    assert versions == [number for number, _, _ in migrations(SCHEMA)]
    for node in nodes:
        await node.close()


async def test_a_server_that_is_not_there_is_said_so_without_the_password() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await Postgres.open("postgresql://somebody:secret@127.0.0.1:1/calls")
    assert str(caught.value).startswith("postgresql://127.0.0.1:1/calls is away: ")
    assert "secret" not in str(caught.value)


async def test_a_database_that_is_not_there_is_an_error(url: str) -> None:
    missing = url.replace("postgresql:///t", "postgresql:///missing")
    with pytest.raises(StoreError, match="does not exist"):
        await Postgres.open(missing)


async def test_a_closed_database_says_so_and_closes_twice(url: str) -> None:
    db = await Postgres.open(url)
    await db.close()
    await db.close()
    with pytest.raises(StoreUnavailable, match="is closed"):
        await db.write(create)


async def test_a_server_that_crashes_and_comes_back_has_what_it_acknowledged() -> None:
    cluster = Cluster(**FASTER)
    try:
        db = await Postgres.open(cluster.new_database(migrated=False))
        await db.write(create)
        await db.write(lambda tx: add(tx, "before"))
        await asyncio.to_thread(cluster.crash)
        with pytest.raises(StoreUnavailable, match="is away"):
            await db.write(lambda tx: add(tx, "lost"))
        await asyncio.to_thread(cluster.start)
        await db.write(lambda tx: add(tx, "after"))
        assert await db.read(words) == ["before", "after"]
        await db.close()
    finally:
        await asyncio.to_thread(cluster.remove)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT :a, :a_1 FROM t", b"SELECT %(a)s, %(a_1)s FROM t"),
        ("SELECT x::text FROM t WHERE y LIKE '%'", b"SELECT x::text FROM t WHERE y LIKE '%%'"),
        ("SELECT {now} {lock}", b"SELECT NOW FOR NO KEY UPDATE"),
        ("UPDATE t SET at = '12:30'", b"UPDATE t SET at = '12:30'"),
    ],
)
def test_statements_are_put_into_the_drivers_spelling(sql: str, expected: bytes) -> None:
    assert translated(sql, "NOW") == expected
