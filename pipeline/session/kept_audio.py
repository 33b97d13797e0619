"""What has come from the caller: the last seconds of it, when it came, and the recogniser that hears it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm, frame_samples
from pipeline.latency import MediaClock
from pipeline.plane.incoming import Frames, Told
from pipeline.plane.rows import Note
from pipeline.speech import Listening

_NS: Final = 1e9

_T = TypeVar("_T", bound=np.generic)


class KeptAudio:
    """The last `frames` frames at `rate_hz`, each noted as background speech or not. Frames go to `listening`
    too, unless it is None. `end`: position after the last frame; `last_at`: loop time at which it came."""

    __slots__ = (
        "_behind",
        "_n",
        "_ring",
        "_slot",
        "_written",
        "clock",
        "end",
        "last_at",
        "listening",
        "silence",
    )

    def __init__(self, rate_hz: int, frames: int) -> None:
        self.clock = MediaClock(rate_hz)
        self.listening: Listening | None = None
        self.end = 0
        self.last_at = 0.0
        self._n = frame_samples(rate_hz)
        self.silence: Pcm = np.zeros(self._n, np.int16)
        self._ring = np.zeros((frames, self._n), np.int16)
        self._behind = np.zeros(frames, np.bool_)
        self._slot = self._written = 0

    def add(self, frame: Pcm, position: int, now: float, *, echo: bool) -> None:
        """Takes a frame that came at `now`; of the agent's echo, silence."""
        self.last_at = now
        self.end = end = position + self._n
        self._keep(self.silence if echo else frame)  # the recogniser must not get the agent's words
        self.clock.observe(end, now)  # a packet leaves when its last sample has been spoken, not its first

    def add_all(self, frames: Frames, told: Sequence[Told]) -> None:
        """Takes frames as a line has heard them, as `add` does each."""
        observe, size = self.clock.observe, self._n
        echo = 0
        for position, arrived_ns, _, note, _ in told:
            observe(position + size, arrived_ns / _NS)
            echo |= note & Note.ECHO
        self.last_at, self.end = told[-1][1] / _NS, told[-1][0] + size
        if echo or self.listening is not None:
            for frame, (_, _, _, note, _) in zip(frames, told, strict=True):
                self._keep(self.silence if note & Note.ECHO else frame)
            return
        slots = len(self._ring)
        while len(frames):
            slot, part = self._slot, frames[: slots - self._slot]
            self._ring[slot : slot + len(part)] = part
            self._behind[slot : slot + len(part)] = False
            self._slot = (slot + len(part)) % slots
            self._written += len(part)
            frames = frames[len(part) :]

    def _keep(self, frame: Pcm) -> None:
        slot = self._slot
        self._ring[slot] = frame
        self._behind[slot] = False
        self._slot = slot + 1 if slot + 1 < len(self._ring) else 0
        self._written += 1
        if self.listening is not None:
            self.listening.push(frame)

    def set_behind(self) -> None:
        """Notes that the last frame is background speech."""
        self._behind[self._slot - 1] = True

    def last(self, most: int) -> Sequence[Pcm]:
        """The last frames, `most` at the most; views."""
        slots = len(self._ring)
        return [self._ring[(self._slot - index) % slots] for index in range(min(self._written, most), 0, -1)]

    def samples(self) -> Pcm:
        """A copy of all that is kept, the oldest first."""
        return self._in_order(self._ring).reshape(-1)

    def callers_own(self) -> Pcm:
        """The same with silence for background speech."""
        frames = self._in_order(self._ring)
        frames[self._in_order(self._behind)] = 0
        return frames.reshape(-1)

    def _in_order(self, ring: npt.NDArray[_T]) -> npt.NDArray[_T]:
        newest = ring[: self._slot]
        return newest.copy() if self._written < len(ring) else np.concatenate((ring[self._slot :], newest))
