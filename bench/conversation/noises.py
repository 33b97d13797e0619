"""Makes the noises over the agent, and the background of a caller. sox makes their parts; the babble is
voices."""

from __future__ import annotations

import subprocess
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from bench.conversation.sounds import RATE_HZ, Sound, at_level, reading
from pipeline.audio import Pcm

SOX: Final = "sox"
_SOURCE_S: Final = 60  # every noise is a random piece of these seconds

Wave: TypeAlias = npt.NDArray[np.float64]


def cough(rng: np.random.Generator) -> Sound:
    """Two bursts, 0.3 to 0.45 s together."""
    first, second = rng.uniform(0.08, 0.14), rng.uniform(0.16, 0.24)
    wave = np.concatenate([_burst(rng, first, 900), np.zeros(400), _burst(rng, second, 600)])
    return Sound(at_level(wave, -18.0))


def thump(rng: np.random.Generator) -> Sound:
    """An object is put on the table: a tone of 60 to 90 Hz that fades within 0.15 s."""
    size = round(0.15 * RATE_HZ)
    tone = _sox("synth", "0.15", "sine", str(round(rng.uniform(60, 90))))[:size]
    return Sound(at_level(tone * np.exp(-np.arange(tone.size) / RATE_HZ * 25), -14.0))


def keyboard(rng: np.random.Generator) -> Sound:
    """Typing for 1.5 s, six to ten strokes a second."""
    wave = np.zeros(round(1.5 * RATE_HZ))
    at = 0.0
    while at < 1.4:
        stroke = _piece(rng, "whitenoise", 160) * np.exp(-np.arange(160) / 25)
        place = round(at * RATE_HZ)
        wave[place : place + 160] += stroke[: wave.size - place] * rng.uniform(0.5, 1.0)
        at += rng.uniform(0.1, 0.17)
    return Sound(at_level(wave, -24.0))


def steady(rng: np.random.Generator, seconds: float, dbov: float) -> Pcm:
    """A car or a fan: noise that falls by 3 dB an octave, from 100 Hz on."""
    return at_level(_piece(rng, "pinknoise", round(seconds * RATE_HZ)), dbov)


def babble(rng: np.random.Generator, seconds: float, dbov: float) -> Pcm:
    """Six people who talk at once in the background."""
    size = round(seconds * RATE_HZ)
    source = reading().samples.astype(np.float64)
    wave = np.zeros(size)
    for _ in range(6):
        shift = int(rng.integers(source.size))
        wave += np.resize(np.roll(source, shift), size) * rng.uniform(0.6, 1.0)
    return at_level(wave, dbov)


def _burst(rng: np.random.Generator, seconds: float, decay: float) -> Wave:
    size = round(seconds * RATE_HZ)
    return np.convolve(_piece(rng, "whitenoise", size), np.hanning(9), "same") * np.exp(
        -np.arange(size) / decay
    )


def _piece(rng: np.random.Generator, kind: str, size: int) -> Wave:
    """Returns `size` samples of one of sox's noises."""
    source = _sox("synth", str(_SOURCE_S), kind, "highpass", "100")
    place = int(rng.integers(source.size - size))
    return source[place : place + size]


@lru_cache(maxsize=64)
def _sox(*effects: str) -> Wave:
    """Returns what sox synthesises, the same each time. Raises `FileNotFoundError` where sox is not
    installed."""
    command = [
        SOX,
        "-R",
        "-n",
        "-r",
        str(RATE_HZ),
        "-c",
        "1",
        "-b",
        "16",
        "-t",
        "raw",
        "-e",
        "signed",
        "-",
        *effects,
    ]
    made = subprocess.run(command, check=True, capture_output=True)
    return np.frombuffer(made.stdout, np.int16).astype(np.float64)
