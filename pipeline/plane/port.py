"""One UDP port that many streams share: whose a datagram is, and whether Python looks at it.

A datagram is told by where it comes from and by its first octet (RFC 7983). RTP of an address that Python has
given to a stream is that stream's, at once. STUN of anybody, and DTLS and RTCP of known addresses, are put
aside for Python, many at a time; all else is counted. Pure, as `pipeline.plane.step` is, whose working memory
the datagram lies in.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from pipeline.audio.compiled import compiled
from pipeline.plane.atomic import enter, fence, leave
from pipeline.plane.native import I64, SCRATCH, SHARED, U8, VOID, line_at, pointer_to
from pipeline.plane.rows import ADDRESS_BYTES, EVENTS, PACKET_BYTES, Field, Happened
from pipeline.plane.rows import LINE as LINE_FIELDS
from pipeline.plane.step import take_known, tell

SOURCES: Final = 1 << 15
"""Places for addresses: twice as many as the participants of a plane can have."""

_MOST_SOURCES: Final = SOURCES // 4 * 3
ASIDES: Final = 256
"""Datagrams that may wait for Python."""

_STRANGERS: Final = ASIDES // 2
WAITING: Final = 64
"""Datagrams that may wait for a row which Python holds, for microseconds."""

UNKNOWN: Final = -2
NO_STREAM: Final = -1
"""An address that is known, and whose RTP is nobody's."""

SOURCE: Final = np.dtype([("length", "i8"), ("number", "i8")], align=True)
"""What one address is: 0 octets long, none; and whose RTP comes from there."""

WAITS: Final = np.dtype([("number", "i8"), ("size", "i8"), ("arrived_ns", "i8")], align=True)
ASIDE: Final = np.dtype([("size", "i8"), ("length", "i8"), ("arrived_ns", "i8")], align=True)

# `strays`: datagrams that are nobody's; `dropped`: of known addresses, while too many waited.
_NUMBERS: Final = (
    "open", "fd", "number", "rows_at", "sources", "head", "tail", "waiting", "strays", "dropped",
)  # fmt: skip

PORT: Final = np.dtype(
    [
        ("owner", "i8", (1,)),  # who is at the port, see `pipeline.plane.atomic`
        *((name, "i8") for name in _NUMBERS),
        ("source", SOURCE, (SOURCES,)),
        ("addresses", "u1", (SOURCES, ADDRESS_BYTES)),
        ("waits", WAITS, (WAITING,)),
        ("waits_octets", "u1", (WAITING, PACKET_BYTES)),
        ("aside", ASIDE, (ASIDES,)),
        ("aside_from", "u1", (ASIDES, ADDRESS_BYTES)),
        ("aside_octets", "u1", (ASIDES, PACKET_BYTES)),
    ],
    align=True,
)
"""A port, laid out once and never moved. A page of it is memory once it is touched."""

_typeof: Final[Any] = numba.typeof
PORT_TYPE: Final[Any] = _typeof(np.zeros(1, PORT)).dtype
port_at: Final[Any] = pointer_to(PORT_TYPE)

_LINE_BYTES: Final = LINE_FIELDS.itemsize
_SIZE, _LENGTH, _URGENT = int(Field.SIZE), int(Field.SENDER_LENGTH), int(Field.URGENT)
_HEAD, _TAIL = int(Field.EVENT_HEAD), int(Field.EVENT_TAIL)
_ON_PORT: Final = int(Happened.ON_PORT)
_STUN: Final = 3  # the last first octet of a message (RFC 7983)
_MEDIA: Final = (128, 191)
_RTCP: Final = (192, 223)  # the second octet (RFC 5761 section 4)


def new_port() -> Any:
    """Memory for a port, whose addresses are all free."""
    return np.zeros(1, PORT)[0]


@compiled(I64(PORT_TYPE, U8, I64), inner=True)
def _place(port: Any, address: Any, length: int) -> int:
    """The place of an address in the table, or the free one where it would be."""
    hashed = I64(length)
    for i in range(2, length):
        hashed = (hashed * 31 + I64(address[i]) * 0x9E3779B1) & 0x7FFFFFFF
    place = (hashed ^ hashed >> 15) & (SOURCES - 1)
    while True:
        source = port.source[place]
        if source.length == 0:
            return int(place)
        if source.length == length:
            same = True
            for i in range(length):
                if port.addresses[place, i] != address[i]:
                    same = False
                    break
            if same:
                return int(place)
        place = (place + 1) & (SOURCES - 1)


@compiled(I64(PORT_TYPE, U8, I64), inner=True)
def stream_of(port: Any, address: Any, length: int) -> int:
    """Whose RTP comes from an address: a stream's number, `NO_STREAM` or `UNKNOWN`."""
    if not 0 < length <= ADDRESS_BYTES:
        return UNKNOWN
    source = port.source[_place(port, address, length)]
    return int(source.number) if source.length else UNKNOWN


