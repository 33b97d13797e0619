"""Several media planes, a thread each: calls are spread over them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from pipeline.plane.drive.plane import Plane

SPARE: Final = 16
"""Rows of a plane beyond its share, for streams that have just ended."""


class Planes:
    """So many planes as `threads`, which have rows for `capacity` streams together. Make them on their event
    loop, after the last fork of the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, capacity: int, threads: int = 1) -> None:
        share = -(-capacity // threads) + SPARE
        self._planes = tuple(Plane(loop, capacity=share) for _ in range(threads))

    def __len__(self) -> int:
        """The number of planes."""
        return len(self._planes)

    def __iter__(self) -> Iterator[Plane]:
        return iter(self._planes)

    def least_loaded(self) -> Plane:
        """The plane with the fewest streams, for the next one. A stream stays on its plane."""
        return min(self._planes, key=len)

    @property
    def streams(self) -> tuple[int, ...]:
        """The number of streams of each."""
        return tuple(len(plane) for plane in self._planes)

    def close(self) -> None:
        """Ends the threads; streams that are open fall silent. Idempotent."""
        for plane in self._planes:
            plane.close()
