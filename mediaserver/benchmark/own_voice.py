"""Tells the echo of our own voice from the voice of an agent."""

from __future__ import annotations

from typing import Final

import numpy as np

from pipeline.audio import Pcm

ALIKE: Final = 0.7
"""Correlation from which on two pieces of sound are one and its copy."""


def copied_from(said: Pcm, heard: Pcm) -> int | None:
    """Where in `said`, with silence before and behind it, a copy of `heard` begins: in samples, below 0 where
    it begins in the silence; None where it is no copy. Loudness does not matter."""
    size = len(heard)
    if not size:
        return None
    ours, theirs = (each.astype(np.float64) for each in (np.pad(said, size), heard))
    points = 1 << (len(ours) + size - 1).bit_length()
    of_ours, of_theirs = np.fft.rfft(ours, points), np.fft.rfft(theirs, points)
    products = np.fft.irfft(of_ours * np.conj(of_theirs), points)[: len(ours) - size + 1]
    sums = np.concatenate([[0.0], np.cumsum(ours**2)])
    energies = (sums[size:] - sums[:-size]) * float(np.sum(theirs**2))
    alike = products / np.sqrt(np.maximum(energies, 1.0))
    best = int(np.argmax(alike))
    return best - size if alike[best] >= ALIKE else None
