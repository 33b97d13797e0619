"""The format of audio inside the server: mono 16-bit PCM in frames of 20 ms.

Time is counted in samples of the stream; milliseconds appear only in settings, records and the API.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Pcm: TypeAlias = npt.NDArray[np.int16]
"""Mono PCM: one dimension, int16, at a rate that the API in question states."""

FRAME_MS = 20
"""The length of a frame in milliseconds (ptime), everywhere inside the server."""

LINE_RATES_HZ = (8000, 16000, 24000, 48000)
"""Rates that a leg may run at: G.711 8000; G.722 and Opus 16000."""


def frame_samples(rate_hz: int) -> int:
    """Samples in one frame at `rate_hz`."""
    return rate_hz * FRAME_MS // 1000


def silence(rate_hz: int, duration_ms: int = FRAME_MS) -> Pcm:
    """`duration_ms` of digital silence at `rate_hz`."""
    return np.zeros(rate_hz * duration_ms // 1000, np.int16)
