"""Detects and generates in-band DTMF (ITU-T Q.23 and Q.24), for trunks without RFC 4733.

A digit is detected when, in five windows in a row, 5 ms apart, two tones have 80 % of the energy, each tone
is within 2.5 % of its frequency, and the twist is within Q.24. Tones of 40 ms and more are detected, tones of
23 ms and less never; speech does not meet all conditions for so long ("talk-off").
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pipeline.audio import LINE_RATES_HZ, Pcm, kernels
from pipeline.audio.levels import amplitude

KEYS: Final = "123A456B789C*0#D"
"""The sixteen digits, row by row: rows of 697, 770, 852, 941 Hz, columns of 1209, 1336, 1477, 1633 Hz."""

TONE_MS: Final = 160
"""Time after a DTMF digit in which audio is taken for the digit's tone: some RFC 4733 senders leave the tone
in the audio, and an in-band tone goes on after the 40 ms that recognise the digit."""

_RAMP_MS: Final = 2  # without a ramp a tone begins with a click


def _tables() -> tuple[kernels.Floats, kernels.Floats]:
    """Tapered cosines and sines, scaled so that the power of a bin is the mean square of its tone."""
    n = np.arange(kernels.DTMF_WINDOW)
    taper = 0.5 - 0.5 * np.cos(2 * np.pi * (n + 0.5) / kernels.DTMF_WINDOW)
    phase = 2 * np.pi * kernels.DTMF_HZ[:, None] * n / kernels.DTMF_RATE_HZ
    scale = np.sqrt(2) / taper.sum()
    level = taper / np.sqrt((taper**2).sum())
    cosines = np.vstack((level, scale * taper * np.cos(phase)))
    sines = np.vstack((np.zeros_like(level), scale * taper * -np.sin(phase)))
    return cosines.astype(np.float32), sines.astype(np.float32)


COSINES, SINES = _tables()
"""Of `kernels.dtmf_step`."""


class DtmfDetector:
    """The DTMF detector of one party; takes every frame of 20 ms in order (silence for a lost frame). Raises
    ValueError for a rate that no leg has."""

    __slots__ = ("_buffer", "_state", "rate_hz")

    def __init__(self, rate_hz: int) -> None:
        if rate_hz not in LINE_RATES_HZ:
            raise ValueError(f"rate_hz={rate_hz}: not one of {LINE_RATES_HZ}")
        self.rate_hz = rate_hz
        self._buffer = np.zeros(2 * kernels.DTMF_WINDOW - kernels.DTMF_HOP, np.float32)
        self._state = np.zeros(kernels.DTMF_COLUMNS, np.float32)
        self.reset()

    def reset(self) -> None:
        """Restarts the detector for another stream."""
        self._buffer[:] = 0.0
        self._state[:] = 0.0
        self._state[kernels.DTMF_HIT] = self._state[kernels.DTMF_KEY] = -1.0

    def push(self, frame: Pcm) -> str | None:
        """Takes a frame; returns the key confirmed by it, once per press, 30 to 50 ms after its start; else
        None."""
        key = kernels.dtmf_step(frame, self._buffer, COSINES, SINES, self._state)
        return None if key < 0 else KEYS[key]

    @property
    def tone_present(self) -> bool:
        """Whether the last frame has a DTMF tone, confirmed or not: the frame is then no speech."""
        return bool(self._state[kernels.DTMF_HIT] >= 0 or self._state[kernels.DTMF_KEY] >= 0)


def tone(key: str, rate_hz: int, duration_ms: int = 100, level_dbfs: float = -13.0) -> Pcm:
    """Generates one digit: int16 at `rate_hz`, both tones together at `level_dbfs` (dBov), with ramps.

    Raises ValueError for a digit outside `KEYS`.
    """
    index = KEYS.find(key) if len(key) == 1 else -1
    if index < 0:
        raise ValueError(f"not a DTMF key: {key!r}")
    t = np.arange(rate_hz * duration_ms // 1000) / rate_hz
    row_hz, column_hz = kernels.DTMF_HZ[index // 4], kernels.DTMF_HZ[4 + index % 4]
    both = np.sin(2 * np.pi * row_hz * t) + np.sin(2 * np.pi * column_hz * t)  # each of RMS √½: together 1
    ramp = np.minimum(1.0, (np.arange(t.size) + 0.5) / (rate_hz * _RAMP_MS / 1000))
    shaped = both * amplitude(level_dbfs) * ramp * ramp[::-1]
    pcm: Pcm = np.clip(np.rint(shaped), -32768, 32767).astype(np.int16)
    return pcm
