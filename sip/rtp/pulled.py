"""A source that gives a frame when it is asked (a bridge, a clip), on a line that sends by itself."""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.leg import AudioSource
from pipeline.plane.outgoing import Outgoing

AHEAD: Final = 2
"""Frames in the line's hands, so that the event loop may be late by one of them."""

_FRAME_S: Final = 0.02
_NS: Final = 1e9


class Pulled:
    """Asks `source` for a frame as soon as one has left, and every 20 ms while none does."""

    __slots__ = ("_added", "_line", "_loop", "_silence", "_source", "_timer")

    def __init__(self, source: AudioSource, line: Outgoing, loop: asyncio.AbstractEventLoop) -> None:
        self._source, self._line, self._loop = source, line, loop
        self._silence: Pcm = np.zeros(frame_samples(line.rate_hz), np.int16)
        self._added = 0  # frames of silence in the line's hands
        self._timer: asyncio.TimerHandle | None = None
        source.on_ready(self._pull)
        self._pull()

    def left(self) -> None:
        """Frames in the line's hands have left."""
        self._count_departed()
        self._pull()

    def close(self) -> None:
        """Nothing more is asked for; what was not sent is not."""
        self._source.on_ready(None)
        if self._timer is not None:
            self._timer.cancel()
        self._line.withdraw()
        self._count_departed()

    def _count_departed(self) -> None:
        while told := self._line.departed()[1]:
            for sent_ns, _ in told:
                if self._added:
                    self._added -= 1
                else:
                    self._source.sent(sent_ns / _NS)

    def _pull(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_FRAME_S, self._pull)
        waiting, frames = self._line.waiting, list[Pcm]()
        while waiting + len(frames) < AHEAD and (frame := self._source.read()) is not None:
            frames.append(frame)
        if frames and waiting + len(frames) == 1 and not self._line.talking:
            # It would leave at once, and the next one would have to come on the spot.
            frames.insert(0, self._silence)
            self._added += 1
        if frames:
            self._line.say(frames)
