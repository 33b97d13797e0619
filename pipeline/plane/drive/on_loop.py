"""The plane on the event loop: slower, and silent while Python stands still, but wherever Python runs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final

from pipeline.plane.address import sockaddr, unpacked
from pipeline.plane.called import address_of, again_at, arrived_at, count_sent_at, due_at, take_at
from pipeline.plane.drive.contract import Memory
from pipeline.plane.rows import Field, scratch
from pipeline.plane.send import SLOT_NS

_BURST: Final = 64  # datagrams of one stream in one go: strangers must not hold up the other calls


class OnLoop:
    """A `Drive` of the loop's readers and timers, on the loop's clock."""

    def __init__(self, memory: Memory, loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
        """`tell` is called where there are events."""
        self._rows, self._shared, self._ports = memory
        shared, self._loop, self._tell = self._shared, loop, tell
        self._clock, self._scratch = shared["clock"], scratch()
        self._with = address_of(self._scratch), address_of(shared)
        self._places: dict[int, int] = {}
        self._packet = memoryview(shared["packet"])
        self._sockets: dict[int, socket.socket] = {}  # sent by
        self._read_from: dict[int, socket.socket] = {}
        self._shared_ports: dict[int, socket.socket] = {}
        self._poked: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._between: asyncio.TimerHandle | None = None

    def watch(self, bound: socket.socket | None, number: int) -> None:
        """Reads datagrams of stream `number` from `bound`, and sends its packets by it (`Drive`)."""
        self._places[number] = address_of(self._rows[number])
        if bound is not None:
            self._sockets[number] = self._read_from[number] = bound
            self._loop.add_reader(bound, self._read, number)
        if self._timer is None:
            self._tick()

    def send_by(self, bound: socket.socket, number: int) -> None:
        """Sends packets of stream `number` by `bound` (`Drive`)."""
        self._sockets[number] = bound

    def forget(self, bound: socket.socket | None, number: int) -> None:
        """Touches the stream's socket no more (`Drive`); the row is held."""
        del self._places[number]
        self._sockets.pop(number, None)
        if bound is not None:
            self._loop.remove_reader(self._read_from.pop(number))
        self._clock[Field.TICKS] += 2  # nobody is about to send for the stream

    def watch_port(self, bound: socket.socket, number: int) -> None:
        """Reads datagrams of the shared port `number` from `bound` (`Drive`)."""
        self._shared_ports[number] = bound
        self._loop.add_reader(bound, self._read_port, bound, address_of(self._ports[number]))

    def forget_port(self, number: int) -> None:
        """Touches the port's socket no more (`Drive`)."""
        self._loop.remove_reader(self._shared_ports.pop(number))

    def poke(self) -> None:
        """Sends what is due on the loop's next turn (`Drive`)."""
        if self._poked is None and self._timer is not None:
            self._poked = self._loop.call_soon(self._send)

    def close(self) -> None:
        """Reads and sends no more (`Drive`). Idempotent."""
        for bound in (*self._read_from.values(), *self._shared_ports.values()):
            self._loop.remove_reader(bound)
        for each in (self._timer, self._between, self._poked):
            if each is not None:
                each.cancel()

    def _now_ns(self) -> int:
        return round(self._loop.time() * 1e9)

    def _came(self, bound: socket.socket) -> bool:
        """Puts a datagram where `step` takes it from; False: none has come."""
        try:
            size, address = bound.recvfrom_into(self._packet)
        except OSError:
            return False
        sender = sockaddr(address)
        self._shared["sender"][: len(sender)] = list(sender)
        self._clock[Field.SIZE], self._clock[Field.SENDER_LENGTH] = size, len(sender)
        return True

    def _read(self, number: int) -> None:
        bound = self._sockets[number]
        for _ in range(_BURST):
            if not self._came(bound) or take_at(self._places[number], *self._with, self._now_ns()):
                break
        self._tell_news()

    def _read_port(self, bound: socket.socket, port: int) -> None:
        again_at(port, *self._with)
        for _ in range(_BURST):
            if not self._came(bound):
                break
            arrived_at(port, *self._with, self._now_ns())
        self._tell_news()

    def _tick(self) -> None:
        self._timer = None
        if not self._places:
            return
        self._clock[Field.TICKS] += 1
        self._timer = self._loop.call_at((self._now_ns() // SLOT_NS + 1) * SLOT_NS / 1e9, self._tick)
        self._send()

    def _send(self) -> None:
        self._poked = None
        self._send_due(self._places)

    def _send_between(self) -> None:
        count = self._clock[Field.BETWEEN]
        self._send_due(each for each in self._shared["between"][:count].tolist() if each in self._places)

    def _send_due(self, numbers: Iterable[int]) -> None:
        """Sends what is due of these streams, and comes back for what is due before the next tick."""
        shared, clock, now_ns = self._shared, self._clock, self._now_ns()
        if self._between is not None:
            self._between.cancel()
        clock[Field.BETWEEN] = 0
        for number in numbers:
            for k in range(due_at(self._places[number], *self._with, now_ns)):
                self._send_packet(number, shared["outbox"][k, : shared["outgoing"][k]].tobytes())
        if clock[Field.BETWEEN]:
            self._between = self._loop.call_at(clock[Field.BETWEEN_NS] / 1e9, self._send_between)
        self._tell_news()

    def _send_packet(self, number: int, packet: bytes) -> None:
        line = self._rows[number]
        try:
            self._sockets[number].sendto(packet, unpacked(line["remote"][: line["remote_size"]].tobytes()))
        except OSError:
            count_sent_at(self._places[number], 0)
        else:
            count_sent_at(self._places[number], len(packet))

    def _tell_news(self) -> None:
        if self._clock[Field.EVENT_HEAD] != self._clock[Field.EVENT_TAIL]:
            self._tell()
