"""RTP in: a datagram's way from the header to frames of 20 ms.

What is not RTP, of no agreed payload type, or of a source that is not believed yet is counted and dropped.
Nothing here raises, whatever arrives. A packet that is next in order (nearly all of them) is decoded where it
lies; only what has to wait for its turn is copied.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from pipeline.audio import kernels
from pipeline.plane import order
from pipeline.plane.frames import audio, comfort_noise, gap, press, restart, use
from pipeline.plane.native import BOOL, I64, LINE, ROWS, SCRATCH, U8, VOID, native
from pipeline.plane.reception import arrival, begin_source, count
from pipeline.plane.rows import HEARD, PROBATION, Kind
from pipeline.plane.telephone_event import forget_event, key_of

HEADER_BYTES: Final = 12
PLAIN: Final = 0x80
"""The first octet of a packet without padding, extension and CSRCs: what nearly every packet starts with."""

COMFORT_NOISE: Final = 13
_EVENT_BYTES: Final = 4
_MOST_FRAMES: Final = 16  # of one packet: more than any payload has
_NOT_AUDIO, _PCMU, _PCMA = int(Kind.NOT_AUDIO), int(Kind.PCMU), int(Kind.PCMA)


class Verdict(IntEnum):
    """What a datagram on the RTP port turned out to be."""

    MEDIA = 0
    REPORT = 1  # RTCP on the RTP port (RFC 5761)
    BAD = 2


_MEDIA, _REPORT, _BAD = (int(each) for each in Verdict)

VERDICT: Final = 3
WAITS: Final = 4
PRESSES_SHIFT: Final = 8
FRAMES_SHIFT: Final = 16
"""What `receive` and `flush` return: the verdict in the lowest bits, whether packets wait for an earlier one,
then how many keys and frames were added to the rings."""


@native(I64, U8, I64)
def payload_span(data: Any, size: int) -> int:
    """Start and end of the payload in the first `size` octets of `data`, as start << 16 | end; 0 when they are
    not RTP: another version, or CSRCs, extension or padding that do not fit (RFC 3550 A.1)."""
    if size < HEADER_BYTES or data[0] >> 6 != 2:
        return 0
    start, end = HEADER_BYTES + 4 * (I64(data[0]) & 0x0F), size
    if data[0] & 0x10:
        if start + 4 > size:
            return 0
        start += 4 + 4 * (I64(data[start + 2]) << 8 | I64(data[start + 3]))
    if start > size:
        return 0
    if data[0] & 0x20:
        padding = I64(data[size - 1])
        end = size - padding
        if not padding or end < start:
            return 0
    return start << 16 | end


@native(I64, U8, I64)
def _made_plain(data: Any, size: int) -> int:
    """Takes CSRCs, extension and padding out of the packet. Its new size; 0: not RTP."""
    span = payload_span(data, size)
    if span == 0:
        return 0
    start, length = span >> 16, (span & 0xFFFF) - (span >> 16)
    for i in range(length):
        data[HEADER_BYTES + i] = data[start + i]
    return HEADER_BYTES + length


@native(BOOL, ROWS, I64, I64, I64, I64, I64)
def _is_believed(rows: Any, number: int, ssrc: int, sequence: int, payload_type: int, now_ns: int) -> bool:
    """The stream's first source at once; another only after two packets in a row between which ours was
    silent, so that one stray packet does not reset the stream (RFC 3550 A.1, MIN_SEQUENTIAL = 2)."""
    line = rows.line[number]
    if line.ssrc >= 0:
        if ssrc != line.candidate or sequence != line.candidate_next or line.heard_ns > line.candidate_ns:
            line.candidate, line.candidate_next, line.candidate_ns = ssrc, (sequence + 1) & 0xFFFF, now_ns
            return False
        order.forget_order(rows, number)
        forget_event(rows, number)
        restart(rows, number)
        line.payload_type = -1
    clock_hz = rows.media[number, payload_type].clock_hz
    begin_source(line, ssrc, clock_hz if clock_hz else 8000)
    return True


@native(VOID, ROWS, SCRATCH, I64, U8, I64, I64)
def _play(rows: Any, scratch: Any, number: int, packet: Any, timestamp: int, at_ns: int) -> None:
    """Decodes a packet that is next in order."""
    line, payload = rows.line[number], packet[HEADER_BYTES:]
    payload_type = I64(packet[1]) & 0x7F
    media = rows.media[number, payload_type]
    if media.kind == _NOT_AUDIO:
        if payload_type == COMFORT_NOISE:
            comfort_noise(rows, scratch, number, timestamp, at_ns)
        return
    if payload_type != line.payload_type:
        use(rows, number, payload_type)
    if payload.shape[0] == 0:
        line.bad += 1
        return
    samples = scratch.pcm[: payload.shape[0]]
    if media.kind == _PCMU:
        kernels.ulaw_decode(payload, samples)
    else:
        kernels.alaw_decode(payload, samples)
    audio(rows, scratch, number, samples, timestamp, at_ns, 0)


@native(VOID, ROWS, SCRATCH, I64, I64)
def _play_slot(rows: Any, scratch: Any, number: int, slot: int) -> None:
    kept = rows.slots[number, slot]
    _play(rows, scratch, number, rows.held[number, slot, : kept.size], kept.timestamp, kept.arrived_ns)
    order.take_out(rows, number, slot)


@native(VOID, ROWS, SCRATCH, I64, I64)
def _flush(rows: Any, scratch: Any, number: int, now_ns: int) -> None:
    """Whatever does not fit the ring of heard frames waits for the next call."""
    line = rows.line[number]
    first = line.frames
    while line.held and line.frames - first <= HEARD - _MOST_FRAMES:
        slot = order.slot_of(rows, number, line.next)
        if slot == order.NONE:
            if not order.is_given_up(rows, number, now_ns):
                return
            slot = order.nearest(rows, number)
            kept = rows.slots[number, slot]
            order.give_up(rows, number, kept.sequence)
            gap(rows, scratch, number, kept.timestamp, now_ns)
        _play_slot(rows, scratch, number, slot)


@native(VOID, ROWS, SCRATCH, I64, U8, I64, I64, I64)
def _follow_jump(
    rows: Any, scratch: Any, number: int, packet: Any, sequence: int, timestamp: int, at_ns: int
) -> None:
    """The sender's numbers have jumped: what waits is played, what is missing of it is not lost."""
    line = rows.line[number]
    while line.held:
        _play_slot(rows, scratch, number, order.nearest(rows, number))
    rows.given_up[number][:] = -1
    _play_slot(rows, scratch, number, PROBATION)
    order.jumped(line)
    line.next = (sequence + 1) & 0xFFFF
    _play(rows, scratch, number, packet, timestamp, at_ns)


