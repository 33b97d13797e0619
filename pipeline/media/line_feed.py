"""The frames of a playout that are in the hands of a line, which sends them by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from pipeline.audio import Pcm
from pipeline.plane.outgoing import Outgoing


class LineFeed:
    """The first of a playout's frames, handed to `line` ahead of their time. `said_at`: when its last frame
    left, in seconds of the monotonic clock."""

    __slots__ = ("_ahead", "_line")

    def __init__(self, line: Outgoing) -> None:
        self._line = line
        self._ahead = 0
        line.departed()  # what left before is another source's

    @property
    def said_at(self) -> float:
        """When the last frame left, in seconds of the monotonic clock."""
        return self._line.said_at

    def feed(self, frames: deque[Pcm]) -> None:
        """Hands over as many of `frames` as the line has room for."""
        count = min(len(frames) - self._ahead, self._line.room)
        if count > 0:
            self._line.say(list(islice(frames, self._ahead, self._ahead + count)))
            self._ahead += count

    def departed(self) -> Sequence[Pcm]:
        """The frames that have left since this was asked before, as they sounded."""
        frames = self._line.departed()
        self._ahead -= len(frames)
        return frames

    def withdraw(self) -> Sequence[Pcm]:
        """Takes back what has not left. The frames that have, since `departed` was asked."""
        self._line.withdraw()
        frames = self._line.departed()
        self._ahead = 0
        return frames
