"""Lets the writers of a playout wait until enough of it was heard."""

from __future__ import annotations

import asyncio
from typing import Final

NEVER: Final = 1 << 62


class Room:
    """Writers that wait, each of which looks again when any is let go on. `at`: the number of sent frames at
    which there is room for one of them; `NEVER`: nobody waits."""

    __slots__ = ("_waiting", "at")

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self.at = NEVER

    def asked(self, at: int) -> asyncio.Future[None]:
        """Waits until `at` frames were sent, or fewer where another waits for them."""
        self.at = min(self.at, at)
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    def give(self) -> None:
        """There is room: the writers go on."""
        gone_on, self._waiting, self.at = self._waiting, [], NEVER
        for each in gone_on:
            if not each.done():
                each.set_result(None)
