"""The agent's frames in the order in which they are said: those heard lately, and those that wait."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.audio import Pcm
from pipeline.plane.incoming import Frames


class Spool:
    """Frames that wait (`waiting` of them), and before them `remembered` of those that were taken, in the
    arrays in which they came: an object for each frame would be a third of its samples more."""

    __slots__ = ("_at", "_offset", "_past", "_pieces", "_remembered", "_taken", "waiting")

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._pieces: list[Frames] = []
        self._at = self._offset = 0  # the piece and the frame in it that is next
        self._taken = self.waiting = 0  # frames of the pieces before that, and from there on
        self._past = 0  # of those taken, the last, which may wait again

    def extend(self, frames: Frames) -> None:
        """Appends frames, which are kept as they are."""
        self._pieces.append(frames)
        self.waiting += len(frames)

    def following(self, first: int, count: int) -> Iterator[Pcm]:
        """The `count` frames after the `first` that wait, as many as there are."""
        offset = self._offset + first
        for piece in self._pieces[self._at :]:
            part = piece[offset : offset + count]
            yield from part
            count -= len(part)
            offset = max(0, offset - len(piece))
            if count <= 0:
                return

    def take(self, count: int) -> None:
        """Takes the next `count`, of those that wait: they are remembered for a while."""
        self.waiting -= count
        self._taken += count
        self._past = min(self._past + count, self._remembered)
        self._offset += count
        while self._at < len(self._pieces) and self._offset >= len(self._pieces[self._at]):
            self._offset -= len(self._pieces[self._at])
            self._at += 1
        while self._at and self._taken - len(self._pieces[0]) >= self._remembered:
            self._taken -= len(self._pieces.pop(0))
            self._at -= 1

    def put_back(self, count: int) -> int:
        """Has up to `count` of the remembered frames wait again, those taken last; how many."""
        count = min(count, self._past)
        self.waiting += count
        self._taken -= count
        self._past -= count
        self._offset -= count
        while self._offset < 0:
            self._at -= 1
            self._offset += len(self._pieces[self._at])
        return count

    def drop(self, count: int) -> None:
        """Drops the last `count`, of those that wait."""
        self.waiting -= count
        while count:
            last = self._pieces.pop()
            if len(last) > count:
                self._pieces.append(last[:-count])
            count -= min(count, len(last))

    def forget(self) -> None:
        """Frees the samples that were taken so far."""
        del self._pieces[: self._at]
        self._at = self._past = 0
        self._taken = self._offset
        if not self.waiting:
            self.clear()

    def clear(self) -> None:
        """Drops all, what is remembered too."""
        self._pieces.clear()
        self._at = self._offset = self._taken = self._past = self.waiting = 0
