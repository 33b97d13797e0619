"""The plane on a thread of its own, which never needs the GIL."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import logging
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final

from pipeline.plane.atomic import AT_WORK, FREE
from pipeline.plane.drive.contract import Memory
from pipeline.plane.drive.priority import Priority, raised
from pipeline.plane.rows import Field, scratch

_libc: Final = ctypes.CDLL(None, use_errno=True)
_NAMES: Final = ("recvfrom", "sendto", "read", "write", "epoll_wait", "epoll_ctl", "ppoll", "clock_gettime")
SUPPORTED: Final = (
    hasattr(select, "epoll") and hasattr(os, "eventfd") and all(hasattr(_libc, name) for name in _NAMES)
)
"""Whether the platform has what the thread needs."""

if SUPPORTED:
    from pipeline.plane.drive.run import EPOLL_EVENT_BYTES, run

_CTL_ADD, _CTL_DEL = 1, 2
_PR_SET_NAME: Final = 15
_JOINED_S: Final = 2.0

log = logging.getLogger(__name__)

_abandoned: list[object] = []
"""The memory of threads that did not end: it must outlive them."""


class OnThread:
    """A `Drive` of one compiled function. `close` returns when the thread has ended; its memory outlives
    it."""

    def __init__(self, memory: Memory, loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
        """`tell` is called where there are events."""
        rows, shared, self._ports = memory
        self._memory = (rows, scratch(), shared)
        self._clock, self._loop, self._tell = shared["clock"], loop, tell
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poke = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._clock[Field.WAKE_FD], self._clock[Field.POKE_FD] = self._wake, self._poke
        self._clock[Field.EPOLL_FD] = self._epoll.fileno()
        loop.add_reader(self._wake, self._woken)
        self._thread = threading.Thread(target=self._run, name="media plane", daemon=True)
        self._thread.start()
        atexit.register(self._stop)
        self._open = True

    def watch(self, bound: socket.socket | None, number: int) -> None:
        """Reads datagrams of stream `number` from `bound`, and sends its packets by it (`Drive`)."""
        if bound is not None:
            self._control(_CTL_ADD, bound.fileno(), number)

    def send_by(self, bound: socket.socket, number: int) -> None:
        """Sends packets of stream `number` by `bound` (`Drive`): the row names it."""

    def forget(self, bound: socket.socket | None, number: int) -> None:
        """Touches the stream's socket no more (`Drive`); the row is held."""
        if self._open and bound is not None:
            self._control(_CTL_DEL, bound.fileno(), number)

    def watch_port(self, bound: socket.socket, number: int) -> None:
        """Reads datagrams of the shared port `number` from `bound` (`Drive`): the port names it."""

    def forget_port(self, number: int) -> None:
        """Touches the port's socket no more (`Drive`): the port is not open."""

    def poke(self) -> None:
        """Wakes the thread, which sends what is due (`Drive`)."""
        if self._open:
            os.eventfd_write(self._poke, 1)

    def close(self) -> None:
        """Reads and sends no more (`Drive`). Idempotent."""
        if not self._open:
            return
        self._stop()
        self._open = False
        atexit.unregister(self._stop)
        self._loop.remove_reader(self._wake)
        if self._thread.is_alive():
            return
        for fd in (self._wake, self._poke):
            os.close(fd)
        self._epoll.close()

    def _run(self) -> None:
        _libc.prctl(_PR_SET_NAME, b"media plane")  # as `top -H` shows it
        if (priority := raised()) is not Priority.REAL_TIME:
            log.info("media plane is not at real-time priority", extra={"priority": priority.value})
        while True:
            try:
                return run(*self._memory)
            except (ArithmeticError, LookupError, ValueError) as error:  # what a compiled function may raise
                broken = self._taken_out()
                log.error("media plane broke", extra={"streams": broken}, exc_info=error)
                if not broken:
                    raise

    def _taken_out(self) -> list[int]:
        """Closes the streams at whose rows the thread was; the others go on. Returns their numbers."""
        rows = self._memory[0]
        broken = [number for number, owner in enumerate(rows["owner"][:, 0]) if owner == AT_WORK]
        for number in broken:
            rows[number]["open"] = 0
            rows[number]["owner"][0] = FREE
        for port in self._ports:
            if port["owner"][0] == AT_WORK:
                port["owner"][0] = FREE
        return broken

    def _stop(self) -> None:
        self._clock[Field.STOP] = 1
        self.poke()
        self._thread.join(_JOINED_S)
        if self._thread.is_alive():
            _abandoned.append((self._memory, self._ports))
            log.error("media plane does not end")

    def _woken(self) -> None:
        os.eventfd_read(self._wake)
        self._tell()

    def _control(self, operation: int, fd: int, number: int) -> None:
        """`select.epoll` gives the descriptor back; the plane wants the number of the stream."""
        event = struct.pack("=Iq" if EPOLL_EVENT_BYTES == 12 else "=I4xq", select.EPOLLIN, number)
        if _libc.epoll_ctl(self._epoll.fileno(), operation, fd, event):
            raise OSError(ctypes.get_errno(), "epoll_ctl")
