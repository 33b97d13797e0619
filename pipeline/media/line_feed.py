"""The frames of a playout that are in the hands of a line, which sends them by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from pipeline.audio import Pcm
from pipeline.plane.outgoing import Outgoing


class LineFeed:
    """The first of a playout's frames, handed to `line` ahead of their time."""

    __slots__ = ("_ahead", "_line")

    def __init__(self, line: Outgoing) -> None:
        self._line = line
        self._ahead = 0
        line.departed()  # what left before is another source's

    def feed(self, frames: deque[Pcm]) -> None:
        """Hands over as many of `frames` as the line has room for."""
        count = min(len(frames) - self._ahead, self._line.room)
        if count > 0:
            self._line.say(list(islice(frames, self._ahead, self._ahead + count)))
            self._ahead += count

    def departed(self) -> Sequence[tuple[Pcm, float]]:
        """The frames that have left since this was asked before, as they sounded, and when."""
        frames = self._line.departed()
        self._ahead -= len(frames)
        return frames

    def withdraw(self) -> Sequence[tuple[Pcm, float]]:
        """Takes back what has not left. The frames that have, since `departed` was asked."""
        self._line.withdraw()
        frames = self._line.departed()
        self._ahead = 0
        return frames

    def take_back(self, frames: int, queued: int) -> int:
        """Takes back up to `frames` of the last of `queued` frames, those that have not left; how many. What
        is before them goes on."""
        behind = min(frames, queued - self._ahead)
        back = self._line.take_back(frames - behind)
        self._ahead -= back
        return behind + back
