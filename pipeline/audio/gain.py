"""How loud the agent is: ramped, because a step in the level is a click."""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from pipeline.audio import Pcm, frame_samples

DUCKED: Final = 10 ** (-12 / 20)
"""The agent steps back for somebody who begins to speak, and is still understood if they meant nothing."""

RAMP_FRAMES: Final = 2  # 40 ms: too short to be heard as hesitation, too long for a click


class Volume:
    """The gain on the frames of one playout; `applied` moves it a step towards where it shall be.

    `full`: it is 1 and stays there, `applied` need not be called."""

    __slots__ = ("_gain", "_ramp", "_target", "full")

    def __init__(self, rate_hz: int) -> None:
        self._ramp = np.arange(1, frame_samples(rate_hz) + 1, dtype=np.float32) / frame_samples(rate_hz)
        self._gain = self._target = 1.0
        self.full = True

    def duck(self) -> None:
        """Lower, from the next frame on."""
        self._move(DUCKED)

    def restore(self) -> None:
        """As loud as ever again, from the next frame on."""
        self._move(1.0)

    def fade_in(self) -> None:
        """The next frame begins at nothing: what was said before it was cut off."""
        self._gain = 0.0
        self._move(1.0)

    def reset(self) -> None:
        """As loud as ever at once: other words."""
        self._gain = self._target = 1.0
        self.full = True

    def applied(self, frame: Pcm) -> Pcm:
        """`frame` at the gain of the moment."""
        step = 1.0 / RAMP_FRAMES
        before = self._gain
        after = self._gain = min(max(self._target, before - step), before + step)
        self.full = before == after == 1.0
        gains = np.float32(before) + np.float32(after - before) * self._ramp
        return cast(Pcm, (frame * gains).astype(np.int16))

    def _move(self, target: float) -> None:
        self._target = target
        self.full = self._gain == target == 1.0
