"""A database that was put back from a copy, or a standby that lacks the last second: nobody is dialled twice.

The servers are processes of their own; the carrier is a bare socket that notes every INVITE.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.support.cluster import FASTER, Cluster, Standby
from mediaserver.queue.records import NewCall
from mediaserver.settings import load
from mediaserver.store.store import Store
from tests.support.hostile.trap import Trap
from tests.support.node.forked import run_forked
from tests.support.node.node import (
    KEY,
    OUTBOUND,
    REAL_ENGINES,
    ServerProcess,
    Site,
    rows_of,
    server_of,
    serving,
    write_site,
)
from tests.support.node.nodes import write_nodes
from tests.support.udp import bound
from tests.support.waiting import until

pytestmark = pytest.mark.peer

CALLS = 20
NUMBERS = [f"+1415555{place:04d}" for place in range(CALLS)]
LATER = "+14155559999"
DUE_S = 6.0
"""When calls are due that nobody is to dial before the copy is made."""


async def ended(*servers: ServerProcess) -> None:
    for server in servers:
        assert await asyncio.to_thread(server.stop, signal_number=signal.SIGTERM, timeout_s=30) == 0


def call_to(number: str, *, due_ms: int) -> NewCall:
    return NewCall(
        company_id="acme",
        agent_id=OUTBOUND,
        trunk_id="carrier",
        phone_number=number,
        dial_number=number,
        webhook_id="wh",
        variables={"name": "Bo"},
        not_before_ms=due_ms,
    )


async def fill_queue(site: Site, *, due_ms: int = 0) -> None:
    """Twenty calls that are due, and one that is due in an hour."""
    async with await Store.open(site.database, data_of(site)) as store:
        await store.sync_file(load(site.path))
        for number in NUMBERS:
            await store.enqueue(call_to(number, due_ms=due_ms))
        await store.enqueue(call_to(LATER, due_ms=now_ms() + 3_600_000))


def data_of(site: Site) -> Path:
    """Where its data is, as seen from here."""
    return site.path.parent / load(site.path).server.data_dir


def now_ms() -> int:
    return int(time.time() * 1000)


async def all_dialled(trap: Trap) -> None:
    await until(lambda: all(number in trap.invites for number in NUMBERS), 60)


def check_nobody_twice(trap: Trap) -> None:
    """One INVITE for everybody, of which all the others are repetitions."""
    assert {number: len(trap.invites[number]) for number in NUMBERS} == dict.fromkeys(NUMBERS, 1)


async def statuses(site: Site) -> dict[str, tuple[str, str]]:
    rows = await rows_of(site, "SELECT phone_number, status, cause FROM calls")
    return {row["phone_number"]: (row["status"], row["cause"]) for row in rows}


async def check_they_are_unknown(site: Site, trap: Trap) -> None:
    """Those that were dialled are UNKNOWN, the one that was not waits, and new ones are dialled."""
    async with asyncio.timeout(60):
        while ("PENDING", "") in [each for number, each in (await statuses(site)).items() if number != LATER]:
            await asyncio.sleep(0.2)
    check_nobody_twice(trap)
    expected = dict.fromkeys(NUMBERS, ("UNKNOWN", "database_restored"))
    assert await statuses(site) == {**expected, LATER: ("PENDING", "")}


async def check_new_calls_are_dialled(server: ServerProcess, trap: Trap) -> None:
    await until(lambda: server.get("/readyz")[0] == 200)
    body = {"agentId": OUTBOUND, "phoneNumber": "+14155557777", "promptVariables": {"name": "Bo"}}
    assert server.ask("POST", "/api/v1/calls/outbound", body, KEY)[0] == 200
    await until(lambda: "+14155557777" in trap.invites)
    check_nobody_twice(trap)


# SQLite -----------------------------------------------------------------------------------------------------


def copy_database(source: Path, target: Path) -> None:
    for path in target.glob("mediaserver.db*"):
        path.unlink()
    for path in source.glob("mediaserver.db*"):
        shutil.copy2(path, target)


@pytest.mark.nightly("ci")
async def test_a_copy_of_the_file_put_back_redials_nobody(tmp_path: Path) -> None:
    site, copy = write_site(tmp_path, engines=REAL_ENGINES), tmp_path / "copy"
    copy.mkdir()
    await fill_queue(site)
    copy_database(site.data_dir, copy)
    async with bound(Trap(), port=site.carrier) as trap:
        async with server_of(site, cwd=site.path.parent) as server:
            await all_dialled(trap)
            await ended(server)
        for _ in range(2):  # the same copy once more
            copy_database(copy, site.data_dir)
            async with server_of(site, cwd=site.path.parent) as server:
                await asyncio.sleep(3)
                await check_they_are_unknown(site, trap)
                await check_new_calls_are_dialled(server, trap)
                await ended(server)
            trap.invites.pop("+14155557777")


async def test_after_restore_nobody_is_dialled_whom_a_lost_node_may_have(tmp_path: Path) -> None:
    """The copy is of the whole data directory, the notes of the node among it."""
    site, copy = write_site(tmp_path, engines=REAL_ENGINES), tmp_path / "copy"
    await fill_queue(site)
    shutil.copytree(site.data_dir, copy)
    async with bound(Trap(), port=site.carrier) as trap:
        async with server_of(site, cwd=site.path.parent) as server:
            await all_dialled(trap)
            await ended(server)
        shutil.rmtree(site.data_dir)
        copy.rename(site.data_dir)
        done = await asyncio.to_thread(run_forked, "restore", "--config", site.path, "--yes")
        assert (done.returncode, done.stdout) == (0, f"{CALLS} calls are UNKNOWN now\n")
        async with server_of(site, cwd=site.path.parent) as server:
            await asyncio.sleep(3)
            await check_they_are_unknown(site, trap)
            await check_new_calls_are_dialled(server, trap)


# PostgreSQL -------------------------------------------------------------------------------------------------


@pytest.mark.nightly("ci")
async def test_a_cold_copy_of_a_server_put_back_redials_nobody(cluster: Cluster, tmp_path: Path) -> None:
    """Same system, same timeline, same tables: only the node can tell."""
    site = write_site(tmp_path, engines=REAL_ENGINES, database=cluster.url("calls"))
    await fill_queue(site)
    data, copy = cluster.folder / "data", cluster.folder / "copy"
    await asyncio.to_thread(cluster.stop)
    await asyncio.to_thread(subprocess.check_call, ["cp", "-a", str(data), str(copy)])
    await asyncio.to_thread(cluster.start)
    async with bound(Trap(), port=site.carrier) as trap:
        async with server_of(site, cwd=site.path.parent) as server:
            await all_dialled(trap)
            await ended(server)
        await asyncio.to_thread(cluster.stop)
        await asyncio.to_thread(shutil.rmtree, data)
        copy.rename(data)
        await asyncio.to_thread(cluster.start)
        async with server_of(site, cwd=site.path.parent) as server:
            await asyncio.sleep(3)
            await check_they_are_unknown(site, trap)
            await check_new_calls_are_dialled(server, trap)


async def nodes_started(stack: AsyncExitStack, sites: Sequence[Site]) -> list[ServerProcess]:
    return [await stack.enter_async_context(server_of(site, cwd=site.path.parent)) for site in sites]


async def both_listed(site: Site) -> None:
    async with asyncio.timeout(30):
        while (await rows_of(site, "SELECT COUNT(*) AS many FROM nodes"))[0]["many"] < 2:
            await asyncio.sleep(0.2)


@pytest.mark.nightly("ci")
async def test_a_dump_read_back_waits_for_the_notes_of_every_node(cluster: Cluster, tmp_path: Path) -> None:
    sites = write_nodes(tmp_path, cluster.url("calls"))
    dump = str(cluster.folder / "dump")
    connection = ("-h", str(cluster.folder), "-U", "tests", "-d", "calls")
    async with bound(Trap(), port=sites[0].carrier) as trap:
        async with AsyncExitStack() as stack:
            servers = await nodes_started(stack, sites)
            await both_listed(sites[0])
            await fill_queue(sites[0], due_ms=now_ms() + int(DUE_S * 1000))
            await asyncio.to_thread(cluster.run, "pg_dump", "-Fc", "-f", dump, *connection)
            assert not trap.invites
            await all_dialled(trap)
            await ended(*servers)
        await asyncio.to_thread(cluster.run, "pg_restore", "--clean", *connection, dump)
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(waiting(sites[0]))
            await asyncio.sleep(3)
            check_nobody_twice(trap)
            second = await stack.enter_async_context(waiting(sites[1]))
            await check_they_are_unknown(sites[0], trap)
            await check_new_calls_are_dialled(first, trap)
            await until(lambda: second.get("/readyz")[0] == 200)


@asynccontextmanager
async def waiting(site: Site) -> AsyncIterator[ServerProcess]:
    """A server that is up and says why it does not dial, or is ready."""
    with serving(site, cwd=site.path.parent) as server:
        await until(lambda: is_up(server.get("/readyz")), 180)
        yield server


def is_up(readiness: tuple[int, Any]) -> bool:
    status, said = readiness
    return status == 200 or (status == 503 and "waits for" in str(said["missing"]))


@pytest.mark.nightly("ci")
async def test_a_promoted_standby_that_lacks_the_last_seconds_redials_nobody(
    cluster: Cluster, tmp_path: Path
) -> None:
    standby = await asyncio.to_thread(Standby, cluster, **FASTER)
    try:
        await promoted_behind(cluster, standby, tmp_path)
    finally:
        standby.remove()


async def promoted_behind(cluster: Cluster, standby: Standby, folder: Path) -> None:
    hosts = f"{cluster.folder},{standby.folder}"
    url = f"postgresql:///calls?host={hosts}&user=tests&target_session_attrs=read-write"
    sites = write_nodes(folder, url)
    async with bound(Trap(), port=sites[0].carrier) as trap, AsyncExitStack() as stack:
        servers = await nodes_started(stack, sites)
        await both_listed(sites[0])
        await fill_queue(sites[0], due_ms=now_ms() + int(DUE_S * 1000))
        await asyncio.to_thread(cut_off, standby)
        assert not trap.invites
        await all_dialled(trap)
        await asyncio.to_thread(cluster.crash)
        await asyncio.to_thread(standby.promote)
        await check_they_are_unknown(sites[0], trap)
        await check_new_calls_are_dialled(servers[0], trap)


def cut_off(standby: Standby) -> None:
    """From now on the standby gets nothing more; it has the calls that are queued."""
    with psycopg.connect(standby.url("calls"), autocommit=True) as connection:
        deadline = time.monotonic() + 60
        while _count(connection, "SELECT COUNT(*) FROM calls") <= CALLS:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
        while _count(connection, "SELECT COUNT(*) FROM pg_stat_wal_receiver"):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def _count(connection: psycopg.Connection[Any], sql: str) -> int:
    row = connection.execute(sql.encode()).fetchone()
    return int(row[0]) if row is not None else 0
