"""A virtual clock, on which benchmarks and tests of conversations run without waiting."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

THREAD_S = 5.0
"""Real seconds for which the clock stands still while threads compute for the loop; then time goes on around
a thread that hangs."""


class Clock(selectors.DefaultSelector):
    """A selector that advances the clock to the next timer instead of waiting; in steps of `step_s` where
    given, rounded up.

    Before it advances, sockets have `sockets_s` real seconds to deliver data."""

    def __init__(self, step_s: float = 0.0, sockets_s: float = 0.0) -> None:
        super().__init__()
        self._step_s = step_s
        self._sockets_s = sockets_s
        self.now = 1000.0
        self.computing: set[asyncio.Future[Any]] = set()
        """Results that threads compute for the loop."""

    def select(self, timeout: float | None = None) -> Any:
        """Returns ready sockets or advances the clock; without a timer it waits as usual."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        if self.computing:
            if ready := super().select(THREAD_S):
                return ready
            self.computing.clear()
        if self._sockets_s and (ready := super().select(self._sockets_s)):
            return ready
        self.now += math.ceil(timeout / self._step_s) * self._step_s if self._step_s else timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock: hours pass in milliseconds, with events in the same order."""

    def __init__(self, step_s: float = 0.0, sockets_s: float = 0.0) -> None:
        self._clock = Clock(step_s, sockets_s)
        super().__init__(self._clock)

    def time(self) -> float:
        """Returns the virtual time in seconds."""
        return self._clock.now

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Arguments], T],
        *args: *Arguments,
    ) -> asyncio.Future[T]:
        """Runs `func` on a thread; no virtual time passes until its result is there."""
        result = super().run_in_executor(executor, func, *args)
        self._clock.computing.add(result)
        result.add_done_callback(self._clock.computing.discard)
        return result
