"""The plane on a thread of its own: sockets and sleep around `step`, in one function that never needs the GIL.

numba resolves the names of libc in the process: nothing is built and nothing is linked.
"""

from __future__ import annotations

import platform
from typing import Any, Final

from pipeline.plane.native import I64, ROWS, SCRATCH, SHARED, VOID, T, native
from pipeline.plane.rows import ADDRESS_BYTES, OUTBOX, PACKET_BYTES, Field
from pipeline.plane.send import SLOT_NS
from pipeline.plane.step import due, take

_recvfrom: Final = T.ExternalFunction(
    "recvfrom", T.int64(T.int32, T.uintp, T.uintp, T.int32, T.uintp, T.uintp)
)
_sendto: Final = T.ExternalFunction(
    "sendto", T.int64(T.int32, T.uintp, T.uintp, T.int32, T.uintp, T.uint32)
)
_read: Final = T.ExternalFunction("read", T.int64(T.int32, T.uintp, T.uintp))
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

_STOP, _HEAD, _TICKS, _LATEST = int(Field.STOP), int(Field.EVENT_HEAD), int(Field.TICKS), int(Field.LATEST_NS)
_WAKE_FD, _POKE_FD, _EPOLL_FD = int(Field.WAKE_FD), int(Field.POKE_FD), int(Field.EPOLL_FD)


@native(I64, SHARED)
def _now_ns(shared: Any) -> int:
    """CLOCK_MONOTONIC, which is the clock of the event loop."""
    pair = shared.pair
    _clock_gettime(T.int32(_CLOCK_MONOTONIC), pair.ctypes.data)
    return int(pair[0] * 1_000_000_000 + pair[1])


@native(VOID, SHARED, I64)
def _sleep(shared: Any, due_ns: int) -> None:
    """Until the tick, or until Python pokes."""
    left_ns = due_ns - _now_ns(shared)
    if left_ns <= 0:
        return
    pair = shared.pair
    fd = I64(shared.clock[_POKE_FD])
    pair[0], pair[1] = left_ns // 1_000_000_000, left_ns % 1_000_000_000
    pair[2] = fd & 0xFFFFFFFF | _POLLIN << 32  # struct pollfd
    address = pair.ctypes.data
    if _ppoll(address + 16, T.uint64(1), address, T.uintp(0)) > 0:
        _read(T.int32(fd), address + 24, T.uintp(8))


@native(VOID, ROWS, SCRATCH, SHARED, I64, I64)
def _read_line(rows: Any, scratch: Any, shared: Any, number: int, now_ns: int) -> None:
    """What has come on one socket. A well-behaved stream has one packet a tick, and asking for a second would
    cost a system call a packet; what is dropped is drained."""
    data, sender, pair = shared.packet, shared.sender, shared.pair
    fd = T.int32(rows.line[number].fd)
    for _ in range(_BURST):
        pair[0] = ADDRESS_BYTES
        size = _recvfrom(
            fd, data.ctypes.data, T.uintp(PACKET_BYTES), T.int32(_MSG_DONTWAIT), sender.ctypes.data, pair.ctypes.data
        )  # fmt: skip
        if size < 0:
            return
        length = I64(pair[0]) & 0xFFFFFFFF
        if take(rows, scratch, shared, number, data, size, sender, length, now_ns):
            return


@native(VOID, ROWS, SCRATCH, SHARED, I64)
def _read_all(rows: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    ready = shared.ready
    while True:
        count = _epoll_wait(T.int32(shared.clock[_EPOLL_FD]), ready.ctypes.data, T.int32(_READY), T.int32(0))
        for k in range(count):
            at = k * EPOLL_EVENT_BYTES + _EPOLL_DATA
            number = I64(ready[at]) | I64(ready[at + 1]) << 8
            _read_line(rows, scratch, shared, number, now_ns)
        if count < _READY:
            return


@native(VOID, ROWS, SCRATCH, SHARED, I64)
def _send_due(rows: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    first = 0
    while True:
        done = due(rows, scratch, shared, first, now_ns)
        for k in range(done & 0xFFFF):
            number, size = shared.outgoing[k, 0], shared.outgoing[k, 1]
            line = rows.line[number]
            sent = _sendto(
                T.int32(line.fd), shared.outbox.ctypes.data + k * PACKET_BYTES, T.uintp(size),
                T.int32(_MSG_DONTWAIT), rows.remote.ctypes.data + number * ADDRESS_BYTES, T.uint32(line.remote_size),
            )  # fmt: skip
            if sent > 0:
                line.packets_sent += 1
                line.octets_sent += size - 12
            else:
                line.send_errors += 1
        first = done >> 16
        if first == 0:
            return


@native(VOID, ROWS, SCRATCH, SHARED, I64)
def tick(rows: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """Reads what has come, sends what is due, and wakes Python if it has something to look at."""
    clock = shared.clock
    before = clock[_HEAD]
    _read_all(rows, scratch, shared, now_ns)
    _send_due(rows, scratch, shared, now_ns)
    if clock[_HEAD] != before:
        shared.pair[3] = 1
        _write(T.int32(clock[_WAKE_FD]), shared.pair.ctypes.data + 24, T.uintp(8))


@native(VOID, ROWS, SCRATCH, SHARED, called_by_python=True)
def run(rows: Any, scratch: Any, shared: Any) -> None:
    """Until `STOP`. The tick is a quarter of a frame; a poke is a tick of its own."""
    clock = shared.clock
    due_ns = _now_ns(shared) // SLOT_NS * SLOT_NS + SLOT_NS
    while clock[_STOP] == 0:
        _sleep(shared, due_ns)
        now_ns = _now_ns(shared)
        late_ns = now_ns - due_ns
        tick(rows, scratch, shared, now_ns)
        if late_ns >= 0:
            clock[_LATEST] = max(clock[_LATEST], late_ns)
            clock[_TICKS] += 1
            due_ns += (late_ns // SLOT_NS + 1) * SLOT_NS
