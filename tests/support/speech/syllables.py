"""A voice that a detector takes for one, and that is known to the sample."""

from __future__ import annotations

import numpy as np

from pipeline.audio import Pcm

SYLLABLE_S, BETWEEN_S = 0.2, 0.06


def syllables(pitch_hz: float, duration_s: float, rate_hz: int = 8000) -> Pcm:
    """Harmonics of a gliding `pitch_hz` in whole syllables: about `duration_s`, the first at once, the last
    to the end."""
    count = max(1, round((duration_s + BETWEEN_S) / (SYLLABLE_S + BETWEEN_S)))
    t = np.arange(round((count * (SYLLABLE_S + BETWEEN_S) - BETWEEN_S) * rate_hz)) / rate_hz
    phase = 2 * np.pi * (pitch_hz * t + 6 * np.sin(2 * np.pi * 1.3 * t))
    wave = np.sum([np.sin(k * phase) / k for k in range(1, 12)], axis=0)
    voiced = t % (SYLLABLE_S + BETWEEN_S) < SYLLABLE_S
    said: Pcm = (9000 * wave * voiced / np.abs(wave).max()).astype(np.int16)
    return said
