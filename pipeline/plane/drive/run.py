"""The plane on a thread of its own: sockets and sleep around `step`, in one function that never needs the
GIL.

numba resolves the names of libc in the process: nothing is built and nothing is linked.
"""

from __future__ import annotations

import platform
from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.atomic import enter, leave
from pipeline.plane.native import I64, LINE, ROWS, SCRATCH, SHARED, VOID, T
from pipeline.plane.port import PORT_TYPE, again, arrived, port_at
from pipeline.plane.rows import ADDRESS_BYTES, PACKET_BYTES, Field
from pipeline.plane.send import FRAME_NS, SLOT_NS
from pipeline.plane.step import count_sent, due, take

_recvfrom: Final = T.ExternalFunction(
    "recvfrom", T.int64(T.int32, T.uintp, T.uintp, T.int32, T.uintp, T.uintp)
)
_sendto: Final = T.ExternalFunction("sendto", T.int64(T.int32, T.uintp, T.uintp, T.int32, T.uintp, T.uint32))
_drain: Final = T.ExternalFunction("read", T.int64(T.int32, T.uintp, T.uintp))
_write: Final = T.ExternalFunction("write", T.int64(T.int32, T.uintp, T.uintp))
_epoll_wait: Final = T.ExternalFunction("epoll_wait", T.int32(T.int32, T.uintp, T.int32, T.int32))
_ppoll: Final = T.ExternalFunction("ppoll", T.int32(T.uintp, T.uint64, T.uintp, T.uintp))
_clock_gettime: Final = T.ExternalFunction("clock_gettime", T.int32(T.int32, T.uintp))

EPOLL_EVENT_BYTES: Final = 12 if platform.machine() == "x86_64" else 16
"""`struct epoll_event` is packed on x86 only."""

_EPOLL_DATA: Final = EPOLL_EVENT_BYTES - 8
_MSG_DONTWAIT: Final = 64
_CLOCK_MONOTONIC: Final = 1
_POLLIN: Final = 1
_READY: Final = 64
_BURST: Final = 64
"""Datagrams of one stream in one tick: strangers must not hold up the other calls."""

_PORT_BURST: Final = 512
"""Datagrams of one shared port in one tick: twice what a full plane of streams sends."""

_IDLE_NS: Final = 100_000_000

_LINES: Final = int(Field.LINES)
_STOP, _HEAD, _TICKS, _LATEST = int(Field.STOP), int(Field.EVENT_HEAD), int(Field.TICKS), int(Field.LATEST_NS)
_SIZE, _LENGTH = int(Field.SIZE), int(Field.SENDER_LENGTH)
_BETWEEN, _BETWEEN_NS = int(Field.BETWEEN), int(Field.BETWEEN_NS)
_TAIL, _URGENT = int(Field.EVENT_TAIL), int(Field.URGENT)
_WAKE_FD, _POKE_FD, _EPOLL_FD = int(Field.WAKE_FD), int(Field.POKE_FD), int(Field.EPOLL_FD)
_PORTS, _EAGER_NS = int(Field.PORTS), int(Field.EAGER_NS)
_POKED, _READABLE = 1, 2


@compiled(I64(SHARED), inner=True)
def _now_ns(shared: Any) -> int:
    """CLOCK_MONOTONIC, which is the clock of the event loop."""
    pair = shared.pair
    _clock_gettime(T.int32(_CLOCK_MONOTONIC), pair.ctypes.data)
    return int(pair[0] * 1_000_000_000 + pair[1])


@compiled(I64(SHARED, I64), inner=True)
def _poll(shared: Any, now_ns: int) -> int:
    """What wakes the plane: a poke, and where somebody connects, or there is no stream, what comes on the
    shared ports. How many."""
    clock, polled = shared.clock, shared.polled
    polled[0] = clock[_POKE_FD] & 0xFFFFFFFF | _POLLIN << 32
    count = 1
    if clock[_LINES] == 0 or now_ns < clock[_EAGER_NS]:
        for k in range(clock[_PORTS]):
            port = port_at(shared.ports[k])
            if shared.ports[k] and port.open:
                polled[count] = port.fd & 0xFFFFFFFF | _POLLIN << 32
                count += 1
    return count


