"""Whoever reads what the server writes may stop reading: calls go on, and what was lost is told."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mediaserver.demo.run import Screen
from mediaserver.telemetry import logging as logs
from mediaserver.telemetry.line_writer import LineWriter
from tests.support.kept_logging import kept_logging
from tests.support.node.node import REAL_ENGINES, ServerProcess, serving, write_site
from tests.support.node.stalling import StallingPipe, packets_heard
from tests.support.sip.raw_call import RawCall
from tests.system.robustness.test_hostile import LONG, STORYTELLER, TELLS

SECONDS = 2.0
MOST = 0.8  # of the packets that a call sends in a time; a busy machine is allowed to lose some


@pytest.fixture
def pipe() -> Iterator[StallingPipe]:
    pipe = StallingPipe()
    yield pipe
    pipe.close()


@pytest.fixture
def server(tmp_path: Path, pipe: StallingPipe) -> Iterator[ServerProcess]:
    site = write_site(tmp_path, engines=REAL_ENGINES, more=TELLS.replace("STORY", LONG))
    with serving(site, output=pipe.output) as server:
        yield server


@pytest.mark.nightly("ci")
@pytest.mark.peer
async def test_a_log_that_nobody_reads_holds_up_no_call(server: ServerProcess, pipe: StallingPipe) -> None:
    await pipe.wait_for("server ready", patience_s=90)
    async with RawCall(server.site.sip, STORYTELLER) as call:
        await call.answered()
        await call.sound()
        pipe.stall()
        async with RawCall(server.site.sip, STORYTELLER) as other:
            await other.answered()
            await other.hang_up()  # "call ended" is written
        assert await packets_heard(call, SECONDS) > MOST * 50 * SECONDS
        assert (await asyncio.to_thread(server.get, "/healthz"))[0] == 200
        _, figures = await asyncio.to_thread(server.get, "/metrics")
        assert re.search(r"^mediaserver_log_lines_lost_total 0\.0$", figures, re.MULTILINE)
        assert "call ended" not in pipe.text
        await pipe.wait_for("call ended")
        await call.hang_up()


@pytest.mark.nightly("ci")
@pytest.mark.peer
async def test_a_log_that_nobody_reads_holds_up_no_exit(server: ServerProcess, pipe: StallingPipe) -> None:
    await pipe.wait_for("server ready", patience_s=90)
    pipe.stall()
    status = await asyncio.to_thread(server.stop, signal_number=signal.SIGTERM, timeout_s=15)
    assert status == 0
    assert "server stopped" not in pipe.read()


async def test_a_demo_whose_screen_stands_still_goes_on(pipe: StallingPipe) -> None:
    screen = Screen(pipe.output)
    pipe.stall()
    async with asyncio.timeout(10):
        await asyncio.to_thread(screen.webhook, {"type": "call.ringing"})
        await asyncio.to_thread(screen.webhook, {"type": "call.answered"})
    await pipe.wait_for("call.answered")
    screen.output.close()
    assert pipe.read() == "call.ringing\ncall.answered\n"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger of ours."""
    with kept_logging():
        yield logging.getLogger("mediaserver.test")


async def test_lines_that_do_not_fit_are_counted_and_told(pipe: StallingPipe, log: logging.Logger) -> None:
    writer = logs.configure(fd=pipe.output)
    pipe.stall()
    for number in range(20_000):
        log.info("line", extra={"number_of_it": number})
    lost = writer.lost
    assert 0 < lost < 20_000
    await pipe.wait_for("log lines lost")
    log.info("after")
    await pipe.wait_for("after")
    lines = [json.loads(line) for line in pipe.text.splitlines()]
    told = [line for line in lines if line["message"] == "log lines lost"]
    assert [line["lines"] for line in told] == [lost]
    written = [line["number_of_it"] for line in lines if line["message"] == "line"]
    assert written == list(range(20_000 - lost))
    assert lines[-1]["message"] == "after"
    assert writer.close()


def test_a_descriptor_that_refuses_is_counted() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(full, told="{} lost".format)
    writer.write("a")
    writer.write("b")
    assert writer.close()
    assert writer.lost == 2
    os.close(full)


def test_a_descriptor_that_somebody_made_non_blocking_is_waited_for(pipe: StallingPipe) -> None:
    writer = LineWriter(pipe.output, told="{} lost".format)
    pipe.stall()
    os.set_blocking(pipe.output, False)
    writer.write("a")
    assert not writer.close(0.1)
    pipe.read()
    assert writer.close()
    assert pipe.read() == "a\n"
    assert writer.lost == 0


def test_a_field_that_cannot_be_written_costs_its_line_only(pipe: StallingPipe, log: logging.Logger) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("odd")

    writer = logs.configure(fd=pipe.output)
    log.info("one", extra={"odd": Odd()})
    log.info("two")
    assert writer.close()
    assert [json.loads(line)["message"] for line in pipe.read().splitlines()] == [
        "line cannot be written",
        "two",
    ]
