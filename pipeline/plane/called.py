"""The plane's kernels for rows that Python calls: reception of each packet for the microphones of rooms, and
`step` on the event loop and by hand.

numba takes 6 µs to take a record from Python, for numpy describes all of its fields each time; a number takes
nothing. So these functions are handed addresses.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba.extending import intrinsic

from pipeline.audio.compiled import compiled
from pipeline.plane import step
from pipeline.plane.atomic import enter, leave
from pipeline.plane.native import I64, LINE, SCRATCH, SHARED, U8, VOID, T
from pipeline.plane.reception import receive
from pipeline.plane.reception.hearing import is_news
from pipeline.plane.reception.receive import FRAMES_SHIFT

_ADDRESS: Final = T.uintp
BUSY: Final = -1


def address_of(record: Any) -> int:
    """Where a record of `pipeline.plane.rows` lies; the caller keeps it."""
    return int(record[record.dtype.names[0]].ctypes.data)


def _pointer(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
    """A record is handed on as its address."""
    return builder.inttoptr(args[0], context.get_value_type(signature.return_type))


line_at: Final[Any] = intrinsic(lambda typing_context, address: (LINE(_ADDRESS), _pointer))
scratch_at: Final[Any] = intrinsic(lambda typing_context, address: (SCRATCH(_ADDRESS), _pointer))
shared_at: Final[Any] = intrinsic(lambda typing_context, address: (SHARED(_ADDRESS), _pointer))


@compiled(I64(_ADDRESS, _ADDRESS, U8, I64, I64))
def receive_at(line: int, scratch: int, data: Any, size: int, now_ns: int) -> int:
    """Takes one datagram of the far end's, as `receive.receive` does. How many frames were heard by now,
    where there are news; else 0, and `BUSY` where the plane is at the row: for microseconds."""
    record = line_at(line)
    if not enter(record.owner[:]):
        return BUSY
    presses = record.presses
    made = receive.receive(record, scratch_at(scratch), data, size, now_ns)
    frames = 0
    if made >> FRAMES_SHIFT and is_news(record, presses):
        frames = record.frames
    leave(record.owner[:])
    return int(frames)


@compiled(I64(_ADDRESS, _ADDRESS, _ADDRESS, I64))
def take_at(line: int, scratch: int, shared: int, now_ns: int) -> int:
    """Takes the datagram in `Shared.packet`, as `step.take` does."""
    return step.take(line_at(line), scratch_at(scratch), shared_at(shared), now_ns)


@compiled(I64(_ADDRESS, _ADDRESS, _ADDRESS, I64))
def due_at(line: int, scratch: int, shared: int, now_ns: int) -> int:
    """The number of packets in `outbox`, as `step.due` puts them there; none of a row that is held."""
    record, count = line_at(line), 0
    if record.open and enter(record.owner[:]):
        count = step.due(record, scratch_at(scratch), shared_at(shared), now_ns)
        leave(record.owner[:])
    return int(count)


@compiled(VOID(_ADDRESS, I64))
def count_sent_at(line: int, size: int) -> None:
    """A packet was handed to the socket, as `step.count_sent` notes."""
    step.count_sent(line_at(line), size)
