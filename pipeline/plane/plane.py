"""The media plane as asyncio sees it: streams are opened, what happened comes in, frames and orders go out."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import select
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from pipeline.plane import atomic
from pipeline.plane.native import scratch
from pipeline.plane.receive import receive
from pipeline.plane.rows import PACKET_BYTES, Field, Happened, Rows, rows, shared
from pipeline.plane.run import EPOLL_EVENT_BYTES, run
from pipeline.plane.send import FRAME_NS, SLOT_NS, SLOTS

CAPACITY: Final = 1024
"""Streams of one plane; a row that was never used is no memory."""

_EPOLL_CTL_ADD, _EPOLL_CTL_DEL = 1, 2
_EPOLL_EVENT: Final = "=Iq" if EPOLL_EVENT_BYTES == 12 else "=I4xq"

News = Callable[[Happened, int, int], None]
"""What happened on a stream, with the two values of `Happened`. Returns at once and never raises."""


class Plane:
    """Streams on one thread. Make it after the last fork of the process, on its event loop; `close` returns
    when the thread has ended, and its memory outlives it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, capacity: int = CAPACITY) -> None:
        self.rows: Rows = rows(capacity)
        self.shared = shared()
        self._loop = loop
        self._scratch = scratch()
        self._own_scratch = scratch()  # Python's, beside that of the thread
        self._free = list(range(capacity))[::-1]
        self._left: deque[tuple[int, int]] = deque()  # rows, free when the events before a number were read
        self._news: list[News | None] = [None] * capacity
        self._slots = [0] * SLOTS
        self._slot_of = [0] * capacity
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._poke = os.eventfd(0, os.EFD_NONBLOCK)
        self._epoll_ctl = ctypes.CDLL(None, use_errno=True).epoll_ctl
        clock = self.shared.clock
        clock[Field.WAKE_FD], clock[Field.POKE_FD] = self._wake, self._poke
        clock[Field.EPOLL_FD] = self._epoll.fileno()
        loop.add_reader(self._wake, self._tell)
        self._thread = threading.Thread(
            target=run, args=(self.rows, self._scratch, self.shared), name="media plane", daemon=True
        )
        self._thread.start()
        atexit.register(self._stop)

    def __len__(self) -> int:
        """The number of open streams."""
        return sum(self._slots)

    @property
    def thread_id(self) -> int:
        """Of its thread, for the scheduler."""
        return self._thread.native_id or 0

    def close(self) -> None:
        """Ends the thread; streams that are open fall silent."""
        if not self._thread.is_alive():
            return
        self._stop()
        atexit.unregister(self._stop)
        self._loop.remove_reader(self._wake)
        for fd in (self._wake, self._poke):
            os.close(fd)
        self._epoll.close()

    def poke(self) -> None:
        """Does not let the first packet of an answer wait for the tick."""
        os.eventfd_write(self._poke, 1)

    def open(self, fd: int, news: News) -> int:
        """A stream over the datagram socket `fd`, from which nothing is taken yet; its number. Raises
        LookupError where the plane is full."""
        self._free_left()
        if not self._free:
            raise LookupError("no row is free on the media plane")
        number = self._free.pop()
        self._news[number] = news
        slot = self._slots.index(min(self._slots))
        self._slots[slot] += 1
        self._slot_of[number] = slot
        clock = self.shared.clock
        clock[Field.LINES] = max(int(clock[Field.LINES]), number + 1)
        self._watch(_EPOLL_CTL_ADD, fd, number)
        return number

    def shut(self, number: int) -> None:
        """The stream's row and descriptor are not touched any more."""
        self._news[number] = None
        with self.held(number) as line:
            self._watch(_EPOLL_CTL_DEL, int(line["fd"]), number)
            line["open"] = 0
            self.rows.words[number] = 0
        self._slots[self._slot_of[number]] -= 1
        # What the plane has told of this stream must not reach the next one on the row.
        self._left.append((number, int(self.shared.clock[Field.EVENT_HEAD])))

    def first_due_ns(self, number: int) -> int:
        """When the packets of a new stream begin."""
        now_ns = time.monotonic_ns()
        return now_ns // FRAME_NS * FRAME_NS + FRAME_NS + self._slot_of[number] * SLOT_NS

    def receive(self, number: int, data: bytes, at_ns: int) -> None:
        """A datagram of a stream that Python holds, arrived at `at_ns`: one that was put aside after all."""
        packet = np.zeros(PACKET_BYTES, np.uint8)
        packet[: len(data)] = np.frombuffer(data, np.uint8)
        receive(self.rows, self._own_scratch, number, packet, len(data), at_ns)

    def aside(self, slot: int) -> tuple[bytes, bytes]:
        """A datagram that was put aside, and the sockaddr that it came from; asked once, in their order."""
        shared = self.shared
        size, length = shared.aside_size[slot].tolist()
        data, sender = shared.aside[slot, :size].tobytes(), shared.aside_from[slot, :length].tobytes()
        shared.clock[Field.ASIDE_TAIL] += 1
        return data, sender

    @contextmanager
    def held(self, number: int) -> Iterator[Any]:
        """The row's record, for Python alone to change: the plane leaves a stream out that is held."""
        while not atomic.hold(self.rows.owner, number):
            time.sleep(0)
        try:
            yield self.rows.line[number]
        finally:
            atomic.let_go(self.rows.owner, number)

    def _watch(self, operation: int, fd: int, number: int) -> None:
        """`select.epoll` gives the descriptor back; the plane wants the number of the stream."""
        event = struct.pack(_EPOLL_EVENT, select.EPOLLIN, number)
        if self._epoll_ctl(self._epoll.fileno(), operation, fd, event):
            raise OSError(ctypes.get_errno(), "epoll_ctl")

    def _stop(self) -> None:
        self.shared.clock[Field.STOP] = 1
        self.poke()
        self._thread.join()

    def _tell(self) -> None:
        os.eventfd_read(self._wake)
        clock, events = self.shared.clock, self.shared.events
        head, tail = int(clock[Field.EVENT_HEAD]), int(clock[Field.EVENT_TAIL])
        first, last = tail % len(events), head % len(events)
        if first <= last:
            new = events[first:last].tolist()
        else:
            new = events[first:].tolist() + events[:last].tolist()
        clock[Field.EVENT_TAIL] = head
        for number, kind, one, two in new:
            news = self._news[number]
            if news is not None:
                news(kind, one, two)
        self._free_left()

    def _free_left(self) -> None:
        tail = int(self.shared.clock[Field.EVENT_TAIL])
        while self._left and self._left[0][1] <= tail:
            self._free.append(self._left.popleft()[0])
