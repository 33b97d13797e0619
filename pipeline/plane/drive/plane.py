"""The media plane as asyncio sees it: streams are opened, what happened comes in, frames and orders go
out."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from pipeline.errors import boundary
from pipeline.plane import atomic, rows
from pipeline.plane.called import address_of, take_at
from pipeline.plane.drive.contract import Drive, Memory
from pipeline.plane.drive.on_loop import OnLoop
from pipeline.plane.drive.on_thread import SUPPORTED, OnThread
from pipeline.plane.drive.rounds import Rounds
from pipeline.plane.drive.shared_port import Aside, SharedPort, begin_port
from pipeline.plane.port import new_port
from pipeline.plane.rows import PORTS, Field, Happened
from pipeline.plane.send import FRAME_NS, SLOT_NS, SLOTS

CAPACITY: Final = 1024
"""Streams of one plane; a row that was never used is no memory."""

_SAME_CLOCK_S: Final = 0.5
_ASIDE: Final = int(Happened.ASIDE)

log = logging.getLogger(__name__)


class PlaneFull(Exception):
    """No row of the media plane is free."""


News = Callable[[int, int, int], None]
"""What happened on a stream (`Happened`), with its two values. Returns at once and never raises."""


class Plane:
    """Streams on one thread, or on the event loop where the platform lacks what the thread needs. Make it on
    its event loop, after the last fork of the process."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, capacity: int = CAPACITY, on_thread: bool | None = None
    ) -> None:
        """`on_thread` None: where the platform supports it, and the loop's clock is that of the thread.
        `rounds`: the housekeeping of the streams."""
        self.rows = rows.rows(capacity)
        self.shared = rows.shared()
        self._clock, self._events = self.shared["clock"], self.shared["events"]
        self._scratch, self._own = rows.scratch(), rows.shared()  # Python's, beside those of the thread
        self._own_at = address_of(self._scratch), address_of(self._own)
        self._free = list(range(capacity))[::-1]
        self._left: deque[tuple[int, int, int]] = deque()
        self._news: list[News | None] = [None] * capacity
        self._slots = [0] * SLOTS
        self._slot_of = [0] * capacity
        self._dropped = self._reserved = 0
        self._loop, self.rounds = loop, Rounds(loop)
        if on_thread is None:
            on_thread = SUPPORTED and abs(loop.time() - time.monotonic()) < _SAME_CLOCK_S
        kind = OnThread if on_thread else OnLoop
        self._ports: list[Any] = []
        self._shared_ports: list[SharedPort | None] = []
        self._drive: Drive = kind(Memory(self.rows, self.shared, self._ports), loop, self._tell)

    def __len__(self) -> int:
        """The number of streams, those that are reserved included."""
        return self._reserved + sum(self._slots)

    @property
    def drive(self) -> Drive:
        """What runs the streams: the thread, or the event loop."""
        return self._drive

    def close(self) -> None:
        """Ends the thread; streams that are open fall silent, and may be shut still. Idempotent."""
        self._drive.close()

    def poke(self) -> None:
        """Does not let the first packet of an answer wait for the tick."""
        self._drive.poke()

    def reserve(self) -> int:
        """A row for a stream: its number. Raises `PlaneFull`."""
        self._free_left()
        if not self._free:
            raise PlaneFull("no row is free on the media plane")
        self._reserved += 1
        return self._free.pop()

    def give_back(self, number: int) -> None:
        """The reserved row is of no use."""
        self._reserved -= 1
        self._free.append(number)

    def open(self, number: int, bound: socket.socket | None, news: News) -> None:
        """A stream on the reserved row, over the datagram socket `bound`, from which nothing is taken yet;
        None: it is sent where `aim` says, and Python reads for it. Raises OSError for a socket that cannot
        be watched; the row is reserved still."""
        self._drive.watch(bound, number)
        self._reserved -= 1
        self._news[number] = news
        slot = self._slots.index(min(self._slots))
        self._slots[slot] += 1
        self._slot_of[number] = slot
        self._clock[Field.LINES] = max(int(self._clock[Field.LINES]), number + 1)
        self._drive.poke()

    def aim(self, number: int, bound: socket.socket, address: bytes) -> None:
        """The stream's packets leave by `bound` to the sockaddr `address` from now on. The row is held."""
        line = self.rows[number]
        line["remote"][: len(address)] = list(address)
        line["fd"], line["remote_size"] = bound.fileno(), len(address)
        self._drive.send_by(bound, number)

    def shut(self, number: int, bound: socket.socket | None) -> None:
        """The stream's row and its socket are not touched any more. `bound` is that of `open`."""
        self._news[number] = None
        ticks = int(self._clock[Field.TICKS])
        with self.held(number) as line:
            line["open"] = 0
            self._drive.forget(bound, number)
        self._slots[self._slot_of[number]] -= 1
        if not sum(self._slots):
            self._clock[Field.LINES] = 0
        # What the plane has told of this stream must not reach the next one on the row, and what it is about
        # to send of this stream must not leave by the next one's socket.
        self._left.append((number, int(self._clock[Field.EVENT_HEAD]), ticks + 1))

    def open_port(self, bound: socket.socket, aside: Aside) -> SharedPort:
        """Reads for many streams from the datagram socket `bound`; what is none of theirs comes to `aside`.
        Raises `PlaneFull`."""
        closed = [number for number, each in enumerate(self._ports) if not each["open"]]
        number = closed[0] if closed else len(self._ports)
        if not closed:
            if number == PORTS:
                raise PlaneFull("no port of the media plane is free")
            self._ports.append(new_port())
            self._shared_ports.append(None)
            self.shared["ports"][number] = address_of(self._ports[number])
            self._clock[Field.PORTS] = len(self._ports)
        port = self._ports[number]
        with atomic.held(port["owner"]):
            begin_port(port, bound.fileno(), number, int(self.rows.ctypes.data))
        shared_port = SharedPort(port, self._drive, self._loop, aside)
        self._shared_ports[number] = shared_port
        self._drive.watch_port(bound, number)
        self._drive.poke()
        return shared_port

    def expect(self, seconds: float) -> None:
        """Somebody is about to connect over a shared port: what comes there does not wait for the tick."""
        self._clock[Field.EAGER_NS] = round((self._loop.time() + seconds) * 1e9)
        self._drive.poke()

    def first_due_ns(self, number: int) -> int:
        """When the packets of a new stream begin."""
        now_ns = round(self._loop.time() * 1e9)
        return now_ns // FRAME_NS * FRAME_NS + FRAME_NS + self._slot_of[number] * SLOT_NS

    def receive(self, number: int, data: bytes, at_ns: int) -> None:
        """A datagram of a stream that Python holds, arrived at `at_ns`: one that was put aside after all, and
        that is SRTP no longer."""
        line, own = self.rows[number], self._own
        asides, encrypted = int(line["asides"]), int(line["encrypted"])
        line["encrypted"] = 0
        own["packet"][: len(data)] = np.frombuffer(data, np.uint8)
        own["sender"][:] = line["remote"]
        clock = own["clock"]
        clock[Field.SIZE], clock[Field.SENDER_LENGTH] = len(data), line["remote_size"]
        take_at(address_of(line), *self._own_at, at_ns)
        line["encrypted"] = encrypted
        clock[Field.EVENT_TAIL] = clock[Field.EVENT_HEAD]
        line["asides"] = asides

    def aside(self, number: int, slot: int) -> tuple[bytes, bytes]:
        """A datagram of the stream that was put aside, and the sockaddr that it came from; valid while the
        event is told."""
        line = self.rows[number]
        size, length = line["aside_size"][slot].tolist()
        return line["aside"][slot, :size].tobytes(), line["aside_from"][slot, :length].tobytes()

    @contextmanager
    def held(self, number: int) -> Iterator[Any]:
        """The row's record, for Python alone to change: the plane leaves a stream out that is held. Raises
        TimeoutError where the plane does not leave the row, which it does within microseconds."""
        line = self.rows[number]
        with atomic.held(line["owner"]):
            yield line

    def _tell(self) -> None:
        """Passes on what has happened. A defect in one stream's listener costs no other stream its events."""
        clock = self._clock
        new = self._new_events()
        dropped = int(clock[Field.DROPPED])
        if dropped != self._dropped:
            log.warning(
                "the event loop was late for the media plane", extra={"events": dropped - self._dropped}
            )
            self._dropped = dropped
            new += self._all_counts()
        left = iter(new)
        while self._pass_on(left):
            pass
        self._free_left()

    def _pass_on(self, left: Iterator[list[int]]) -> bool:
        """Passes on the events that are left, up to one whose listener breaks; False: all were passed on."""
        with boundary(log, "listener of a media stream broke") as told:
            for number, kind, one, two in left:
                if kind == Happened.ON_PORT:
                    self._read_port(number)
                    continue
                news, told.fields["stream"] = self._news[number], number
                try:
                    if news is not None:
                        news(kind, one, two)
                finally:
                    if kind == _ASIDE:
                        self.rows[number]["asides_read"] += 1
        return told.error is not None

    def _read_port(self, number: int) -> None:
        port = self._shared_ports[number]
        if port is not None:
            with boundary(log, "reader of a media port broke", port=number):
                port.read()

    def _new_events(self) -> list[list[int]]:
        clock, events = self._clock, self._events
        head, tail = int(clock[Field.EVENT_HEAD]), int(clock[Field.EVENT_TAIL])
        first, last = tail % len(events), head % len(events)
        if head == tail:
            new = []
        elif first < last:
            new = events[first:last].tolist()
        else:
            new = events[first:].tolist() + events[:last].tolist()
        clock[Field.EVENT_TAIL] = head
        return new

    def _all_counts(self) -> list[list[int]]:
        """Returns what each stream has counted up to now, as events: what was dropped is made up for."""
        new: list[list[int]] = [[each, Happened.ON_PORT, 0, 0] for each in range(len(self._ports))]
        for number, news in enumerate(self._news):
            if news is not None:
                line = self.rows[number]
                new.append([number, Happened.HEARD, int(line["frames"]), int(line["presses"])])
                new.append([number, Happened.SENT, 0, int(line["said_ns"])])
                new.append([number, Happened.KEYED, int(line["keys_sent"]), 0])
        return new

    def _free_left(self) -> None:
        tail, ticks = int(self._clock[Field.EVENT_TAIL]), int(self._clock[Field.TICKS])
        while self._left and self._left[0][1] <= tail and self._left[0][2] < ticks:
            number = self._left.popleft()[0]
            rows.clear(self.rows, number)
            self._free.append(number)
