"""The frames of a playout that are in the hands of a line, which sends them by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from pipeline.media.spool import Spool
from pipeline.plane.incoming import Frames
from pipeline.plane.outgoing import Left, Outgoing


class LineFeed:
    """The first of a playout's `frames`, handed to `line` ahead of their time and taken once they have
    left."""

    __slots__ = ("_ahead", "_frames", "_line")

    def __init__(self, line: Outgoing, frames: Spool) -> None:
        self._line, self._frames = line, frames
        self._ahead = 0
        while len(line.departed()[1]):  # what left before is another source's
            pass

    def feed(self) -> None:
        """Hands over as many frames as the line has room for."""
        count = min(self._frames.waiting - self._ahead, self._line.room)
        if count > 0:
            self._line.say(list(self._frames.following(self._ahead, count)))
            self._ahead += count

    def departed(self, most: int) -> tuple[Frames, Sequence[Left]]:
        """The next frames that have left, `most` at the most, as they sounded."""
        frames, told = self._line.departed(most)
        self._ahead -= len(told)
        self._frames.take(len(told))
        return frames, told

    def tell_after(self, frames: int) -> None:
        """Wants to be told when `frames` more have left, and in time to hand over more."""
        self._line.tell_after(frames, more=self._frames.waiting > self._ahead)

    def withdraw(self) -> None:
        """Takes back what has not left."""
        self._ahead -= self._line.withdraw()

    def take_back(self, frames: int) -> int:
        """Takes back up to `frames` of the last frames, those that have not left; how many. What is before
        them goes on."""
        behind = min(frames, self._frames.waiting - self._ahead)
        back = self._line.take_back(frames - behind)
        self._ahead -= back
        return behind + back

    def close(self) -> None:
        """Gives the line to another source."""
        self._line.tell_always()


class NoFeed:
    """A playout whose frames are read."""

    def feed(self) -> None: ...
    def departed(self, most: int) -> tuple[Frames, Sequence[Left]]:
        """Gives no frames: none have left by themselves."""
        return _NONE, ()

    def tell_after(self, frames: int) -> None: ...
    def withdraw(self) -> None: ...
    def take_back(self, frames: int) -> int:
        """Takes back `frames`, none of which has left by itself."""
        return frames

    def close(self) -> None: ...


_NONE: Final[Frames] = np.empty((0, 0), np.int16)
