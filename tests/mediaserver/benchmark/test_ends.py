"""What ends a benchmark before its time, and what does not."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from aiohttp import ClientSession, ClientTimeout, web

from mediaserver.benchmark import command
from mediaserver.benchmark.calls import CallPlan, PlacedCalls, Record
from mediaserver.benchmark.command import Interruption
from mediaserver.benchmark.target import target
from mediaserver.local_node import process, wait_ready
from sip.trunk import Trunk

PARENT = """
import subprocess, sys, os, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
print(child.pid, flush=True)
time.sleep(60)
"""
CHILD = """
import sys, time
from mediaserver.benchmark.own_node import end_with
assert end_with(int(sys.argv[1]))
print("bound", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2)")
async def test_the_node_ends_with_a_killed_bench() -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT, CHILD), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(30):
        child = int(await parent.stdout.readline())
        assert await parent.stdout.readline() == b"bound\n"
        assert os.getsid(child) == child  # the terminal's signals do not reach it
        parent.kill()
        assert await parent.stdout.read() == b""  # nobody has the pipe any more
        await parent.wait()


async def test_a_call_that_breaks_off_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(trunk: Trunk, user: str, **_: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(Trunk, "call", breaks)
    told: list[Record] = []
    plan = CallPlan(target=await target("sip:bob@127.0.0.1:9"), calls=2, rate_per_s=20.0)
    run = await PlacedCalls(plan, [], stop=asyncio.Event(), told=told.append).have()
    assert [record.cause for record in told] == ["ValueError: broken"] * 2
    assert run.faults == [f"call {number} broke off: ValueError: broken" for number in (1, 2)]


async def test_a_terminal_that_is_gone_does_not_keep_calls_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(click, "echo", gone)
    whole = asyncio.current_task()
    assert whole is not None
    interruption = Interruption(whole)
    interruption.calling = True
    interruption.asked()
    assert interruption.stop.is_set()
    command._progress(Record(1, 0.0))


async def test_a_node_too_busy_to_answer_once_is_asked_again(tmp_path: Path) -> None:
    asked = 0

    async def readyz(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked == 1:
            await asyncio.sleep(30)
        return web.Response()

    application = web.Application()
    application.router.add_get("/readyz", readyz)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with (
            process("http.server", "--bind", "127.0.0.1", "0", log=tmp_path / "log") as server,
            ClientSession(f"http://127.0.0.1:{port}", timeout=ClientTimeout(total=0.2)) as api,
        ):
            await wait_ready(api, server, tmp_path / "log")
    finally:
        await runner.cleanup()
    assert asked == 2
