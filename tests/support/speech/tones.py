"""Tones to send down a line and to look for at its other end."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.audio import Pcm, frame_samples, wav


def tone(frequency_hz: float, duration_s: float, rate_hz: int, amplitude: int = 8000) -> Pcm:
    """A sine."""
    time_s = np.arange(int(duration_s * rate_hz)) / rate_hz
    return np.asarray(amplitude * np.sin(2 * np.pi * frequency_hz * time_s), np.int16)


def share_at(samples: Pcm, rate_hz: int, frequency_hz: float) -> float:
    """The part of the energy within 30 Hz of `frequency_hz`: near 1 for a pure tone, near 0 without it."""
    if not samples.size or not np.any(samples):
        return 0.0
    power = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    frequencies = np.fft.rfftfreq(samples.size, 1 / rate_hz)
    return float(power[np.abs(frequencies - frequency_hz) <= 30].sum() / power[frequencies > 50].sum())


def loud_part(samples: Pcm, rate_hz: int, threshold: int = 1000) -> Pcm:
    """The frames that hold sound."""
    size = frame_samples(rate_hz)
    frames = samples[: samples.size // size * size].reshape(-1, size)
    return np.asarray(frames[np.abs(frames).max(axis=1) > threshold].ravel())


def write_wav(path: Path, samples: Pcm, rate_hz: int) -> Path:
    """A 16-bit mono file."""
    wav.write(path, samples, rate_hz)
    return path
