"""Is there anything to be heard? Silence in a voice is judged by its sound, not by the frames it comes in."""

from __future__ import annotations

from typing import Final

import numpy as np

from pipeline import kernels
from pipeline.audio import FRAME_MS, Pcm

AUDIBLE: Final = 60
"""A peak above it can be heard (-55 dBFS): below the breath of any voice, above dither and µ-law's idle
noise."""


def is_audible(samples: Pcm) -> bool:
    """Whether anything in it can be heard."""
    return kernels.peak(samples) > AUDIBLE


class Audibility:
    """Of what a voice makes of one text, in the order in which it comes, at `rate_hz`.

    `silence_s`: by how much silence and waiting have outgrown sound. Pauses within speech are far shorter
    than the words around them and leave nothing; zeros, and sound that comes in drips, add up.
    `quiet_samples`: since the last sound. `heard`: there was any."""

    __slots__ = ("_block", "_rate_hz", "heard", "quiet_samples", "silence_s")

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._block = rate_hz * FRAME_MS // 1000
        self.heard = False
        self.quiet_samples = 0
        self.silence_s = 0.0

    def add(self, samples: Pcm) -> None:
        """More of it was made."""
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
        """The line was silent for so long because nothing was made. The wait for the first sound is not
        silence within speech, and has a limit of its own."""
        if self.heard:
            self.silence_s += seconds
