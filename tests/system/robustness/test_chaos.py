"""Nobody is dialled twice and nothing is lost, whatever is killed, stopped or unplugged, and whenever.

`CHAOS_S` says for how many seconds of it on each engine (a minute by default). A machine on which too little
has happened by then goes on, for five times as long at most: how fast it is must not decide.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.support.cluster import Cluster
from mediaserver.store.store import Store
from tests.support.node.chaos import WAITING, Chaos, prepared
from tests.support.node.chaos_node import PLACES
from tests.support.node.store import ENGINES, open_at

CHAOS_S = float(os.environ.get("CHAOS_S", "60"))

LIMIT_S = 5 * CHAOS_S + 120
KILLS, STOPS, CALLS = CHAOS_S / 10, CHAOS_S / 30, CHAOS_S * 10
"""What is enough: a fraction of what happens on a quiet machine."""

DATABASE_AWAY_S = 1.0

pytestmark = [pytest.mark.nightly("ci", "chaos"), pytest.mark.slow, pytest.mark.timeout(2 * LIMIT_S)]


@dataclass
class Place:
    """A database for several processes, and how to take it away for a while, where that can be done."""

    url: str
    crash: Callable[[], None] | None


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield Place(f"sqlite:///{tmp_path}/test.db", None)
        return
    cluster = Cluster()

    def crash() -> None:
        cluster.crash()
        time.sleep(DATABASE_AWAY_S)
        cluster.start()

    try:
        yield Place(cluster.new_database(migrated=False), crash)
    finally:
        cluster.remove()


async def rows(url: str, sql: str) -> list[dict[str, Any]]:
    db = await open_at(url)
    try:
        return await db.read(lambda tx: [as_dict(row) for row in tx.rows(sql)])
    finally:
        await db.close()


def as_dict(row: Any) -> dict[str, Any]:
    return dict(row)


async def check_nobody_was_dialled_twice(chaos: Chaos, url: str) -> None:
    dialled = chaos.dialled()
    assert [call_id for call_id, times in dialled.items() if times > 1] == []
    calls = await rows(url, "SELECT id, status, stage, cause FROM calls")
    assert len(calls) == chaos.story.queued
    assert {call["stage"] for call in calls} == {"FINISHED"}
    completed = {call["id"] for call in calls if call["status"] == "COMPLETED"}
    assert completed <= set(dialled)
    failed = [call for call in calls if call["status"] not in ("COMPLETED", "UNKNOWN")]
    assert {call["cause"] for call in failed} <= {"not_dialled"}
    assert not {call["id"] for call in failed} & set(dialled)
    assert len(completed) > 0.5 * len(calls)


UNKNOWN = """
SELECT node, COUNT(*) AS calls FROM attempts WHERE status = 'UNKNOWN' GROUP BY node
"""

GAPS = """
SELECT call_id FROM outbox GROUP BY call_id HAVING COUNT(*) <> MAX(sequence) OR MIN(sequence) <> 1
"""


async def check_only_killed_nodes_left_unknown_calls(chaos: Chaos, url: str) -> None:
    """And each no more of them than it had at once."""
    left = {row["node"]: row["calls"] for row in await rows(url, UNKNOWN)}
    assert left.keys() <= chaos.story.killed
    assert max(left.values(), default=0) <= PLACES
    assert await rows(url, "SELECT call_id FROM attempts WHERE ended_at_ms = 0") == []


async def check_events_are_in_order(url: str) -> None:
    assert await rows(url, GAPS) == []
    assert await rows(url, "SELECT id FROM batches WHERE status <> 'COMPLETED' OR open <> 0") == []


async def test_nobody_is_dialled_twice_and_nothing_is_lost(place: Place, tmp_path: Path) -> None:
    chaos = Chaos(place.url, tmp_path, crash=place.crash)
    store: Store = await prepared(place.url)

    soonest = time.monotonic() + CHAOS_S

    def enough_happened() -> bool:
        if time.monotonic() < soonest:
            return False
        story = chaos.story
        return story.kills > KILLS and story.stops > STOPS and len(chaos.dialled()) > CALLS

    try:
        await chaos.run(store, until=enough_happened, limit_s=LIMIT_S)
    finally:
        await store.close()
    assert chaos.story.died == []
    await check_nobody_was_dialled_twice(chaos, place.url)
    await check_only_killed_nodes_left_unknown_calls(chaos, place.url)
    await check_events_are_in_order(place.url)


def stop(nodes: list[int], url: str) -> None:
    """Stops processes while none of them holds SQLite's lock, which would keep it from all others."""
    for _ in range(50):
        for pid in nodes:
            os.kill(pid, signal.SIGSTOP)
        if not url.startswith("sqlite:///") or is_writable(url.removeprefix("sqlite:///")):
            return
        for pid in nodes:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.02)
    raise AssertionError("the database is never free")


def is_writable(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=0.2)) as database:
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
    return True


async def test_nodes_that_were_stopped_tell_what_became_of_their_calls(place: Place, tmp_path: Path) -> None:
    """Their leases are over and the third node has ended all else before they go on."""
    chaos = Chaos(place.url, tmp_path)
    store = await prepared(place.url)
    stopped: list[int] = []
    overdue: list[dict[str, Any]] = []

    def stops_two() -> bool:
        if len(chaos.dialled()) > WAITING:
            stopped.extend(chaos.living()[:2])
            stop(stopped, place.url)
        return bool(stopped)

    async def go_on() -> None:
        while not stopped or any((await store.counts()).stages.values()):
            await asyncio.sleep(0.1)
        overdue.extend(await rows(place.url, UNKNOWN))
        await asyncio.sleep(1.0)  # a run that waits for open calls only has ended by now
        for pid in set(stopped) & set(chaos.living()):
            os.kill(pid, signal.SIGCONT)

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(go_on())
            await chaos.run(store, until=stops_two, limit_s=LIMIT_S)
    finally:
        await store.close()
    assert {row["node"] for row in overdue} - chaos.story.killed
    await check_nobody_was_dialled_twice(chaos, place.url)
    await check_only_killed_nodes_left_unknown_calls(chaos, place.url)


async def test_a_queue_that_does_not_arm_is_convicted(place: Place, tmp_path: Path) -> None:
    """The negative control: the same without arming must show people who were called twice."""
    chaos = Chaos(place.url, tmp_path, arming=False)
    store = await prepared(place.url)

    def somebody_called_twice() -> bool:
        return any(times > 1 for times in chaos.dialled().values())

    try:
        await chaos.run(store, until=somebody_called_twice, limit_s=LIMIT_S, drained=False)
    finally:
        await store.close()
