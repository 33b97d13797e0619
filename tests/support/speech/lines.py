"""What is heard of a telephone network, and of machines that answer: floats at 8 kHz."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RATE_HZ = 8000

Wave = npt.NDArray[np.float64]


def quiet(duration_s: float) -> Wave:
    """Nothing."""
    return np.zeros(round(duration_s * RATE_HZ))


def tone(hz: Sequence[float], duration_s: float, amplitude: float = 3000.0) -> Wave:
    """Pure tones together."""
    time_s = np.arange(round(duration_s * RATE_HZ)) / RATE_HZ
    wave: Wave = np.sum([amplitude * np.sin(2 * np.pi * each * time_s) for each in hz], axis=0)
    return wave


def cadence(hz: Sequence[float], on_off_s: Sequence[float], times: int = 3) -> Wave:
    """A tone that comes and goes: seconds on, off, on, off."""
    pieces = [
        quiet(seconds) if index % 2 else tone(hz, seconds)
        for _ in range(times)
        for index, seconds in enumerate(on_off_s)
    ]
    return np.concatenate([quiet(0.5), *pieces])


def music(duration_s: float, *, beat_s: float = 0.5, seed: int = 1) -> Wave:
    """Chords, one after the other, that ring on."""
    random = np.random.default_rng(seed)
    wave = np.zeros(round((duration_s + 2) * RATE_HZ))
    for beat in np.arange(0, duration_s, beat_s):
        root_hz = 220 * 2 ** (random.integers(0, 12) / 12)
        time_s = np.arange(round(1.3 * beat_s * RATE_HZ)) / RATE_HZ
        envelope = np.minimum(time_s / 0.02, 1) * np.exp(-1.2 * time_s)
        start = round(beat * RATE_HZ)
        for hz in (root_hz, 1.26 * root_hz, 1.5 * root_hz):
            for harmonic in range(1, 5):
                note = np.sin(2 * np.pi * hz * harmonic * time_s + random.random() * 6) / harmonic**1.2
                wave[start : start + len(note)] += note * envelope
    return wave[: round(duration_s * RATE_HZ)] * 1500
