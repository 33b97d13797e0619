"""One step of the plane: datagrams in, packets and events out. Pure: no socket, no clock, no Python."""

from __future__ import annotations

from typing import Any, Final

from pipeline.plane.atomic import enter, fence, leave
from pipeline.plane.native import BOOL, I64, ROWS, SCRATCH, SHARED, U8, VOID, native
from pipeline.plane.receive import FRAMES_SHIFT, PRESSES_SHIFT, VERDICT, Verdict, flush, receive
from pipeline.plane.rows import ADDRESS_BYTES, ASIDE, EVENTS, OUTBOX, PAYLOAD_TYPES, Field, Happened
from pipeline.plane.send import FRAME_NS, brought_forward, frames_due, packet_due

_HEARD, _SENT, _KEYED, _ASIDE = (
    int(each) for each in (Happened.HEARD, Happened.SENT, Happened.KEYED, Happened.ASIDE)
)
_HEAD, _TAIL, _DROPPED = int(Field.EVENT_HEAD), int(Field.EVENT_TAIL), int(Field.DROPPED)
_ASIDE_HEAD, _ASIDE_TAIL, _LINES = int(Field.ASIDE_HEAD), int(Field.ASIDE_TAIL), int(Field.LINES)
_REPORT: Final = int(Verdict.REPORT)
_MADE: Final = ~((1 << PRESSES_SHIFT) - 1)  # frames or keys


@native(VOID, SHARED, I64, I64, I64, I64)
def tell(shared: Any, number: int, kind: int, first: int, second: int) -> None:
    """An event for Python. Of a Python that is `EVENTS` behind the rest is dropped and counted."""
    clock = shared.clock
    head = clock[_HEAD]
    if head - clock[_TAIL] >= EVENTS:
        clock[_DROPPED] += 1
        return
    event = shared.events[head % EVENTS]
    event[0], event[1], event[2], event[3] = number, kind, first, second
    fence()
    clock[_HEAD] = head + 1


@native(VOID, SHARED, I64, U8, I64, U8, I64, I64)
def _put_aside(shared: Any, number: int, data: Any, size: int, sender: Any, length: int, now_ns: int) -> None:
    """A datagram that Python looks at; dropped where too many wait."""
    clock = shared.clock
    head = clock[_ASIDE_HEAD]
    if head - clock[_ASIDE_TAIL] >= ASIDE:
        return
    slot = head % ASIDE
    shared.aside[slot, :size] = data[:size]
    shared.aside_from[slot, :ADDRESS_BYTES] = sender[:ADDRESS_BYTES]
    shared.aside_size[slot, 0], shared.aside_size[slot, 1] = size, length
    clock[_ASIDE_HEAD] = head + 1
    tell(shared, number, _ASIDE, slot, now_ns)


@native(BOOL, ROWS, I64, U8, I64)
def _is_remote(rows: Any, number: int, sender: Any, length: int) -> bool:
    if length != rows.line[number].remote_size:
        return False
    for i in range(length):
        if sender[i] != rows.remote[number, i]:
            return False
    return True


@native(I64, ROWS, SCRATCH, SHARED, I64, U8, I64, U8, I64, I64)
def _take(
    rows: Any, scratch: Any, shared: Any, number: int, data: Any, size: int, sender: Any, length: int, now_ns: int
) -> int:
    line = rows.line[number]
    if not line.open:
        return 0
    if not _is_remote(rows, number, sender, length):
        agreed = size > 1 and rows.media[number, I64(data[1]) % PAYLOAD_TYPES].kind
        if line.symmetric and not line.latched and agreed:
            _put_aside(shared, number, data, size, sender, length, now_ns)
        else:
            line.strange += 1
        return 0
    made = receive(rows, scratch, number, data, size, now_ns)
    if made & ~VERDICT & _MADE:
        tell(shared, number, _HEARD, line.frames, line.presses)
    if made & VERDICT == _REPORT:
        _put_aside(shared, number, data, size, sender, length, now_ns)
    return 1


@native(I64, ROWS, SCRATCH, SHARED, I64, U8, I64, U8, I64, I64)
def take(
    rows: Any, scratch: Any, shared: Any, number: int, data: Any, size: int, sender: Any, length: int, now_ns: int
) -> int:
    """A datagram of `size` octets, from the sockaddr `sender` of `length` octets; 1: of the far end."""
    if not enter(rows.owner, number):
        return 0
    done = _take(rows, scratch, shared, number, data, size, sender, length, now_ns)
    leave(rows.owner, number)
    return int(done)


@native(I64, ROWS, SCRATCH, SHARED, I64, I64, I64, I64)
def _send(rows: Any, scratch: Any, shared: Any, number: int, frames: int, now_ns: int, count: int) -> int:
    line = rows.line[number]
    for _ in range(frames):
        keys = line.keys_sent
        size = packet_due(rows, scratch, number, now_ns, shared.outbox[count])
        line.due_ns += FRAME_NS
        if line.talking:
            tell(shared, number, _SENT, line.talking, now_ns)
        if line.keys_sent != keys:
            tell(shared, number, _KEYED, line.keys_sent, now_ns)
        if size and line.remote_size:
            shared.outgoing[count, 0], shared.outgoing[count, 1] = number, size
            count += 1
    return count


@native(I64, ROWS, SCRATCH, SHARED, I64, I64, I64)
def _line_due(rows: Any, scratch: Any, shared: Any, number: int, now_ns: int, count: int) -> int:
    line = rows.line[number]
    if not line.open:
        return count
    if line.held:
        made = flush(rows, scratch, number, now_ns)
        if made >> PRESSES_SHIFT:
            tell(shared, number, _HEARD, line.frames, line.presses)
    word = rows.words[number]
    if not line.talking and (word >> 32) < (word & 0xFFFFFFFF) and brought_forward(line, now_ns):
        return int(_send(rows, scratch, shared, number, 1, now_ns, count))
    frames = frames_due(line, now_ns)
    return int(_send(rows, scratch, shared, number, frames, now_ns, count)) if frames else count


@native(I64, ROWS, SCRATCH, SHARED, I64, I64)
def due(rows: Any, scratch: Any, shared: Any, first: int, now_ns: int) -> int:
    """The packets of streams `first` and up that are due, in `outbox`. How many there are, and the stream to go
    on with shifted up by 16: 0, or one for which there was no room."""
    count = 0
    for number in range(first, shared.clock[_LINES]):
        if count > OUTBOX - 4:
            return int(number << 16 | count)
        if enter(rows.owner, number):
            count = _line_due(rows, scratch, shared, number, now_ns, count)
            leave(rows.owner, number)
    return int(count)
