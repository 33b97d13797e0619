"""What one stream has to say, as Python fills it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pipeline.audio import Pcm
from pipeline.plane import said
from pipeline.plane.atomic import held
from pipeline.plane.rows import AHEAD, SAID, SENT

FULL: Final = 1.0


class Outgoing:
    """The frames that wait on one row to be sent, 20 ms each at `rate_hz`. `poke` wakes the plane."""

    __slots__ = (
        "_departed",
        "_frames",
        "_gains",
        "_limit",
        "_line",
        "_poke",
        "_sent",
        "_times",
        "_word",
        "rate_hz",
    )

    def __init__(self, line: Any, poke: Callable[[], None]) -> None:
        """`line`: a record of `pipeline.plane.rows.LINE`."""
        self._line, self._poke = line, poke
        self._word, self._gains = line["word"], line["gains"]
        self.rate_hz = int(line["rate_hz"])
        samples = int(line["samples"])
        self._frames = line["said"][: SAID * samples].reshape(SAID, samples)
        self._sent = line["sent"][:, :samples]
        self._times = line["sent_frames"]["sent_ns"]
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

    def departed(self) -> Sequence[tuple[Pcm, float]]:
        """The frames that have left since this was asked before, at the gain at which they left, and when, in
        seconds of the monotonic clock; views, valid for a second."""
        taken = int(self._line["departed"])
        slots = [number % SENT for number in range(self._departed, taken)]
        self._departed = taken
        return [(self._sent[slot], int(self._times[slot]) / 1e9) for slot in slots]

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
