"""A copy that is made while calls are up, and put back: nobody is dialled twice, what waits goes on."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from mediaserver.queue.records import NewCall
from mediaserver.settings import load
from mediaserver.store.store import Store
from sip.call import Call
from sip.states import CallState
from tests.support.node.forked import run_forked
from tests.support.node.node import (
    KEY,
    OUTBOUND,
    REAL_ENGINES,
    ServerProcess,
    Site,
    database_on,
    rows_of,
    server_of,
    write_site,
)
from tests.support.sip.carrier import Carrier, carrier
from tests.support.waiting import until

pytestmark = pytest.mark.peer

UP = [f"+1415555{place:04d}" for place in range(3)]
SINCE = [f"+1415555{place:04d}" for place in (7001, 7002)]
AFTER, LATER = "+14155558000", "+14155559999"


async def answers(call: Call) -> None:
    await call.answer()
    await call.ended()


async def queue_for_later(site: Site) -> None:
    call = NewCall(
        company_id="acme",
        agent_id=OUTBOUND,
        trunk_id="carrier",
        phone_number=LATER,
        dial_number=LATER,
        webhook_id="wh",
        variables={"name": "Bo"},
        not_before_ms=int(time.time() * 1000) + 3_600_000,
    )
    async with await Store.open(site.database, site.data_dir) as store:
        await store.sync_file(load(site.path))
        await store.enqueue(call)


async def typed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(run_forked, *arguments)


async def place(server: ServerProcess, side: Carrier, *numbers: str) -> None:
    """Places calls, and waits until the carrier has them."""
    for number in numbers:
        body = {"agentId": OUTBOUND, "phoneNumber": number, "promptVariables": {"name": "Bo"}}
        assert (await asyncio.to_thread(server.ask, "POST", "/api/v1/calls/outbound", body, KEY))[0] == 200
    await until(lambda: set(numbers) <= dialled(side).keys(), 60)


def dialled(side: Carrier) -> Counter[str]:
    return Counter(call.local_number for call in side.calls)


async def statuses(site: Site) -> dict[str, str]:
    rows = await rows_of(site, "SELECT phone_number, status FROM calls")
    return {row["phone_number"]: row["status"] for row in rows}


@pytest.mark.nightly("ci")
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_a_copy_made_under_running_calls_and_put_back(tmp_path: Path, engine: str) -> None:
    with database_on(engine) as database:
        site, copy = write_site(tmp_path, engines=REAL_ENGINES, database=database), tmp_path / "copy"
        await queue_for_later(site)
        async with carrier(site, answers) as side:
            async with server_of(site) as server:
                await place(server, side, *UP)
                await until(lambda: all(call.state is CallState.ANSWERED for call in side.calls), 30)
                done = await typed("backup", "--config", site.path, "--to", copy, "--recordings")
                assert (done.returncode, done.stderr) == (0, "")
                assert [call.state for call in side.calls] == [CallState.ANSWERED] * len(UP)
                if engine == "sqlite":
                    done = await typed("restore", "--config", site.path, "--from", copy, "--yes")
                    assert (done.returncode, "a server has it open" in done.stderr) == (1, True)
                await place(server, side, *SINCE)
                server.stop(signal_number=signal.SIGKILL)
            done = await typed("restore", "--config", site.path, "--from", copy, "--yes")
            assert (done.returncode, done.stderr) == (0, "")
            assert "UNKNOWN" not in done.stdout  # the node's notes are there
            async with server_of(site) as server:
                await place(server, side, AFTER)
                async with asyncio.timeout(60):
                    while {(await statuses(site))[number] for number in UP} != {"UNKNOWN"}:
                        await asyncio.sleep(0.2)
                assert (await statuses(site))[LATER] == "PENDING"
                assert server.stop(signal_number=signal.SIGINT, timeout_s=30) == 0
            assert dialled(side) == Counter([*UP, *SINCE, AFTER])


async def test_a_copy_put_back_where_the_notes_are_lost_leaves_nobody_due(tmp_path: Path) -> None:
    site, copy = write_site(tmp_path, engines=REAL_ENGINES), tmp_path / "copy"
    async with await Store.open("", site.data_dir) as store:
        await store.sync_file(load(site.path))
        due = NewCall(
            company_id="acme",
            agent_id=OUTBOUND,
            trunk_id="carrier",
            phone_number=UP[0],
            dial_number=UP[0],
            webhook_id="wh",
        )
        await store.enqueue(due)
    assert (await typed("backup", "--config", site.path, "--to", copy)).returncode == 0
    done = await typed("restore", "--config", site.path, "--from", copy, "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 calls are UNKNOWN now")
    assert await statuses(site) == {UP[0]: "UNKNOWN"}
