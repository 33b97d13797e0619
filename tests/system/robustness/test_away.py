"""The database away, or the disk full, while calls come in: they are answered, and what they came to is told.

PostgreSQL is a server of the test's own, killed or stopped; the disk is a file system of its own, filled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import wave
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.support.cluster import Cluster
from mediaserver.calls import inbound
from tests.support.hostile.trap import Trap
from tests.support.node.node import (
    ASKING_NUMBER,
    DATABASES,
    KEY,
    NUMBER,
    OUTBOUND,
    REAL_ENGINES,
    ServerProcess,
    Site,
    asking_agent,
    database_on,
    rows_of,
    running,
    server_of,
    write_site,
)
from tests.support.node.small_disk import fill, small_disk
from tests.support.sip.raw_call import RawCall
from tests.support.udp import bound
from tests.support.waiting import until

pytestmark = pytest.mark.peer

AT_ONCE = 6
FRONT_DESK = "+14155550101"
MANAGED_NUMBER = "+14155550107"
SOON_S = 4.0
"""Six at five seconds each would be half a minute."""


def site_on(cluster: Cluster, folder: Path, **changes: Any) -> Site:
    more = asking_agent("Who are you?")
    return write_site(folder, database=cluster.url("calls"), more=more, **changes)


def stop(cluster: Cluster) -> Callable[[], None]:
    """Stops every process of the server; what is returned lets them go on."""
    stopped = cluster.processes()

    def tell(number: int) -> None:
        for pid in stopped:
            os.kill(pid, number)

    tell(signal.SIGSTOP)
    return lambda: tell(signal.SIGCONT)


def crash(cluster: Cluster) -> Callable[[], None]:
    cluster.crash()
    return cluster.start


# The database -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("away", [crash, pytest.param(stop, marks=pytest.mark.nightly("ci"))])
async def test_calls_that_come_in_without_a_database_are_answered_at_once_and_written_later(
    cluster: Cluster, tmp_path: Path, away: Callable[[Cluster], Callable[[], None]]
) -> None:
    site = site_on(cluster, tmp_path, engines=REAL_ENGINES)
    async with server_of(site) as server:
        bring_back = await asyncio.to_thread(away, cluster)
        began = time.time()
        took = await asyncio.gather(*(answered_and_ended(site) for _ in range(AT_ONCE)))
        assert max(took) < SOON_S
        await until(lambda: "database" in str(server.get("/readyz")), 40)
        await asyncio.to_thread(bring_back)
        sql = "SELECT status, created_at_ms, answered_at_ms, ended_at_ms FROM calls WHERE stage = 'FINISHED'"
        async with asyncio.timeout(60):
            while len(rows := await rows_of(site, sql)) < AT_ONCE:
                await asyncio.sleep(0.2)
        for row in rows:
            assert row["status"] == "COMPLETED"
            assert began * 1000 - 1 <= row["created_at_ms"] <= row["answered_at_ms"] < row["ended_at_ms"]
            assert row["answered_at_ms"] < (began + 2 * SOON_S) * 1000  # when it was, not when it was written
        kinds = await rows_of(site, "SELECT kind FROM outbox ORDER BY call_id, sequence")
        told = [row["kind"] for row in kinds]
        assert told.count("call.ringing") == told.count("call.completed") == AT_ONCE
        assert told[:2] == ["call.ringing", "call.answered"]


async def answered_and_ended(site: Site) -> float:
    """How long the caller waited for an answer."""
    async with RawCall(site.sip, ASKING_NUMBER) as call:
        asked = time.monotonic()
        await call.answered()
        took = time.monotonic() - asked
        await asyncio.sleep(0.5)
        await call.hang_up()
        return took


async def status_of(site: Site, number: str) -> int:
    """What a caller is answered."""
    async with RawCall(site.sip, number) as call:
        call.invite()
        response = await call.final()
        if response.status == 200:
            call.take_answer(response)
            call.send(call.request("ACK", cseq=1))
            await call.hang_up()
        return response.status


@pytest.mark.nightly("ci")
async def test_what_the_database_last_said_counts_for_a_quarter_of_an_hour(
    cluster: Cluster, tmp_path: Path
) -> None:
    site = site_on(cluster, tmp_path)
    script = {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]}
    agent = {"name": "Made", "direction": "inbound", "trunk": "carrier", "phone_number": MANAGED_NUMBER}
    engines = {"stt": {"engine": "test-ears"}, "tts": {"engine": "test-voice"}}
    async with running(site) as (server, _):
        made = "0d0c1a34-6f3e-4f0e-9a63-0d8f2f0f7a77"
        document = {**agent, **engines, "script": script}
        await server.administration.save_agent("acme", made, document, trusted=True, new=True)
        bring_back = await asyncio.to_thread(crash, cluster)
        assert await status_of(site, MANAGED_NUMBER) == 200
        server.directory.confirmed_at -= inbound.KNOWN_S + 60
        assert await status_of(site, MANAGED_NUMBER) == 503
        assert await status_of(site, FRONT_DESK) == 200  # the file's
        await asyncio.to_thread(bring_back)


@pytest.mark.nightly("ci")
async def test_a_company_has_no_more_calls_for_want_of_a_database(cluster: Cluster, tmp_path: Path) -> None:
    site = site_on(cluster, tmp_path)
    site.path.write_text(
        site.path.read_text().replace('name = "Acme"', 'name = "Acme"\nmax_concurrent_calls = 2', 1)
    )
    async with running(site):
        bring_back = await asyncio.to_thread(crash, cluster)
        async with RawCall(site.sip, ASKING_NUMBER) as one, RawCall(site.sip, ASKING_NUMBER) as two:
            await one.answered()
            await two.answered()
            assert await status_of(site, ASKING_NUMBER) == 503
            await one.hang_up()
            await two.hang_up()
        await asyncio.to_thread(bring_back)


@pytest.mark.nightly("ci")
@pytest.mark.parametrize("away", [crash, stop])
async def test_what_could_not_be_written_at_the_end_is_told(
    cluster: Cluster, tmp_path: Path, away: Callable[[Cluster], Callable[[], None]]
) -> None:
    site = site_on(cluster, tmp_path, engines=REAL_ENGINES)
    async with server_of(site) as server:
        bring_back = await asyncio.to_thread(away, cluster)
        await answered_and_ended(site)
        assert await asyncio.to_thread(server.stop, signal_number=signal.SIGTERM, timeout_s=60) == 0
        said = server.log.read_text()
        assert "call events lost" in said
        assert "Traceback" not in said.partition("call events lost")[2]
        await asyncio.to_thread(bring_back)


# The disk ---------------------------------------------------------------------------------------------------


@pytest.mark.nightly("ci")
@pytest.mark.parametrize("database", DATABASES)
async def test_a_call_whose_disk_fills_keeps_what_was_recorded(tmp_path: Path, database: str) -> None:
    """With SQLite, the database is on the same disk, and what the call came to is written when there is room
    again; with PostgreSQL there never is."""
    with ExitStack() as stack:
        url = stack.enter_context(database_on(database))
        site = write_site(tmp_path, engines=REAL_ENGINES, database=url, more=asking_agent("Who are you?"))
        disk = stack.enter_context(small_disk(site.data_dir, 16))
        async with server_of(site) as server:
            async with RawCall(site.sip, ASKING_NUMBER) as call:
                await call.answered()
                await call.hum(440, 5.0)
                filler = await asyncio.to_thread(fill, disk)
                await until(lambda: "disk" in str(server.get("/readyz")))
                assert server.get("/readyz")[0] == 503
                await call.hum(440, 3.0)
                await call.hang_up()
            if not url:
                filler.unlink()
            report = await ended(server)
            (fault,) = [each for each in report["analysis"]["faults"] if each["role"] == "recording"]
            assert "No space left" in fault["message"]
            assert 'mediaserver_engine_errors_total{kind="recording"} 1.0' in server.get("/metrics")[1]
            recording = f"{site.data_dir}/recordings/{report['callTaskId']}.wav"
            with wave.open(recording) as file:
                assert file.getnframes() / file.getframerate() > 2.5  # two seconds wait for their block
                assert any(file.readframes(file.getnframes()))
            events = await rows_of(site, "SELECT kind, body FROM outbox")
            assert any(row["kind"] == "recording.completed" for row in events)
            assert any("No space left" in row["body"] for row in events)
            filler.unlink(missing_ok=True)
            await until(lambda: server.get("/readyz")[0] == 200)


async def test_nobody_is_dialled_while_the_disk_takes_no_note_of_it(cluster: Cluster, tmp_path: Path) -> None:
    site = site_on(cluster, tmp_path, engines=REAL_ENGINES)
    with small_disk(site.data_dir, 16) as disk:
        async with bound(Trap(), port=site.carrier) as trap, server_of(site) as server:
            filler = await asyncio.to_thread(fill, disk)
            for path in (site.data_dir / "dialled").glob("*.log"):
                path.unlink()
            body = {"agentId": OUTBOUND, "phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}
            assert server.ask("POST", "/api/v1/calls/outbound", body, KEY)[0] == 200
            await until(lambda: "cannot be noted" in server.log.read_text())
            await asyncio.sleep(3)
            assert not trap.invites
            attempts = await rows_of(site, "SELECT cause FROM attempts")
            assert attempts == [{"cause": "not_dialled"}]  # and is not tried over and over
            filler.unlink()
            await until(lambda: trap.invites)
            await asyncio.sleep(1)
            assert len(trap.invites[NUMBER]) == 1


async def ended(server: ServerProcess) -> dict[str, Any]:
    async with asyncio.timeout(40):
        while True:
            calls = server.get("/api/v1/calls", KEY)[1]["calls"]
            if calls and calls[0]["endedAt"]:
                report: dict[str, Any] = server.get(f"/api/v1/calls/{calls[0]['callTaskId']}", KEY)[1]
                return report
            await asyncio.sleep(0.2)
