"""What one stream has to say, as Python fills it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from pipeline.audio import Pcm
from pipeline.plane import said
from pipeline.plane.atomic import held
from pipeline.plane.incoming import Frames
from pipeline.plane.rows import AHEAD, SAID

FULL: Final = 1.0

UNASKED: Final = AHEAD // 2
"""Frames that may leave before Python looks at them: there is no room for others where they lie."""

Left: TypeAlias = tuple[int, int]
"""Of a frame that has left: when, in nanoseconds of the monotonic clock, and whether it is audible."""


class Outgoing:
    """The frames that wait on one row to be sent, 20 ms each at `rate_hz`. `poke` wakes the plane."""

    __slots__ = (
        "_departed", "_frames", "_gains", "_left", "_limit", "_line", "_poke", "_word", "rate_hz",
    )  # fmt: skip

    def __init__(self, line: Any, poke: Callable[[], None]) -> None:
        """`line`: a record of `pipeline.plane.rows.LINE`."""
        self._line, self._poke = line, poke
        self._word, self._gains = line["word"], line["gains"]
        self.rate_hz = int(line["rate_hz"])
        samples = int(line["samples"])
        self._frames: Frames = line["said"][: SAID * samples].reshape(SAID, samples)
        self._left = line["sent_frames"]
        self._departed, self._limit = int(line["departed"]), int(self._word[0]) & 0xFFFFFFFF

    @property
    def waiting(self) -> int:
        """How many frames have not left."""
        return self._limit - (int(self._word[0]) >> 32)

    @property
    def room(self) -> int:
        """How many frames there is room for. Those that have left take room until `departed` gave them."""
        return AHEAD - (self._limit - self._departed)

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

    def withdraw(self) -> int:
        """Takes back all that has not left; how many frames. They are never heard, and of the others
        `departed` knows."""
        with held(self._line["owner"]):  # no frame is being sent
            return self.take_back(SAID)

    def take_back(self, most: int) -> int:
        """Takes back up to `most` of the last frames that have not left; how many."""
        back = said.withdraw(self._word, most)
        self._limit -= back
        return back

    def departed(self, most: int = SAID) -> tuple[Frames, Sequence[Left]]:
        """The next frames that have left and were not asked for before, `most` at the most: at the gain at
        which they left, as views that are valid until more is said. None are left where it gives none."""
        first = self._departed % SAID
        count = min(most, int(self._line["departed"]) - self._departed, SAID - first)
        self._departed += count
        return self._frames[first : first + count], self._left[first : first + count].tolist()

    def tell_after(self, frames: int, *, more: bool) -> None:
        """Wants to be told when `frames` more have left than `departed` gave; `more`: also when half of the
        room is free. `UNASKED` frames are told of anyway."""
        number = self._departed + min(frames, UNASKED)
        self._line["mark"] = min(number, self._limit - AHEAD // 2) if more else number

    def tell_always(self) -> None:
        """Wants to be told of each frame."""
        self._line["mark"] = 0

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
