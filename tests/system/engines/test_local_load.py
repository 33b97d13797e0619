"""Thirty people at once on the engines by pip, whose recogniser hangs and dies meanwhile: a real server and
callers over SIP and RTP. That nobody is left in silence, not how fast it is: that is `bench call`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.call import local
from bench.call.caller import Mode
from bench.call.generator import Generator, Job, talk
from bench.call.processes import ServerUnderTest, serving, usage_by_module
from bench.support.processes import children, module_of
from pipeline.engines.local_weights import PIPER, WHISPER
from tests.support.paths import ROOT
from tests.support.speech.local_speech import needs

CALLERS = 30
TALK_S = 30.0
PATIENCE_S = 12.0
"""Far more than the two seconds after which a caller hears a filler: a machine may have other work."""

GROWTH_MB = 300
LIMIT_S = 60


def decoder(server: ServerUnderTest) -> int | None:
    """The process id of the server's recogniser."""
    started = children(server.process.pid)
    return next((child for child in started if module_of(child).endswith("whisper.process")), None)


async def another(server: ServerUnderTest, before: int) -> int:
    """The process that was started in the place of one."""
    async with asyncio.timeout(LIMIT_S):
        while (found := decoder(server)) in (None, before):
            await asyncio.sleep(0.1)
    assert found is not None
    return found


def thirty_callers(server: ServerUnderTest, begun: Callable[[], object]) -> dict[str, Any]:
    job = Job(
        server=server.address,
        called=local.NUMBER,
        first_number=14_155_570_000,
        calls=CALLERS,
        seconds=TALK_S,
        mode=Mode.PEOPLE.value,
        patience_s=PATIENCE_S,
    )
    begun()
    with closing(Generator(job)) as generator:
        return talk(generator)


@pytest.mark.nightly("ci")
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_thirty_callers_are_never_left_in_silence_while_the_recogniser_hangs_and_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(WHISPER)
    needs(PIPER)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    with serving(tmp_path, local.agents(threads=2)) as server:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        first = decoder(server)
        assert first is not None
        before = server.usage().rss
        calls = asyncio.create_task(
            asyncio.to_thread(thirty_callers, server, lambda: loop.call_soon_threadsafe(begun.set))
        )
        await begun.wait()
        await asyncio.sleep(8)
        os.kill(first, signal.SIGSTOP)
        second = await another(server, first)
        await asyncio.sleep(3)
        os.kill(second, signal.SIGSEGV)
        third = await another(server, second)
        result = await calls
        grown_mb = (server.usage().rss - before) >> 20
        programs = usage_by_module(server.process.pid)
        metrics, told = server.get("/metrics"), list(server.reports(CALLERS))
        assert decoder(server) == third
        log = server.log.read_text()
    check(result, told)
    assert {"whisper.process", "onnx.process"} <= set(programs)
    assert grown_mb < GROWTH_MB
    assert log.count("recogniser process hangs and is killed") == 1
    # One line for the first; one for the second, unless it died before it was ready.
    assert log.count("recogniser process ended, started again") in (1, 2)
    assert "Traceback" not in log
    failures = re.search(r'engine_failures_total{engine="faster-whisper",kind="stt"} (\S+)', metrics)
    assert failures is not None
    assert float(failures[1]) >= 1


def check(result: dict[str, Any], told: list[dict[str, Any]]) -> None:
    """Everybody was up to the end, was answered, and waited for no answer in vain; some were understood."""
    calls = result["calls"]
    assert result["up"] == CALLERS
    assert [call["missed"] for call in calls] == [0] * CALLERS
    assert all(call["turns"] for call in calls)
    assert len(told) == CALLERS
    texts = [line["text"] for call in told for line in call["transcript"] if line["role"] == "agent"]
    assert any(text.startswith("You said: ") for text in texts)
