"""The gain of the agent's voice, changed in ramps because a step in the level is a click."""

from __future__ import annotations

from typing import Final, Protocol, cast

import numpy as np

from pipeline.audio import Pcm, frame_samples

DUCKED: Final = 10 ** (-12 / 20)
"""The gain while the caller speaks over the agent: -12 dB, low and still intelligible."""

RAMP_FRAMES: Final = 2  # 40 ms: long enough to avoid a click


class Volume:
    """The gain of one playout's frames, which each `applied` moves a step towards its target. `full`: the
    gain is 1 and stays 1, so that `applied` need not be called."""

    __slots__ = ("_gain", "_ramp", "_target", "full")

    def __init__(self, rate_hz: int) -> None:
        self._ramp = np.arange(1, frame_samples(rate_hz) + 1, dtype=np.float32) / frame_samples(rate_hz)
        self._gain = self._target = 1.0
        self.full = True

    def duck(self) -> None:
        """Lowers the gain to `DUCKED`, from the next frame on."""
        self._move(DUCKED)

    def restore(self) -> None:
        """Raises the gain to 1, from the next frame on."""
        self._move(1.0)

    def fade_in(self) -> None:
        """Ramps the next frames up from silence, after audio that was cut off."""
        self._gain = 0.0
        self._move(1.0)

    def reset(self) -> None:
        """Sets the gain to 1 at once, for a new utterance."""
        self._gain = self._target = 1.0
        self.full = True

    def applied(self, frame: Pcm) -> Pcm:
        """Gives a copy of `frame` with the gain applied, and moves the gain by one step."""
        step = 1.0 / RAMP_FRAMES
        before = self._gain
        after = self._gain = min(max(self._target, before - step), before + step)
        self.full = before == after == 1.0
        gains = np.float32(before) + np.float32(after - before) * self._ramp
        return cast(Pcm, (frame * gains).astype(np.int16))

    def _move(self, target: float) -> None:
        self._target = target
        self.full = self._gain == target == 1.0


class GainOfLine(Protocol):
    """The gain of a stream that the media plane sends."""

    def move_gain(self, gain: float) -> None:
        """Ramps to `gain` from the next frame on."""

    def fade_in(self) -> None:
        """Ramps up to 1 from silence."""

    def reset_gain(self) -> None:
        """Sets the gain to 1 at once."""


class LineVolume:
    """`Volume` where the media plane applies it."""

    __slots__ = ("_line",)
    full = True

    def __init__(self, line: GainOfLine) -> None:
        self._line = line

    def duck(self) -> None:
        """Lowers the gain to `DUCKED`, from the next frame on."""
        self._line.move_gain(DUCKED)

    def restore(self) -> None:
        """Raises the gain to 1, from the next frame on."""
        self._line.move_gain(1.0)

    def fade_in(self) -> None:
        """Ramps the next frames up from silence: the audio before them was cut off."""
        self._line.fade_in()

    def reset(self) -> None:
        """Sets the gain to 1 at once, for a new utterance."""
        self._line.reset_gain()

    def applied(self, frame: Pcm) -> Pcm:
        """Gives `frame` as it is: the plane applies the gain."""
        return frame
