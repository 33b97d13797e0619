"""One step of the plane: datagrams in, packets and events out. Pure: no socket, no clock, no Python.

A datagram lies in `Shared.packet` and its sender's address in `Shared.sender` when `take` is called; `due`
leaves the packets to send in `Shared.outbox`, and in `Shared.between` the stream whose next one is due before
the next tick. The thread, the event loop's timer and tests call the same two.
"""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.atomic import fence
from pipeline.plane.native import BOOL, I64, LINE, SCRATCH, SHARED, U8, VOID
from pipeline.plane.reception.hearing import is_news
from pipeline.plane.reception.receive import HEADER_BYTES, PRESSES_SHIFT, VERDICT, Verdict, flush, receive
from pipeline.plane.rows import ADDRESS_BYTES, ASIDE, BETWEEN, EVENTS, PAYLOAD_TYPES, Field, Happened
from pipeline.plane.send import FRAME_NS, brought_forward, due_between, frames_due, packet_due
from pipeline.plane.srtp import opened, sealed

_HEARD, _SENT, _KEYED, _ASIDE = (
    int(each) for each in (Happened.HEARD, Happened.SENT, Happened.KEYED, Happened.ASIDE)
)
_HEAD, _TAIL, _DROPPED = int(Field.EVENT_HEAD), int(Field.EVENT_TAIL), int(Field.DROPPED)
_SIZE, _LENGTH = int(Field.SIZE), int(Field.SENDER_LENGTH)
_BETWEEN, _BETWEEN_NS = int(Field.BETWEEN), int(Field.BETWEEN_NS)
_URGENT: Final = int(Field.URGENT)
_REPORT: Final = int(Verdict.REPORT)
_STRANGERS: Final = ASIDE - 2  # datagrams that may wait for Python: the rest is the far end's
_MADE: Final = ~((1 << PRESSES_SHIFT) - 1)  # frames or keys
_DTLS: Final = (20, 63)  # the first octet of a record (RFC 7983)
_STUN: Final = 3  # the last first octet of a message


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


@compiled(VOID(LINE, SHARED, I64, I64), inner=True)
def _put_aside(line: Any, shared: Any, most: int, now_ns: int) -> None:
    """A datagram that Python looks at; counted as strange where `most` of this stream wait."""
    clock = shared.clock
    if line.asides - line.asides_read >= most or clock[_HEAD] - clock[_TAIL] >= EVENTS:
        line.strange += 1
        return
    slot, size = line.asides % ASIDE, clock[_SIZE]
    for i in range(size):
        line.aside[slot, i] = shared.packet[i]
    for i in range(ADDRESS_BYTES):
        line.aside_from[slot, i] = shared.sender[i]
    line.aside_size[slot, 0], line.aside_size[slot, 1] = size, clock[_LENGTH]
    line.asides += 1
    tell(shared, line.number, _ASIDE, slot, now_ns)
    clock[_URGENT] = 1


@compiled(VOID(LINE, SHARED, I64), inner=True)
def _tell_heard(line: Any, shared: Any, presses: int) -> None:
    """Tells of frames heard if they are news: a voice or a key at once, silence with what else there is.
    `presses`: keys before them."""
    urgent = line.stirred != 0 or line.presses != presses
    if is_news(line, presses):
        tell(shared, line.number, _HEARD, line.frames, line.presses)
        if urgent:
            shared.clock[_URGENT] = 1


@compiled(VOID(LINE, SHARED, I64), inner=True)
def _tell_sent(line: Any, shared: Any, now_ns: int) -> None:
    """Tells of the agent's frames that left: at once to a source that is asked for each."""
    line.departed_told = line.departed
    tell(shared, line.number, _SENT, line.departed, now_ns)
    if line.mark == 0:
        shared.clock[_URGENT] = 1


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
    """Whether Python may want to know of a stranger's datagram: the far end, wherever it is, is silent."""
    if not line.symmetric or now_ns - line.heard_ns <= line.latch_ns or shared.clock[_SIZE] < 2:
        return False
    if line.media[I64(shared.packet[1]) % PAYLOAD_TYPES].kind == 0:
        return False
    return bool(_opened(line, shared))


