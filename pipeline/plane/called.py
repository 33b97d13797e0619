"""The plane's reception for a row that Python calls for each packet: the microphones of rooms.

numba takes 6 µs to take a record from Python, for numpy describes all of its fields each time; a number takes
nothing. So the two functions are handed addresses.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba.extending import intrinsic

from pipeline.audio.compiled import compiled
from pipeline.plane import receive
from pipeline.plane.native import I64, LINE, SCRATCH, U8, T

_ADDRESS: Final = T.uintp


def address_of(record: Any) -> int:
    """Where a record of `pipeline.plane.rows` lies; the caller keeps it."""
    return int(record[record.dtype.names[0]].ctypes.data)


def _pointer(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
    """A record is handed on as its address."""
    return builder.inttoptr(args[0], context.get_value_type(signature.return_type))


line_at: Final[Any] = intrinsic(lambda typing_context, address: (LINE(_ADDRESS), _pointer))
scratch_at: Final[Any] = intrinsic(lambda typing_context, address: (SCRATCH(_ADDRESS), _pointer))


@compiled(I64(_ADDRESS, _ADDRESS, U8, I64, I64))
def receive_at(line: int, scratch: int, data: Any, size: int, now_ns: int) -> int:
    """Takes one datagram of the far end's, as `receive.receive` does."""
    return receive.receive(line_at(line), scratch_at(scratch), data, size, now_ns)


@compiled(I64(_ADDRESS, _ADDRESS, I64))
def flush_at(line: int, scratch: int, now_ns: int) -> int:
    """Plays what is in order by now, as `receive.flush` does."""
    return receive.flush(line_at(line), scratch_at(scratch), now_ns)
