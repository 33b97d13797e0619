"""A source that gives a frame when it is asked (a bridge, a clip), on a line that sends by itself."""

from __future__ import annotations

import asyncio
from typing import Final

from pipeline.leg import AudioSource
from pipeline.plane.outgoing import Outgoing

EARLY_S: Final = 0.005
"""How long before it is due a frame is asked for."""

_FRAME_S: Final = 0.02


class Pulled:
    """Asks `source` for each frame shortly before it leaves."""

    __slots__ = ("_line", "_loop", "_source", "_timer")

    def __init__(self, source: AudioSource, line: Outgoing, loop: asyncio.AbstractEventLoop) -> None:
        self._source, self._line, self._loop = source, line, loop
        self._timer: asyncio.TimerHandle | None = None
        source.on_ready(self._pull)
        self._pull()

    def left(self, now: float) -> None:
        """The frame in the line's hands has left at `now`."""
        for _ in self._line.departed():
            self._source.sent(now)
        if self._timer is None:
            self._timer = self._loop.call_at(now + _FRAME_S - EARLY_S, self._due)

    def close(self) -> None:
        """Nothing more is asked for; what was not sent is not."""
        self._source.on_ready(None)
        if self._timer is not None:
            self._timer.cancel()
        self._line.withdraw()

    def _due(self) -> None:
        self._timer = None
        self._pull()

    def _pull(self) -> None:
        if self._timer is not None:
            return
        frame = self._source.read()
        if frame is not None:
            self._line.say([frame])
