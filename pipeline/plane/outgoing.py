"""What one stream has to say, as Python fills it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pipeline.audio import Pcm
from pipeline.plane import said
from pipeline.plane.rows import AHEAD, SAID, SENT

FULL: Final = 1.0


class Outgoing:
    """The frames that wait on one row to be sent, 20 ms each at `rate_hz`. `poke` wakes the plane."""

    __slots__ = ("_departed", "_frames", "_gains", "_limit", "_line", "_poke", "_sent", "_word", "rate_hz")

    def __init__(self, line: Any, poke: Callable[[], None]) -> None:
        """`line`: a record of `pipeline.plane.rows.LINE`."""
        self._line, self._poke = line, poke
        self._word, self._gains = line["word"], line["gains"]
        self.rate_hz = int(line["rate_hz"])
        samples = int(line["samples"])
        self._frames = [frame[:samples] for frame in line["said"]]
        self._sent = [frame[:samples] for frame in line["sent"]]
        both = int(self._word[0])
        self._departed, self._limit = both >> 32, both & 0xFFFFFFFF

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
        return back

    def departed(self) -> Sequence[Pcm]:
        """The frames that have left since this was asked before, at the gain at which they left; views, valid
        for a second."""
        taken = int(self._word[0]) >> 32
        frames = [self._sent[number % SENT] for number in range(self._departed, taken)]
        self._departed = taken
        return frames

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