@compiled(I64(SHARED, I64), inner=True)
def _sleep(shared: Any, due_ns: int) -> int:
    """Until the tick, or until a packet is due before it (0), or until Python pokes (`_POKED`), or something
    has come on a port for which the plane does not wait (`_READABLE`)."""
    clock, pair, polled = shared.clock, shared.pair, shared.polled
    until_ns = min(due_ns, clock[_BETWEEN_NS]) if clock[_BETWEEN] else due_ns
    now_ns = _now_ns(shared)
    left_ns = until_ns - now_ns
    if left_ns <= 0:
        return 0
    count = _poll(shared, now_ns)
    pair[0], pair[1] = left_ns // 1_000_000_000, left_ns % 1_000_000_000
    if _ppoll(polled.ctypes.data, T.uint64(count), pair.ctypes.data, T.uintp(0)) <= 0:
        return 0
    if polled[0] >> 48 & _POLLIN == 0:
        return _READABLE
    _drain(T.int32(clock[_POKE_FD]), pair.ctypes.data + 24, T.uintp(8))
    return _POKED


@compiled(VOID(LINE, SCRATCH, SHARED, I64), inner=True)
def _read(line: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """What has come on one socket. A well-behaved stream has one packet a tick, and asking for a second would
    cost a system call a packet; what is dropped is drained."""
    clock, pair = shared.clock, shared.pair
    fd = T.int32(line.fd)
    packet, sender, length = shared.packet.ctypes.data, shared.sender.ctypes.data, pair.ctypes.data
    for _ in range(_BURST if line.open else 0):
        pair[0] = ADDRESS_BYTES
        size = _recvfrom(fd, packet, T.uintp(PACKET_BYTES), T.int32(_MSG_DONTWAIT), sender, length)
        if size < 0:
            return
        clock[_SIZE], clock[_LENGTH] = size, pair[0] & 0xFFFFFFFF
        if take(line, scratch, shared, now_ns):
            return


@compiled(VOID(LINE, SHARED, I64), inner=True)
def _send(line: Any, shared: Any, packets: int) -> None:
    """What lies in `outbox`."""
    fd, remote, outbox = T.int32(line.fd), line.remote.ctypes.data, shared.outbox.ctypes.data
    for k in range(packets):
        size, length = shared.outgoing[k], T.uint32(line.remote_size)
        sent = _sendto(fd, outbox + k * PACKET_BYTES, T.uintp(size), T.int32(_MSG_DONTWAIT), remote, length)
        count_sent(line, size if sent > 0 else 0)


@compiled(VOID(ROWS, SCRATCH, SHARED, I64), inner=True)
def _read_all(rows: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """What has come on the sockets that are ready; that of a row which Python holds waits in its socket."""
    ready, count, epoll = shared.ready, _READY, T.int32(shared.clock[_EPOLL_FD])
    while count == _READY:
        count = _epoll_wait(epoll, ready.ctypes.data, T.int32(_READY), T.int32(0))
        for k in range(count):
            at = k * EPOLL_EVENT_BYTES + _EPOLL_DATA
            line = rows[I64(ready[at]) | I64(ready[at + 1]) << 8]
            if enter(line.owner[:]):
                _read(line, scratch, shared, now_ns)
                leave(line.owner[:])


@compiled(VOID(PORT_TYPE, SCRATCH, SHARED, I64), inner=True)
def _read_port(port: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """What has come on a port that many streams share."""
    clock, pair, fd = shared.clock, shared.pair, T.int32(port.fd)
    packet, sender, length = shared.packet.ctypes.data, shared.sender.ctypes.data, pair.ctypes.data
    if port.waiting:
        again(port, scratch, shared)
    for _ in range(_PORT_BURST):
        pair[0] = ADDRESS_BYTES
        size = _recvfrom(fd, packet, T.uintp(PACKET_BYTES), T.int32(_MSG_DONTWAIT), sender, length)
        if size < 0:
            return
        clock[_SIZE], clock[_LENGTH] = size, pair[0] & 0xFFFFFFFF
        arrived(port, scratch, shared, now_ns)


@compiled(VOID(SCRATCH, SHARED, I64), inner=True)
def _read_ports(scratch: Any, shared: Any, now_ns: int) -> None:
    """What has come on all shared ports; that of a port which Python holds waits in its socket."""
    for k in range(shared.clock[_PORTS]):
        port = port_at(shared.ports[k])
        if shared.ports[k] and port.open and enter(port.owner[:]):
            if port.open:
                _read_port(port, scratch, shared, now_ns)
            leave(port.owner[:])


@compiled(VOID(LINE, SCRATCH, SHARED, I64), inner=True)
def _send_due(line: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """What is due of one stream. The row stays entered until its packets have left; one that Python holds is
    due in the next tick."""
    if line.open and enter(line.owner[:]):
        if line.open:
            _send(line, shared, due(line, scratch, shared, now_ns))
        leave(line.owner[:])


@compiled(VOID(ROWS, SCRATCH, SHARED, I64), inner=True)
def _send_all(rows: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """What is due of all streams."""
    shared.clock[_BETWEEN] = 0
    for number in range(shared.clock[_LINES]):
        _send_due(rows[number], scratch, shared, now_ns)


@compiled(VOID(ROWS, SCRATCH, SHARED, I64), inner=True)
def _send_between(rows: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """What is due of the streams in `between`. Those with nothing due yet are put there again, no further
    back."""
    count = shared.clock[_BETWEEN]
    shared.clock[_BETWEEN] = 0
    for k in range(count):
        _send_due(rows[shared.between[k]], scratch, shared, now_ns)


@compiled(I64(SHARED, I64, I64), inner=True)
def _next_due(shared: Any, due_ns: int, now_ns: int) -> int:
    """When the next tick is due, after one at `now_ns` for that of `due_ns` or for a poke before it."""
    clock, late_ns = shared.clock, now_ns - due_ns
    if late_ns >= 0:
        clock[_LATEST] = max(clock[_LATEST], late_ns)
        clock[_TICKS] += 1
    elif -late_ns <= SLOT_NS:
        return due_ns
    return int(now_ns // SLOT_NS * SLOT_NS + (SLOT_NS if clock[_LINES] else _IDLE_NS))


@compiled(I64(SHARED, I64, I64), inner=True)
def _wake(shared: Any, woken_ns: int, now_ns: int) -> int:
    """Wakes Python, last woken at `woken_ns`, for what is wanted at once; for what else waits once in 20 ms,
    since a wake costs more than an event. Returns when Python was last woken."""
    clock = shared.clock
    waits = clock[_HEAD] != clock[_TAIL] and now_ns // FRAME_NS != woken_ns // FRAME_NS
    if clock[_URGENT] == 0 and not waits:
        return woken_ns
    clock[_URGENT] = 0
    shared.pair[3] = 1
    _write(T.int32(clock[_WAKE_FD]), shared.pair.ctypes.data + 24, T.uintp(8))
    return now_ns


@compiled(VOID(ROWS, SCRATCH, SHARED), nogil=True)
def run(rows: Any, scratch: Any, shared: Any) -> None:
    """Until `STOP`: reads what has come, sends what is due, and wakes Python if it has something to look at.
    The tick is a quarter of a frame, longer for a plane without streams; a poke is a tick of its own. Between
    ticks nothing is read."""
    clock = shared.clock
    due_ns, woken_ns = _now_ns(shared) // SLOT_NS * SLOT_NS + SLOT_NS, 0
    while clock[_STOP] == 0:
        woken = _sleep(shared, due_ns)
        now_ns = _now_ns(shared)
        if woken == _READABLE:
            _read_ports(scratch, shared, now_ns)
        if woken == _POKED or now_ns >= due_ns:
            _read_all(rows, scratch, shared, now_ns)
            _read_ports(scratch, shared, now_ns)
            _send_all(rows, scratch, shared, now_ns)
            due_ns = _next_due(shared, due_ns, now_ns)
        else:
            _send_between(rows, scratch, shared, now_ns)
        woken_ns = _wake(shared, woken_ns, now_ns)
