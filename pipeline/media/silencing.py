"""Silences parts of a finished recording, in the file itself."""

from __future__ import annotations

import os
import wave
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pipeline.errors import RecordingError

PADDING_MS = 120
"""Before and after each part: word times of recognisers are that exact."""

LEFT, RIGHT = 0, 1


def silence(path: Path, parts: Iterable[tuple[int, int, int]]) -> None:
    """Overwrites parts of a 16-bit stereo WAV file with silence, each as `LEFT` or `RIGHT`, first and last
    millisecond; returns when it is on disk. Raises `RecordingError`, OSError."""
    try:
        with wave.open(str(path), "rb") as header:
            channels, rate_hz, frames = header.getnchannels(), header.getframerate(), header.getnframes()
            width = header.getsampwidth()
    except (wave.Error, EOFError) as error:
        raise RecordingError(path.name, f"cannot be silenced: {error}") from error
    if (channels, width) != (2, 2):
        raise RecordingError(path.name, "cannot be silenced: it is not 16-bit stereo")
    begin = path.stat().st_size - frames * 4
    with path.open("r+b") as file:
        samples = np.memmap(file, "<i2", "r+", offset=begin, shape=(frames, 2))
        for channel, first_ms, last_ms in parts:
            first = max(0, first_ms - PADDING_MS) * rate_hz // 1000
            last = (last_ms + PADDING_MS) * rate_hz // 1000
            samples[first:last, channel] = 0
        samples.flush()
        del samples
        os.fsync(file.fileno())
