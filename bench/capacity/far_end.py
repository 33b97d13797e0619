"""The media of many callers in one compiled function, which needs neither the GIL nor a compiler.

It shares no code with the server's media plane: own packets, own loop over `recvmsg` and `clock_nanosleep`
of libc. A caller's packet leaves each 20 ms, in one of twenty phases of 1 ms; what came meanwhile is read
just after, with the kernel's time of arrival (SO_TIMESTAMPNS, nanoseconds of the system clock).

A caller hears the agent out, talks for as long as `speech` is, and waits for the answer."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numba
import numpy as np

from pipeline.audio.compiled import compiled

PHASES: Final = 20
FRAME_SAMPLES: Final = 160

CALLER: Final = np.dtype(
    [
        (name, "i8")
        for name in (
            "fd",  # 0: the call is not up
            "sequence", "timestamp", "ssrc",
            "floor", "frame", "pause_ns",
            "voiced_ns", "loud_ns",  # the caller's last voiced packet, the agent's last loud one
            "sent", "spoken", "unsent",
            "heard", "loud", "answered", "missed",
        )
    ],
    align=True,
)  # fmt: skip
"""One caller. What is counted, from `sent` on, is counted while `Clock.RECORDING` is set."""


class Floor(IntEnum):
    """State of a caller's turn-taking."""

    LISTENING = 0
    TALKING = 1
    WAITING = 2


class Clock(IntEnum):
    """The places of single numbers that both threads see."""

    STOP = 0
    CALLS = 1
    RECORDING = 2
    LATEST_NS = 3  # the latest tick while recording


_T: Final[Any] = numba.types
_typeof: Final[Any] = numba.typeof
_I64, _VOID = _T.int64, _T.void
_CALLERS: Final = _typeof(np.zeros(1, CALLER))
_CALLER: Final = _CALLERS.dtype
_NUMBERS, _TABLE = _T.int64[::1], _T.int64[:, ::1]
_OCTETS, _FRAMES = _T.uint8[::1], _T.uint8[:, ::1]

_send: Final = _T.ExternalFunction("send", _T.int64(_T.int32, _T.uintp, _T.uintp, _T.int32))
_recvmsg: Final = _T.ExternalFunction("recvmsg", _T.int64(_T.int32, _T.uintp, _T.int32))
_clock_gettime: Final = _T.ExternalFunction("clock_gettime", _T.int32(_T.int32, _T.uintp))
_clock_nanosleep: Final = _T.ExternalFunction(
    "clock_nanosleep", _T.int32(_T.int32, _T.int32, _T.uintp, _T.uintp)
)

_CLOCK_REALTIME: Final = 0
_TIMER_ABSTIME: Final = 1
_MSG_DONTWAIT: Final = 64
_MS: Final = 1_000_000
_HEADER_BYTES: Final = 12
_PACKET_BYTES: Final = 2048
_PATIENCE_NS: Final = 4000 * _MS
_LOUD_OCTETS: Final = 80

# Places in the array of numbers: a timespec, `struct msghdr` with its iovec, and a control message.
_TIME, _MESSAGE, _IOVEC, _CONTROL, _ALL = 0, 2, 9, 11, 19
_CONTROL_BYTES: Final = 64
_STAMP: Final = _CONTROL + 2  # the timespec behind struct cmsghdr

_STOP, _CALLS, _RECORDING, _LATEST = (int(each) for each in Clock)
_LISTENING, _TALKING, _WAITING = (int(each) for each in Floor)


@compiled(_I64(_NUMBERS), inner=True)
def _now_ns(numbers: Any) -> int:
    _clock_gettime(_T.int32(_CLOCK_REALTIME), numbers.ctypes.data)
    return int(numbers[_TIME] * 1_000_000_000 + numbers[_TIME + 1])


@compiled(_VOID(_CALLER, _I64, _I64), inner=True)
def _turn(caller: Any, frames: int, now_ns: int) -> None:
    """The caller's turn-taking, once a packet that was sent."""
    if caller.floor == _TALKING:
        caller.frame += 1
        if caller.frame == frames:
            caller.floor, caller.frame, caller.voiced_ns = _WAITING, 0, now_ns
    elif caller.floor == _WAITING:
        if now_ns - caller.voiced_ns > _PATIENCE_NS:
            caller.missed += 1
            caller.floor = _TALKING
    elif caller.loud_ns and now_ns - caller.loud_ns > caller.pause_ns:
        caller.floor = _TALKING


