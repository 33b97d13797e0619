"""The whole demo: a server and a softphone in processes of their own, faster-whisper at both ends."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from mediaserver.demo.stage import demo_config

LIMIT_S = 150

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(2 * LIMIT_S + 30)]


async def demo(directory: Path, kernels: Path) -> tuple[int, str]:
    """Its exit status and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mediaserver", "demo", "--exit",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(directory), "NUMBA_CACHE_DIR": str(kernels), "COLUMNS": "200"},
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        printed, _ = await process.communicate()
        return -1, printed.decode()
    return process.returncode or 0, printed.decode()


async def test_two_machines_talk_and_understand_each_other(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every answer that matters is understood, somebody is interrupted, and few words are misheard. The
    conversation is in real time: a machine that was too busy for one has a second chance."""
    agent = tomllib.loads(demo_config().read_text())["agent"][0]
    assert agent["stt"]["engine"] == "faster-whisper"
    for _ in range(2):
        status, printed = await demo(tmp_path, tmp_path_factory.getbasetemp() / "kernels")
        if status == 0:
            break
    assert status == 0, printed
    rates = [int(rate) for rate in re.findall(r"\((\d+) %\)", printed)]
    assert len(rates) == 2
    assert max(rates) <= 20
    assert "5550142" in printed
    assert "next friday morning" in printed
    assert "(interrupted)" in printed
