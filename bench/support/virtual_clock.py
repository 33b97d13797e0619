"""A clock that does not wait: benchmarks and tests of conversations run on it."""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import Any


class Clock(selectors.DefaultSelector):
    """Instead of waiting it moves on to what is due next; in steps of `step_s` where given, upwards."""

    def __init__(self, step_s: float = 0.0) -> None:
        super().__init__()
        self._step_s = step_s
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        """With nothing to wait for it waits for other threads as usual."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        self.now += math.ceil(timeout / self._step_s) * self._step_s if self._step_s else timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Hours pass in milliseconds, in the order in which they would."""

    def __init__(self, step_s: float = 0.0) -> None:
        self._clock = Clock(step_s)
        super().__init__(self._clock)

    def time(self) -> float:
        """The virtual moment."""
        return self._clock.now
