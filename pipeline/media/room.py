"""Lets the writer of a playout wait until enough of it was heard."""

from __future__ import annotations

import asyncio
from typing import Final

NEVER: Final = 1 << 62


class Room:
    """One waiting writer. `at`: the number of sent frames at which there is room; `NEVER`: nobody waits."""

    __slots__ = ("_waiting", "at")

    def __init__(self) -> None:
        self._waiting: asyncio.Future[None] | None = None
        self.at = NEVER

    def asked(self, at: int) -> asyncio.Future[None]:
        """Waits until `at` frames were sent."""
        self.at = at
        self._waiting = waiting = asyncio.get_running_loop().create_future()
        return waiting

    def give(self) -> None:
        """There is room: the writer goes on."""
        waiting, self._waiting, self.at = self._waiting, None, NEVER
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
