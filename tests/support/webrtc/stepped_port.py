"""A UDP port that streams share, stepped by hand: without sockets, threads and time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from mediaserver.rooms.webrtc.receiver import OpusReceiver
from pipeline.plane import atomic
from pipeline.plane.called import address_of, again_at, arrived_at, forget_at, know_at
from pipeline.plane.drive.shared_port import begin_port
from pipeline.plane.port import ASIDES, new_port
from pipeline.plane.rows import Field, rows, scratch, shared
from pipeline.plane.setup import begin_sending

PT: Final = 111
_SCRATCH: Final = scratch()


def at(host: int, port: int = 5000) -> bytes:
    """The sockaddr of 192.0.2.HOST."""
    return b"\x02\x00" + port.to_bytes(2, "big") + bytes((192, 0, 2, host)) + bytes(8)


class SteppedPort:
    """A port with `streams` rows that hear Opus of payload type `PT`."""

    def __init__(self, streams: int = 1) -> None:
        self.lines = rows(streams)
        self.shared, self.port = shared(), new_port()
        begin_port(self.port, -1, 0, int(self.lines.ctypes.data))
        self.ears = [OpusReceiver(self.lines[number], number) for number in range(streams)]
        for line, ear in zip(self.lines, self.ears, strict=True):
            begin_sending(line, -1, first_due_ns=0)
            ear.receive({PT})
        self._memory = address_of(self.port), address_of(_SCRATCH), address_of(self.shared)

    def know(self, address: bytes, number: int) -> bool:
        """RTP of an address is that of stream `number`."""
        return bool(know_at(address_of(self.port), np.frombuffer(bytearray(address), np.uint8), number))

    def forget(self, address: bytes) -> None:
        """An address is known no more."""
        forget_at(address_of(self.port), np.frombuffer(bytearray(address), np.uint8))

    def datagram(self, data: bytes, address: bytes, now: float = 0.0) -> None:
        """A datagram comes from `address`."""
        clock = self.shared["clock"]
        self.shared["packet"][: len(data)] = np.frombuffer(data, np.uint8)
        self.shared["sender"][: len(address)] = list(address)
        clock[[Field.SIZE, Field.SENDER_LENGTH]] = len(data), len(address)
        arrived_at(*self._memory, round(now * 1e9))

    def again(self) -> None:
        """The next tick begins."""
        again_at(*self._memory)

    @contextmanager
    def held(self, number: int) -> Iterator[Any]:
        """Python holds the row of a stream."""
        with atomic.held(self.lines[number]["owner"]):
            yield self.lines[number]

    def asides(self) -> list[tuple[bytes, bytes, float]]:
        """What was put aside since this was asked for: datagrams, where from, and when."""
        found, port, clock = [], self.port, self.shared["clock"]
        for place in range(int(port["tail"]), int(port["head"])):
            size, length, arrived_ns = port["aside"][place % ASIDES].item()
            data, sender = port["aside_octets"][place % ASIDES], port["aside_from"][place % ASIDES]
            found.append((data[:size].tobytes(), sender[:length].tobytes(), arrived_ns / 1e9))
        port["tail"], clock[Field.EVENT_TAIL] = port["head"], clock[Field.EVENT_HEAD]
        return found