@compiled(BOOL(LINE, SHARED), inner=True)
def _opened(line: Any, shared: Any) -> bool:
    """Takes SRTP off the datagram. False: it is not authentic. Reports are left as they are."""
    packet = shared.packet[:]
    if not line.encrypted or line.media[I64(packet[1]) % PAYLOAD_TYPES].kind == 0:
        return True
    shared.clock[_SIZE] = opened(line, packet, shared.clock[_SIZE])
    return bool(shared.clock[_SIZE])


@compiled(BOOL(LINE, SHARED), inner=True)
def _is_handshake(line: Any, shared: Any) -> bool:
    """Whether the datagram is one of DTLS or STUN that Python wants to see."""
    first = shared.packet[0]
    wanted = first <= _STUN or _DTLS[0] <= first <= _DTLS[1]
    return bool(line.handshakes and shared.clock[_SIZE] and wanted)


@compiled(I64(LINE, SCRATCH, SHARED, I64), inner=True)
def take_known(line: Any, scratch: Any, shared: Any, now_ns: int) -> int:
    """Takes the datagram in `Shared.packet`, which is the far end's by where it comes from, for the stream at
    whose row the caller is; 1: it is authentic."""
    if not line.open or not _opened(line, shared):
        return 0
    presses = line.presses
    made = receive(line, scratch, shared.packet[:], shared.clock[_SIZE], now_ns)
    if made & _MADE:
        _tell_heard(line, shared, presses)
    if made & VERDICT == _REPORT:
        _put_aside(line, shared, ASIDE, now_ns)
    return 1


@compiled(I64(LINE, SCRATCH, SHARED, I64), inner=True)
def take(line: Any, scratch: Any, shared: Any, now_ns: int) -> int:
    """Takes the datagram in `Shared.packet` for the stream at whose row the caller is; 1: it was the far
    end's."""
    if not line.open:
        return 0
    if _is_handshake(line, shared):
        _put_aside(line, shared, _STRANGERS, now_ns)
        return 0
    if not _is_remote(line, shared.sender[:], shared.clock[_LENGTH]):
        if _may_latch(line, shared, now_ns):
            _put_aside(line, shared, _STRANGERS, now_ns)
        else:
            line.strange += 1
        return 0
    return take_known(line, scratch, shared, now_ns)


@compiled(VOID(LINE, SHARED, I64), inner=True)
def _note_between(line: Any, shared: Any, now_ns: int) -> None:
    """Puts a stream into `between` whose next packet does not wait for the tick."""
    clock, at_ns = shared.clock, due_between(line, now_ns)
    count = clock[_BETWEEN]
    if at_ns == 0 or count == BETWEEN:
        return
    shared.between[count] = line.number
    clock[_BETWEEN_NS] = at_ns if count == 0 else min(at_ns, clock[_BETWEEN_NS])
    clock[_BETWEEN] = count + 1


@compiled(I64(LINE, SCRATCH, SHARED, I64), inner=True)
def due(line: Any, scratch: Any, shared: Any, now_ns: int) -> int:
    """Puts the packets that are due of the stream at whose row the caller is into `outbox`; how many."""
    presses = line.presses
    if line.held and flush(line, scratch, now_ns) & _MADE:
        _tell_heard(line, shared, presses)
    word, frames, count = line.word[0], 1, 0
    waits = (word >> 32) < (word & 0xFFFFFFFF)
    if line.talking or not waits or not brought_forward(line, now_ns):
        frames = frames_due(line, now_ns)
    for _ in range(frames):
        keys = line.keys_sent
        size = packet_due(line, scratch, now_ns, shared.outbox[count])
        if line.encrypted and size:
            size = sealed(line, shared.outbox[count], size)
        line.due_ns += FRAME_NS
        if line.departed >= line.mark and line.departed != line.departed_told:
            _tell_sent(line, shared, now_ns)
        if line.keys_sent != keys:
            tell(shared, line.number, _KEYED, line.keys_sent, now_ns)
            shared.clock[_URGENT] = 1
        if size and line.remote_size:
            shared.outgoing[count] = size
            count += 1
    _note_between(line, shared, now_ns)
    return int(count)


@compiled(VOID(LINE, I64), inner=True)
def count_sent(line: Any, size: int) -> None:
    """A packet of `size` octets was handed to the socket; 0: the socket did not take it."""
    if size:
        line.packets_sent += 1
        line.octets_sent += size - HEADER_BYTES - line.tag_bytes
    else:
        line.send_errors += 1
