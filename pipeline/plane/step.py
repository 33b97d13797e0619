"""One step of the plane: datagrams in, packets and events out. Pure: no socket, no clock, no Python.

A datagram lies in `Shared.packet` and its sender's address in `Shared.sender` when `take` is called; `due`
leaves the packets to send in `Shared.outbox`. The thread, the event loop's timer and tests call the same two.
"""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.atomic import enter, fence, leave
from pipeline.plane.hearing import is_news
from pipeline.plane.native import BOOL, I64, LINE, ROWS, SCRATCH, SHARED, U8, VOID
from pipeline.plane.receive import HEADER_BYTES, PRESSES_SHIFT, VERDICT, Verdict, flush, receive
from pipeline.plane.rows import ADDRESS_BYTES, ASIDE, EVENTS, OUTBOX, PAYLOAD_TYPES, Field, Happened
from pipeline.plane.send import CATCH_UP, FRAME_NS, brought_forward, frames_due, packet_due

_HEARD, _SENT, _KEYED, _ASIDE = (
    int(each) for each in (Happened.HEARD, Happened.SENT, Happened.KEYED, Happened.ASIDE)
)
_HEAD, _TAIL, _DROPPED = int(Field.EVENT_HEAD), int(Field.EVENT_TAIL), int(Field.DROPPED)
_ASIDE_HEAD, _ASIDE_TAIL, _LINES = int(Field.ASIDE_HEAD), int(Field.ASIDE_TAIL), int(Field.LINES)
_SIZE, _LENGTH, _OUTGOING = int(Field.SIZE), int(Field.SENDER_LENGTH), int(Field.OUTGOING)
_REPORT: Final = int(Verdict.REPORT)
_MOST_ASIDE: Final = 8  # of one stream in one tick
_MADE: Final = ~((1 << PRESSES_SHIFT) - 1)  # frames or keys


@compiled(VOID(SHARED, I64, I64, I64, I64), inner=True)
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


@compiled(VOID(SHARED, I64, I64), inner=True)
def _put_aside(shared: Any, number: int, now_ns: int) -> None:
    """A datagram that Python looks at; dropped where too many wait."""
    clock = shared.clock
    head, size = clock[_ASIDE_HEAD], clock[_SIZE]
    if head - clock[_ASIDE_TAIL] >= ASIDE or clock[_HEAD] - clock[_TAIL] >= EVENTS:
        return
    slot = head % ASIDE
    for i in range(size):
        shared.aside[slot, i] = shared.packet[i]
    for i in range(ADDRESS_BYTES):
        shared.aside_from[slot, i] = shared.sender[i]
    shared.aside_size[slot, 0], shared.aside_size[slot, 1] = size, clock[_LENGTH]
    clock[_ASIDE_HEAD] = head + 1
    tell(shared, number, _ASIDE, slot, now_ns)


@compiled(BOOL(LINE, U8, I64), inner=True)
def _is_remote(line: Any, sender: Any, length: int) -> bool:
    if length != line.remote_size:
        return False
    for i in range(length):  # noqa: SIM110 - numba has no all()
        if sender[i] != line.remote[i]:
            return False
    return True


@compiled(BOOL(LINE, SHARED, I64), inner=True)
def _may_latch(line: Any, shared: Any, now_ns: int) -> bool:
    """Whether Python may want to know of a stranger's datagram: the far end, wherever it is, is silent. A
    flood is not told of: it would take the place of other streams' datagrams."""
    if not line.symmetric or now_ns - line.heard_ns <= line.latch_ns or shared.clock[_SIZE] < 2:
        return False
    if line.media[I64(shared.packet[1]) % PAYLOAD_TYPES].kind == 0:
        return False
    if line.asides_ns != now_ns:
        line.asides_ns, line.asides = now_ns, 0
    line.asides += 1
    return bool(line.asides <= _MOST_ASIDE)


@compiled(I64(ROWS, SCRATCH, SHARED, I64, I64))
def take(rows: Any, scratch: Any, shared: Any, number: int, now_ns: int) -> int:
    """Takes the datagram in `Shared.packet` for stream `number`, at whose row the caller is; 1: it was the
    far end's."""
    line = rows[number]
    if not line.open:
        return 0
    if not _is_remote(line, shared.sender[:], shared.clock[_LENGTH]):
        if _may_latch(line, shared, now_ns):
            _put_aside(shared, number, now_ns)
        else:
            line.strange += 1
        return 0
    presses = line.presses
    made = receive(line, scratch, shared.packet[:], shared.clock[_SIZE], now_ns)
    if made & _MADE and is_news(line, presses):
        tell(shared, number, _HEARD, line.frames, line.presses)
    if made & VERDICT == _REPORT:
        _put_aside(shared, number, now_ns)
    return 1


@compiled(VOID(LINE, SCRATCH, SHARED, I64), inner=True)
def _send(line: Any, scratch: Any, shared: Any, now_ns: int) -> None:
    """The stream's next packet, into `outbox`."""
    count, keys = shared.clock[_OUTGOING], line.keys_sent
    size = packet_due(line, scratch, now_ns, shared.outbox[count])
    line.due_ns += FRAME_NS
    if line.talking and line.talking >= line.mark:
        tell(shared, line.number, _SENT, line.talking, now_ns)
    if line.keys_sent != keys:
        tell(shared, line.number, _KEYED, line.keys_sent, now_ns)
    if size and line.remote_size:
        shared.outgoing[count, 0], shared.outgoing[count, 1] = line.number, size
        shared.clock[_OUTGOING] = count + 1


@compiled(I64(ROWS, SCRATCH, SHARED, I64, I64))
def due(rows: Any, scratch: Any, shared: Any, first: int, now_ns: int) -> int:
    """Puts the packets of streams `first` and up that are due into `outbox`. The stream to go on with once
    they are sent; 0: that was all."""
    clock = shared.clock
    clock[_OUTGOING] = 0
    for number in range(first, clock[_LINES]):
        if clock[_OUTGOING] > OUTBOX - CATCH_UP - 1:
            return int(number)
        line = rows[number]
        if not line.open or not enter(line.owner[:]):
            continue
        presses = line.presses
        if line.held and flush(line, scratch, now_ns) & _MADE and is_news(line, presses):
            tell(shared, number, _HEARD, line.frames, line.presses)
        word, frames = line.word[0], 1
        waits = (word >> 32) < (word & 0xFFFFFFFF)
        if line.talking or not waits or not brought_forward(line, now_ns):
            frames = frames_due(line, now_ns)
        for _ in range(frames if line.open else 0):
            _send(line, scratch, shared, now_ns)
        leave(line.owner[:])
    return 0


@compiled(VOID(LINE, I64))
def count_sent(line: Any, size: int) -> None:
    """A packet of `size` octets was handed to the socket; 0: the socket did not take it."""
    if size:
        line.packets_sent += 1
        line.octets_sent += size - HEADER_BYTES
    else:
        line.send_errors += 1