@native(VOID, ROWS, I64, U8, I64)
def _event(rows: Any, number: int, packet: Any, timestamp: int) -> None:
    line = rows.line[number]
    if packet.shape[0] < HEADER_BYTES + _EVENT_BYTES:
        line.bad += 1
        return
    key = key_of(line, packet[HEADER_BYTES:], timestamp)
    if key < 0:
        return
    line.tones = 0  # the far end signals by events after all: a tone beside them would count twice
    if line.listening:
        press(rows, number, key, 0)


@native(VOID, ROWS, SCRATCH, I64, U8, I64, I64)
def _take(rows: Any, scratch: Any, number: int, packet: Any, sequence: int, now_ns: int) -> None:
    line = rows.line[number]
    timestamp = I64(packet[4]) << 24 | I64(packet[5]) << 16 | I64(packet[6]) << 8 | I64(packet[7])
    if I64(packet[1]) & 0x7F == line.dtmf_type:
        _event(rows, number, packet, timestamp)
    else:
        arrival(line, timestamp, now_ns)
    if order.passes(rows, number, packet, sequence, timestamp, now_ns):
        _play(rows, scratch, number, packet, timestamp, now_ns)
    elif line.probation:
        _follow_jump(rows, scratch, number, packet, sequence, timestamp, now_ns)
    if line.held:
        _flush(rows, scratch, number, now_ns)


@native(I64, LINE, I64, I64)
def _made(line: Any, frames: int, presses: int) -> int:
    """What a call has made: frames, keys, and whether packets wait for an earlier one, in one number."""
    waits = WAITS if line.held else 0
    return int(line.frames - frames << FRAMES_SHIFT | line.presses - presses << PRESSES_SHIFT | waits)


@native(I64, ROWS, SCRATCH, I64, I64)
def flush(rows: Any, scratch: Any, number: int, now_ns: int) -> int:
    """Plays what is in order by now, and gives up what was waited for long enough. What was made of it."""
    line = rows.line[number]
    frames, presses = line.frames, line.presses
    _flush(rows, scratch, number, now_ns)
    return _made(line, frames, presses)


@native(I64, ROWS, SCRATCH, I64, U8, I64, I64)
def receive(rows: Any, scratch: Any, number: int, data: Any, size: int, now_ns: int) -> int:
    """One datagram of the far end's, the first `size` octets of `data`. What was made of it."""
    line = rows.line[number]
    frames, presses = line.frames, line.presses
    if size < HEADER_BYTES:
        line.bad += 1
        return _BAD
    payload_type = I64(data[1]) & 0x7F
    if rows.media[number, payload_type].kind == 0:
        if 192 <= data[1] < 224:  # RFC 5761 section 4
            return _REPORT
        line.bad += 1
        return _BAD
    if data[0] != PLAIN:
        size = _made_plain(data, size)
    sequence = I64(data[2]) << 8 | I64(data[3])
    ssrc = I64(data[8]) << 24 | I64(data[9]) << 16 | I64(data[10]) << 8 | I64(data[11])
    if size == 0 or (
        ssrc != line.ssrc and not _is_believed(rows, number, ssrc, sequence, payload_type, now_ns)
    ):
        line.bad += 1
        return _BAD
    line.packets += 1
    line.octets += size - HEADER_BYTES
    line.heard_ns = now_ns
    count(line, sequence)
    if line.receives:
        _take(rows, scratch, number, data[:size], sequence, now_ns)
    return _made(line, frames, presses) | _MEDIA