@compiled(I64(PORT_TYPE, U8, I64, I64), inner=True)
def know(port: Any, address: Any, length: int, number: int) -> int:
    """RTP of an address is that of stream `number` from now on, or of none. 0: there is no place for it."""
    if not 0 < length <= ADDRESS_BYTES:
        return 0
    place = _place(port, address, length)
    source = port.source[place]
    if source.length == 0:
        if port.sources >= _MOST_SOURCES:
            return 0
        port.sources += 1
        for i in range(length):
            port.addresses[place, i] = address[i]
        source.length = length
    source.number = number
    return 1


@compiled(VOID(PORT_TYPE, U8, I64), inner=True)
def forget(port: Any, address: Any, length: int) -> None:
    """An address is known no more. Those behind it in the table are put where they are looked for."""
    if not 0 < length <= ADDRESS_BYTES:
        return
    place = _place(port, address, length)
    if port.source[place].length == 0:
        return
    port.source[place].length = 0
    port.sources -= 1
    place = (place + 1) & (SOURCES - 1)
    while port.source[place].length:
        moved = port.source[place]
        size, number, moved.length = moved.length, moved.number, 0
        there = _place(port, port.addresses[place], size)
        for i in range(size):
            port.addresses[there, i] = port.addresses[place, i]
        port.source[there].number, port.source[there].length = number, size
        place = (place + 1) & (SOURCES - 1)


@compiled(VOID(PORT_TYPE, SHARED, I64, I64), inner=True)
def _wait(port: Any, shared: Any, number: int, now_ns: int) -> None:
    """The datagram waits for a row that Python holds."""
    if port.waiting == WAITING:
        port.dropped += 1
        return
    waits, octets = port.waits[port.waiting], port.waits_octets[port.waiting]
    waits.number, waits.size, waits.arrived_ns = number, shared.clock[_SIZE], now_ns
    for i in range(waits.size):
        octets[i] = shared.packet[i]
    port.waiting += 1


@compiled(VOID(PORT_TYPE, SCRATCH, SHARED, I64, I64), inner=True)
def _pass_on(port: Any, scratch: Any, shared: Any, number: int, now_ns: int) -> None:
    """The datagram is that of stream `number`."""
    line = line_at(port.rows_at + number * _LINE_BYTES)
    if enter(line.owner[:]):
        take_known(line, scratch, shared, now_ns)
        leave(line.owner[:])
    else:
        _wait(port, shared, number, now_ns)


@compiled(VOID(PORT_TYPE, SHARED, I64, I64), inner=True)
def _put_aside(port: Any, shared: Any, most: int, now_ns: int) -> None:
    """A datagram that Python looks at, unless `most` wait already."""
    clock = shared.clock
    if port.head - port.tail >= most or clock[_HEAD] - clock[_TAIL] >= EVENTS:
        if most == ASIDES:
            port.dropped += 1
        else:
            port.strays += 1
        return
    slot = port.head % ASIDES
    aside, octets = port.aside[slot], port.aside_octets[slot]
    aside.size, aside.length, aside.arrived_ns = clock[_SIZE], clock[_LENGTH], now_ns
    for i in range(aside.size):
        octets[i] = shared.packet[i]
    for i in range(ADDRESS_BYTES):
        port.aside_from[slot, i] = shared.sender[i]
    fence()
    port.head += 1
    tell(shared, port.number, _ON_PORT, port.head, now_ns)


@compiled(VOID(PORT_TYPE, SCRATCH, SHARED, I64), inner=True)
def arrived(port: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """Takes the datagram in `Shared.packet` for the port at which the caller is."""
    size = shared.clock[_SIZE]
    if size < 2:  # of no protocol
        port.strays += 1
        return
    first, second = shared.packet[0], shared.packet[1]
    number = stream_of(port, shared.sender[:], shared.clock[_LENGTH])
    if first <= _STUN:
        _put_aside(port, shared, _STRANGERS if number == UNKNOWN else ASIDES, now_ns)
        shared.clock[_URGENT] = 1
    elif number == UNKNOWN:
        port.strays += 1
    elif first < _MEDIA[0] or first > _MEDIA[1]:
        _put_aside(port, shared, ASIDES, now_ns)
        shared.clock[_URGENT] = 1
    elif _RTCP[0] <= second <= _RTCP[1]:
        _put_aside(port, shared, ASIDES, now_ns)
    elif number == NO_STREAM:
        port.strays += 1
    else:
        _pass_on(port, scratch, shared, number, now_ns)


@compiled(VOID(PORT_TYPE, SCRATCH, SHARED), inner=True)
def again(port: Any, scratch: Any, shared: Any) -> None:
    """What waited for rows that Python held goes on to them, in its order."""
    count, port.waiting = port.waiting, 0
    for k in range(count):
        waits, octets = port.waits[k], port.waits_octets[k]
        number, arrived_ns = waits.number, waits.arrived_ns
        shared.clock[_SIZE] = waits.size
        for i in range(waits.size):
            shared.packet[i] = octets[i]
        _pass_on(port, scratch, shared, number, arrived_ns)
