"""Levels in dBov: decibels relative to the overload point, as in ITU-T G.100.1 and RFC 6464.

0 dBov is the power of a full-scale square wave, so a full-scale sine is at -3 dBov. (0 dBm0 on a µ-law
trunk is -6.18 dBov by G.711.) Names here say `dbfs`, which is what most people call the same number.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from pipeline import kernels
from pipeline.audio import Pcm

FLOOR_DBFS: Final = -100.0
"""What digital silence (and anything below) measures; the quietest 16-bit signal is at -90 dB."""

_FULL_SCALE: Final = 32768.0


def rms(samples: Pcm) -> float:
    """Root mean square in units of one sample step; 0.0 for no samples."""
    return kernels.rms(samples)


def rms_dbfs(samples: Pcm) -> float:
    """Level of `samples`, at least `FLOOR_DBFS`."""
    return _dbfs(kernels.rms(samples))


def gain(db: float) -> float:
    """The amplitude factor of `db`."""
    return math.pow(10.0, db / 20.0)


def amplitude(dbfs: float) -> float:
    """The RMS, in sample steps, of a signal at `dbfs`."""
    return _FULL_SCALE * gain(dbfs)


def scaled(samples: Pcm, db: float) -> Pcm:
    """`samples` made louder or quieter by `db`, saturating instead of wrapping."""
    louder: Pcm = np.clip(np.rint(samples * gain(db)), -32768, 32767).astype(np.int16)
    return louder


def _dbfs(value: float) -> float:
    if value <= 0.0:
        return FLOOR_DBFS
    return max(FLOOR_DBFS, 20.0 * math.log10(value / _FULL_SCALE))
