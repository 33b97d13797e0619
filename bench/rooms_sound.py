"""What is said in `python -m bench rooms`: speech-like sound, and beeps once a second for measuring."""

from __future__ import annotations

from typing import Final

import numpy as np

from mediaserver.rooms.opus import OpusEncoder
from pipeline.audio import Pcm

RATE_HZ: Final = 16_000
FRAME: Final = RATE_HZ // 50
LOUD: Final = 3000
BEEP_FRAMES: Final = 10
PERIOD_FRAMES: Final = 50


def speech(frames: int) -> Pcm:
    """Harmonics of 140 Hz under a syllable's envelope, with some noise: costs a codec what speech costs."""
    at = np.arange(frames * FRAME) / RATE_HZ
    rng = np.random.default_rng(1)
    voice = sum(np.sin(2 * np.pi * 140 * k * at + k) / k for k in range(1, 20))
    wave = voice * np.clip(np.sin(2 * np.pi * 3 * at), 0.1, 1) + 0.02 * rng.standard_normal(at.size)
    return np.asarray(0.2 * 32767 * wave / np.abs(wave).max(), np.int16)


def tone(frames: int) -> Pcm:
    """440 Hz, well above `LOUD`."""
    at = np.arange(frames * FRAME) / RATE_HZ
    return np.asarray(12_000 * np.sin(2 * np.pi * 440 * at), np.int16)


def beeps() -> list[bytes]:
    """Opus packets of one second: a beep that begins with the first, then silence."""
    wave = tone(PERIOD_FRAMES)
    wave[BEEP_FRAMES * FRAME :] = 0
    encoder = OpusEncoder()
    frames = wave.reshape(PERIOD_FRAMES, FRAME)
    for frame in frames:  # the first second teaches the encoder; the second is what is sent
        encoder.encode(frame)
    return [encoder.encode(frame) for frame in frames]