@compiled(_VOID(_CALLER, _FRAMES, _OCTETS, _I64, _I64), inner=True)
def _speak(caller: Any, speech: Any, packet: Any, recording: int, now_ns: int) -> None:
    """The caller's packet that is due: RFC 3550's header, and 20 ms of µ-law."""
    packet[0], packet[1] = 0x80, 0
    packet[2], packet[3] = caller.sequence >> 8 & 255, caller.sequence & 255
    for i in range(4):
        packet[4 + i] = caller.timestamp >> (24 - 8 * i) & 255
        packet[8 + i] = caller.ssrc >> (24 - 8 * i) & 255
    for i in range(FRAME_SAMPLES):
        packet[_HEADER_BYTES + i] = speech[caller.frame, i] if caller.floor == _TALKING else 0xFF
    size = _T.uintp(_HEADER_BYTES + FRAME_SAMPLES)
    sent = _send(_T.int32(caller.fd), packet.ctypes.data, size, _T.int32(_MSG_DONTWAIT))
    if recording:
        caller.sent += 1
        caller.spoken += caller.floor == _TALKING
        caller.unsent += sent < 0
    caller.sequence = (caller.sequence + 1) & 0xFFFF
    caller.timestamp = (caller.timestamp + FRAME_SAMPLES) & 0xFFFFFFFF


@compiled(_I64(_OCTETS, _I64), inner=True)
def _is_loud(packet: Any, size: int) -> int:
    silent = 0
    for i in range(_HEADER_BYTES, size):
        silent += packet[i] == 0xFF or packet[i] == 0x7F
    return 1 if silent < _LOUD_OCTETS else 0


@compiled(_I64(_CALLER, _OCTETS, _NUMBERS), inner=True)
def _received(caller: Any, packet: Any, numbers: Any) -> int:
    """Takes the next packet of the agent's; its size, below 0 where none waits."""
    at = numbers.ctypes.data
    numbers[_IOVEC], numbers[_IOVEC + 1] = packet.ctypes.data, _PACKET_BYTES
    numbers[_MESSAGE], numbers[_MESSAGE + 1] = 0, 0
    numbers[_MESSAGE + 2], numbers[_MESSAGE + 3] = at + 8 * _IOVEC, 1
    numbers[_MESSAGE + 4], numbers[_MESSAGE + 5] = at + 8 * _CONTROL, _CONTROL_BYTES
    numbers[_MESSAGE + 6] = 0
    return int(_recvmsg(_T.int32(caller.fd), at + 8 * _MESSAGE, _T.int32(_MSG_DONTWAIT)))


@compiled(_VOID(_CALLER, _OCTETS, _NUMBERS, _TABLE, _I64), inner=True)
def _hear(caller: Any, packet: Any, numbers: Any, record: Any, recording: int) -> None:
    """What has come from the agent. `record` gets arrival and sequence number of each packet, and the
    answers' latencies: from the caller's last voiced packet to the first loud one."""
    while True:
        size = _received(caller, packet, numbers)
        if size < 0:
            return
        came_ns = numbers[_STAMP] * 1_000_000_000 + numbers[_STAMP + 1]
        loud = _is_loud(packet, size)
        if recording and caller.heard < record.shape[1]:
            record[0, caller.heard] = came_ns
            record[1, caller.heard] = _I64(packet[2]) << 8 | _I64(packet[3])
            caller.heard += 1
            caller.loud += loud
        if not loud:
            continue
        caller.loud_ns = came_ns
        if caller.floor == _WAITING and came_ns > caller.voiced_ns:
            caller.floor = _LISTENING
            if recording:
                record[2, caller.answered] = came_ns - caller.voiced_ns
                caller.answered += 1


@compiled(_VOID(_CALLERS, _FRAMES, _T.int64[:, :, ::1], _NUMBERS), nogil=True)
def run(callers: Any, speech: Any, records: Any, clock: Any) -> None:
    """Sends and receives for `callers` until `Clock.STOP`. `speech`: 20 ms of µ-law a row. `records`: three
    rows for each caller, see `_hear`."""
    packet, numbers = np.empty(_PACKET_BYTES, np.uint8), np.zeros(_ALL, np.int64)
    due_ns = (_now_ns(numbers) // _MS + 1) * _MS
    while clock[_STOP] == 0:
        numbers[_TIME], numbers[_TIME + 1] = due_ns // 1_000_000_000, due_ns % 1_000_000_000
        at = numbers.ctypes.data
        _clock_nanosleep(_T.int32(_CLOCK_REALTIME), _T.int32(_TIMER_ABSTIME), at, _T.uintp(0))
        now_ns = _now_ns(numbers)
        if now_ns < due_ns:  # a signal came
            continue
        if clock[_RECORDING]:
            clock[_LATEST] = max(clock[_LATEST], now_ns - due_ns)
        for number in range(due_ns // _MS % PHASES, clock[_CALLS], PHASES):
            caller = callers[number]
            if caller.fd:
                _speak(caller, speech, packet, clock[_RECORDING], now_ns)
                _turn(caller, speech.shape[0], now_ns)
                _hear(caller, packet, numbers, records[number], clock[_RECORDING])
        due_ns += _MS
