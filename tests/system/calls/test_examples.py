"""The examples do what they say: one calls the other."""

from __future__ import annotations

import asyncio
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_fits_on_a_page(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 40


async def test_a_call_is_placed_played_echoed_and_hung_up(tmp_path: Path) -> None:
    clip = tmp_path / "tone.wav"
    with wave.open(str(clip), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((np.sin(np.arange(16000) * 0.2) * 9000).astype(np.int16).tobytes())
    echo = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLES / "answer_and_echo.py", "127.0.0.1:0", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert echo.stdout is not None
        line = (await asyncio.wait_for(echo.stdout.readline(), 60)).decode()
        port = int("".join(filter(str.isdigit, line.rpartition(",")[2])))
        caller = await asyncio.create_subprocess_exec(
            sys.executable,
            EXAMPLES / "call_and_play.py",
            f"sip:127.0.0.1:{port}",
            "+15551234",
            clip,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(caller.communicate(), 60)
    finally:
        echo.terminate()
        await echo.communicate()
    cause, _, counted = out.decode().partition(": ")
    sent, heard = (int(word) for word in counted.split() if word.isdigit())
    assert caller.returncode == 0
    assert cause == "normal"
    assert sent >= 50  # one second of audio
    assert heard >= 0.8 * sent
