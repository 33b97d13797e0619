"""A clock that does not wait: benchmarks and tests of conversations run on it."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class Clock(selectors.DefaultSelector):
    """Instead of waiting it moves on to what is due next."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        """With nothing to wait for it waits for other threads as usual."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Hours pass in milliseconds, in the order in which they would."""

    def __init__(self) -> None:
        self._clock = Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        """The virtual moment."""
        return self._clock.now
