"""Levels in dBov: decibels relative to the overload point, as in ITU-T G.100.1 and RFC 6464.

0 dBov is the power of a full-scale square wave, so a full-scale sine is at -3 dBov. (0 dBm0 on a µ-law
trunk is -6.18 dBov by G.711.) Names in this module say `dbfs`, the more common name of the same unit.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from pipeline.audio import FRAME_MS, Pcm, kernels

FLOOR_DBFS: Final = -100.0
"""The least level given, that of digital silence; the quietest other 16-bit signal is at -90 dBov."""

_FULL_SCALE: Final = 32768.0


def rms(samples: Pcm) -> float:
    """Root mean square in units of one sample step; 0.0 for no samples."""
    return kernels.rms(samples)


def rms_dbfs(samples: Pcm) -> float:
    """The level of `samples` in dBov, at least `FLOOR_DBFS`."""
    return _dbfs(kernels.rms(samples))


def gain(db: float) -> float:
    """The amplitude factor of `db` decibels."""
    return math.pow(10.0, db / 20.0)


def amplitude(dbfs: float) -> float:
    """The RMS, in sample steps, of a signal at `dbfs`."""
    return _FULL_SCALE * gain(dbfs)


def scaled(samples: Pcm, db: float) -> Pcm:
    """Amplifies int16 `samples` by `db` decibels, with saturation."""
    louder: Pcm = np.clip(np.rint(samples * gain(db)), -32768, 32767).astype(np.int16)
    return louder


def _dbfs(value: float) -> float:
    if value <= 0.0:
        return FLOOR_DBFS
    return max(FLOOR_DBFS, 20.0 * math.log10(value / _FULL_SCALE))


AUDIBLE: Final = 60
"""Peak, in sample steps, above which a signal is audible (-55 dBFS): below the breath of any voice, above
dither and the idle noise of µ-law."""


def is_audible(samples: Pcm) -> bool:
    """Whether any sample of `samples` is above `AUDIBLE`."""
    return kernels.peak(samples) > AUDIBLE


class Audibility:
    """Measures sound and silence in the audio of one text, int16 at `rate_hz`, to detect a voice that goes
    silent or comes in fragments.

    `silence_s`: seconds of silence and waiting less those of sound, at least 0. Pauses within speech are far
    shorter than the words around them and do not add up. `quiet_samples`: samples since the last sound.
    `heard`: whether there was any sound.
    """

    __slots__ = ("_block", "_rate_hz", "heard", "quiet_samples", "silence_s")

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._block = rate_hz * FRAME_MS // 1000
        self.heard = False
        self.quiet_samples = 0
        self.silence_s = 0.0

    def add(self, samples: Pcm) -> None:
        """Takes the next samples of the voice."""
        size = samples.shape[0]
        if not size:
            return
        starts = np.arange(0, size, self._block)
        loud = np.flatnonzero(
            (np.maximum.reduceat(samples, starts) > AUDIBLE)
            | (np.minimum.reduceat(samples, starts) < -AUDIBLE)
        )
        if not loud.size:
            self.quiet_samples += size
            self.silence_s += size / self._rate_hz
            return
        spoken = min(size, (int(loud[-1]) + 1) * self._block)
        sounding = min(spoken, int(loud.size) * self._block)
        self.heard = True
        self.quiet_samples = size - spoken
        self.silence_s = max(0.0, self.silence_s + (spoken - 2 * sounding) / self._rate_hz)
        self.silence_s += self.quiet_samples / self._rate_hz

    def waited(self, seconds: float) -> None:
        """Counts `seconds` without audio from the voice as silence; not before the first sound, whose wait
        has a limit of its own."""
        if self.heard:
            self.silence_s += seconds
