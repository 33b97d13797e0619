"""Writes lines to a reader that may stall: a terminal that is stopped, a pipe that nobody empties, a full
disk.

A write to such a descriptor waits as long as its reader does, and on the event loop every call would wait
with it. Here a thread writes. Lines that it cannot write stay in a bounded backlog; those that do not fit are
lost, counted, and reported in the same place as soon as the reader is back."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

BACKLOG_BYTES: Final = 1 << 20
"""The most bytes of lines that wait for their reader: some thousands of lines."""

CLOSE_S: Final = 2.0
"""How long `close` waits for the reader."""


class LineWriter:
    """Writes lines to the descriptor `fd`, which it does not close. `told` makes the line that reports
    `count` lost lines. `write` may be called from any thread, but by one at a time."""

    def __init__(self, fd: int, *, told: Callable[[int], str], backlog_bytes: int = BACKLOG_BYTES) -> None:
        self._fd = fd
        self._told = told
        self._backlog_bytes = backlog_bytes
        # A SimpleQueue, no lock: a garbage collection may log from within `write`.
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._put = 0  # bytes, counted by the callers of `write`
        self._taken = 0  # bytes, counted by the thread
        self._refused = 0  # lines, counted by the callers of `write`
        self._failed = 0  # lines, counted by the thread
        self._reported = 0  # of both counts
        self._thread = threading.Thread(target=self._run, name="lines", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """The number of lines that did not fit into the backlog, or that the descriptor refused."""
        return self._refused + self._failed

    def write(self, line: str) -> None:
        """Queues a line, without its line end. Never waits, never raises."""
        data = line.encode(errors="replace") + b"\n"
        if self._put - self._taken + len(data) > self._backlog_bytes:
            self._refused += 1
            return
        self._put += len(data)
        self._lines.put(data)

    def close(self, timeout_s: float = CLOSE_S) -> bool:
        """Ends the thread once everything is written; True then. Where that takes longer than `timeout_s` the
        thread is left to the end of the process. May be called again."""
        self._lines.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (data := self._lines.get()) is not None:
            self._failed += not self._written(data)
            self._taken += len(data)
            if self.lost > self._reported and self._put - self._taken <= self._backlog_bytes // 2:
                self._report()

    def _report(self) -> None:
        lost = self.lost
        if self._written(self._told(lost - self._reported).encode(errors="replace") + b"\n"):
            self._reported = lost

    def _written(self, data: bytes) -> bool:
        """Writes to the descriptor itself: the lock of a file object that a stalled thread held would be
        waited for at the end of the process."""
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:  # another process that shares the descriptor made it non-blocking
                    poll = select.poll()
                    poll.register(self._fd, select.POLLOUT)
                    poll.poll()
        except OSError:
            return False
        return True
