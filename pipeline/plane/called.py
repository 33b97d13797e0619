"""The plane's kernels that Python calls: `step` and `port` on the event loop and by hand, and a port's
addresses.

numba takes 6 µs to take a record from Python, for numpy describes all of its fields each time; a number takes
nothing. So these functions are handed addresses.
"""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane import port, step
from pipeline.plane.atomic import enter, leave
from pipeline.plane.native import I64, SCRATCH, SHARED, U8, VOID, T, line_at, pointer_to
from pipeline.plane.port import port_at

_ADDRESS: Final = T.uintp


def address_of(record: Any) -> int:
    """Where a record of `pipeline.plane.rows` lies; the caller keeps it."""
    return int(record[record.dtype.names[0]].ctypes.data)


scratch_at: Final[Any] = pointer_to(SCRATCH)
shared_at: Final[Any] = pointer_to(SHARED)


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


@compiled(VOID(_ADDRESS, _ADDRESS, _ADDRESS, I64))
def arrived_at(shared_port: int, scratch: int, shared: int, now_ns: int) -> None:
    """Takes the datagram in `Shared.packet` for a port that nobody holds, as `port.arrived` does."""
    port.arrived(port_at(shared_port), scratch_at(scratch), shared_at(shared), now_ns)


@compiled(VOID(_ADDRESS, _ADDRESS, _ADDRESS))
def again_at(shared_port: int, scratch: int, shared: int) -> None:
    """What waited for rows that Python held goes on, as `port.again` does it."""
    port.again(port_at(shared_port), scratch_at(scratch), shared_at(shared))


@compiled(I64(_ADDRESS, U8, I64))
def know_at(shared_port: int, address: Any, number: int) -> int:
    """RTP of an address is that of stream `number`, as `port.know` notes. The port is held."""
    return port.know(port_at(shared_port), address, address.shape[0], number)


@compiled(VOID(_ADDRESS, U8))
def forget_at(shared_port: int, address: Any) -> None:
    """An address is known no more, as `port.forget` notes. The port is held."""
    port.forget(port_at(shared_port), address, address.shape[0])
