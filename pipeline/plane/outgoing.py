"""What one stream has to say, as Python fills it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from pipeline.audio import Pcm
from pipeline.plane import said
from pipeline.plane.incoming import Frames
from pipeline.plane.rows import AHEAD, SAID, SENT

FULL: Final = 1.0

Left: TypeAlias = tuple[int, int]
"""Of a frame that has left: when, in nanoseconds of the monotonic clock, and whether it is audible."""

_HANGS_S: Final = 0.01


class Outgoing:
    """The frames that wait on one row to be sent, 20 ms each at `rate_hz`. `poke` wakes the plane."""

    __slots__ = (
        "_departed", "_frames", "_gains", "_left", "_limit", "_line", "_poke", "_sent", "_word", "rate_hz",
    )  # fmt: skip

    def __init__(self, line: Any, poke: Callable[[], None]) -> None:
        """`line`: a record of `pipeline.plane.rows.LINE`."""
        self._line, self._poke = line, poke
        self._word, self._gains = line["word"], line["gains"]
        self.rate_hz = int(line["rate_hz"])
        samples = int(line["samples"])
        self._frames = [frame[:samples] for frame in line["said"]]
        self._sent: Frames = line["sent"][:, :samples]
        self._left = line["sent_frames"]
        self._departed, self._limit = int(line["departed"]), int(self._word[0]) & 0xFFFFFFFF

    @property
    def waiting(self) -> int:
        """How many frames have not left."""
        return self._limit - (int(self._word[0]) >> 32)

    @property
    def room(self) -> int:
        """How many frames there is room for."""
        return AHEAD - self.waiting

    @property
    def talking(self) -> bool:
        """Whether the packet that left last was a frame of these."""
        return bool(self._line["talking"])

    def say(self, frames: Sequence[Pcm]) -> None:
        """Appends frames, for which there is room. The first after silence leaves at once."""
        for frame in frames:
            self._frames[self._limit % SAID][:] = frame
            self._limit += 1
        if said.publish(self._word, len(frames)) == 0:
            self._poke()

    def withdraw(self, kept: int = 0) -> int:
        """Takes back what has not left, but for the first `kept` frames; how many. They are never heard."""
        back = said.withdraw(self._word, kept)
        self._limit -= back
        taken, hangs = int(self._word[0]) >> 32, time.monotonic() + _HANGS_S
        while int(self._line["departed"]) < taken and time.monotonic() < hangs:
            time.sleep(0)  # the plane is at the copy of a frame that it has taken, for microseconds
        return back

    def departed(self, most: int = SENT) -> tuple[Frames, Sequence[Left]]:
        """The next frames that have left and were not asked for before, `most` at the most: at the gain at
        which they left, as views that are valid for a second. None are left where it gives none."""
        first = self._departed % SENT
        count = min(most, int(self._line["departed"]) - self._departed, SENT - first)
        self._departed += count
        return self._sent[first : first + count], self._left[first : first + count].tolist()

    def tell_after(self, frames: int, *, more: bool) -> None:
        """Wants to be told when `frames` more have left than `departed` gave; `more`: also when half of the
        room is free."""
        number = self._departed + frames
        if more:
            number = min(number, self._limit - AHEAD // 2)
        self._line["mark"] = number
        said.publish(self._word, 0)  # whoever asks for what has left from now on is told of the rest

    def tell_always(self) -> None:
        """Wants to be told of each frame."""
        self._line["mark"] = 0

    @property
    def said_at(self) -> float:
        """When the last frame left, in seconds of the monotonic clock."""
        return int(self._line["said_ns"]) / 1e9

    def move_gain(self, gain: float) -> None:
        """The gain from the next frame on, reached in steps of a half."""
        self._gains[1] = gain

    def fade_in(self) -> None:
        """Ramps the next frames up from silence."""
        self._gains[1] = FULL
        self._line["fades"] += 1

    def reset_gain(self) -> None:
        """The gain is 1 at once."""
        self._gains[1] = FULL
        self._line["resets"] += 1
