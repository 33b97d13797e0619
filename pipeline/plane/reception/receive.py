"""RTP in: a datagram's way from the header to frames of 20 ms.

What is not RTP, of no agreed payload type, or of a source that is not believed yet is counted and dropped.
Nothing here raises, whatever arrives. A packet that is next in order (nearly all of them) is decoded where it
lies; only what has to wait for its turn is copied.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.codecs import MAX_PAYLOAD_BYTES, begin_decoder, decode
from pipeline.plane.native import BOOL, I64, LINE, SCRATCH, U8, VOID
from pipeline.plane.reception import order
from pipeline.plane.reception.frames import audio, comfort_noise, gap, press, restart, use
from pipeline.plane.reception.recovery import recover
from pipeline.plane.reception.statistics import arrival, begin_source, count
from pipeline.plane.reception.telephone_event import forget_event, key_of
from pipeline.plane.rows import HEARD, SPARE, Kind

HEADER_BYTES: Final = 12
PLAIN: Final = 0x80
"""The first octet of a packet without padding, extension and CSRCs: what nearly every packet starts with."""

COMFORT_NOISE: Final = 13
_EVENT_BYTES: Final = 4
_MOST_FRAMES: Final = 16  # of one packet and the gap before it: more than any payload has
_ROOM: Final = HEARD - SPARE - _MOST_FRAMES
_PADDING: Final = 0x20
_NOT_AUDIO, _OPUS = int(Kind.NOT_AUDIO), int(Kind.OPUS)


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


@compiled(I64(U8, I64), inner=True)
def payload_span(data: Any, size: int) -> int:
    """Start and end of the payload in the first `size` octets of `data`, as start << 16 | end; 0 when they
    are not RTP: another version, or CSRCs, extension or padding that do not fit (RFC 3550 A.1)."""
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
    return int(start << 16 | end)


@compiled(I64(U8, I64), inner=True)
def _made_plain(data: Any, size: int) -> int:
    """Takes CSRCs, extension and padding out of the packet. Its new size; 0: not RTP."""
    span = payload_span(data, size)
    if span == 0:
        return 0
    start, length = span >> 16, (span & 0xFFFF) - (span >> 16)
    for i in range(length):
        data[HEADER_BYTES + i] = data[start + i]
    return HEADER_BYTES + length


@compiled(BOOL(LINE, I64, I64, I64), inner=True)
def _is_believed(line: Any, ssrc: int, sequence: int, now_ns: int) -> bool:
    """The stream's first source at once; another only after two packets in a row between which ours was
    silent, so that one stray packet does not reset the stream (RFC 3550 A.1, MIN_SEQUENTIAL = 2). With
    `takeover_ns`: once ours has been silent for so long."""
    if line.ssrc >= 0:
        if line.takeover_ns:
            if now_ns - line.heard_ns < line.takeover_ns:
                return False
        elif ssrc != line.candidate or sequence != line.candidate_next or line.heard_ns > line.candidate_ns:
            line.candidate, line.candidate_next, line.candidate_ns = ssrc, (sequence + 1) & 0xFFFF, now_ns
            return False
        order.forget_order(line)
        forget_event(line)
        restart(line)
        line.payload_type, line.decoders = -1, 0
    begin_source(line, ssrc)
    return True


@compiled(VOID(LINE, SCRATCH, U8, I64, I64), inner=True)
def _play(line: Any, scratch: Any, packet: Any, timestamp: int, at_ns: int) -> None:
    """Decodes a packet that is next in order."""
    payload = packet[HEADER_BYTES:]
    payload_type = I64(packet[1]) & 0x7F
    media = line.media[payload_type]
    if media.kind == _NOT_AUDIO:
        if payload_type == COMFORT_NOISE:
            comfort_noise(line, scratch, timestamp, at_ns)
        return
    if payload_type != line.payload_type:
        use(line, payload_type)
        begin_decoder(line, media.kind)
    size = payload.shape[0]
    if size == 0 and packet[0] & _PADDING:
        return  # a browser probes the bandwidth
    samples = decode(line, scratch, payload, media.kind) if size <= MAX_PAYLOAD_BYTES else 0
    if samples > 0:
        audio(line, scratch, scratch.pcm[:samples], timestamp, at_ns)
    else:
        line.bad += 1


@compiled(VOID(LINE, SCRATCH, I64), inner=True)
def _play_slot(line: Any, scratch: Any, slot: int) -> None:
    kept = line.slots[slot]
    _play(line, scratch, line.held_octets[slot, : kept.size], kept.timestamp, kept.arrived_ns)
    order.take_out(line, slot)


@compiled(VOID(LINE, SCRATCH, U8, I64, I64), inner=True)
def _fill_gap(line: Any, scratch: Any, following: Any, timestamp: int, now_ns: int) -> None:
    """Makes up what was given up before the packet `following`, which is stamped `timestamp`."""
    payload_type = I64(following[1]) & 0x7F
    if payload_type == line.payload_type and line.media[payload_type].kind == _OPUS:
        recover(line, scratch, following[HEADER_BYTES:], timestamp, now_ns)
    else:
        gap(line, scratch, timestamp, now_ns)


@compiled(VOID(LINE, SCRATCH, I64, I64), inner=True)
def _flush(line: Any, scratch: Any, first: int, now_ns: int) -> None:
    """Plays what is in order by now. `first`: the number of frames before this call; whatever does not fit
    the ring behind it waits for the next call."""
    while line.held and line.frames - first <= _ROOM:
        slot = order.slot_of(line, line.next)
        if slot == order.NONE:
            if not order.is_given_up(line, now_ns):
                return
            slot = order.nearest(line)
            kept = line.slots[slot]
            order.give_up(line, kept.sequence)
            _fill_gap(line, scratch, line.held_octets[slot, : kept.size], kept.timestamp, now_ns)
        _play_slot(line, scratch, slot)


@compiled(VOID(LINE, U8, I64), inner=True)
def _event(line: Any, packet: Any, timestamp: int) -> None:
    if packet.shape[0] < HEADER_BYTES + _EVENT_BYTES:
        line.bad += 1
        return
    key = key_of(line, packet[HEADER_BYTES:], timestamp)
    if key < 0:
        return
    line.tones = 0  # the far end signals by events after all: a tone beside them would count twice
    if line.listening:
        press(line, key, 0)


@compiled(VOID(LINE, SCRATCH, U8, I64, I64), inner=True)
def _take(line: Any, scratch: Any, packet: Any, sequence: int, now_ns: int) -> None:
    first = line.frames
    timestamp = I64(packet[4]) << 24 | I64(packet[5]) << 16 | I64(packet[6]) << 8 | I64(packet[7])
    payload_type = I64(packet[1]) & 0x7F
    if payload_type == line.dtmf_type:
        _event(line, packet, timestamp)
    elif line.media[payload_type].kind != _NOT_AUDIO:
        arrival(line, line.media[payload_type].clock_hz, timestamp, now_ns)
    if order.passes(line, packet, sequence, timestamp, now_ns):
        _play(line, scratch, packet, timestamp, now_ns)
    elif line.probation:
        order.renumber(line)  # the sender's numbers have jumped: what is missing of the others is not lost
        _flush(line, scratch, first, now_ns)
        order.jumped(line, packet, timestamp, now_ns)
    if line.held:
        _flush(line, scratch, first, now_ns)


@compiled(I64(LINE, I64, I64), inner=True)
def _made(line: Any, frames: int, presses: int) -> int:
    """What a call has made: frames, keys, and whether packets wait for an earlier one, in one number."""
    waits = WAITS if line.held else 0
    return int(line.frames - frames << FRAMES_SHIFT | line.presses - presses << PRESSES_SHIFT | waits)


@compiled(I64(LINE, SCRATCH, I64), inner=True)
def flush(line: Any, scratch: Any, now_ns: int) -> int:
    """Plays what is in order by now, and gives up what was waited for long enough. What was made of it."""
    frames, presses = line.frames, line.presses
    _flush(line, scratch, frames, now_ns)
    return _made(line, frames, presses)


@compiled(I64(LINE, SCRATCH, U8, I64, I64), inner=True)
def receive(line: Any, scratch: Any, data: Any, size: int, now_ns: int) -> int:
    """One datagram of the far end's, the first `size` octets of `data`. What was made of it."""
    frames, presses = line.frames, line.presses
    if size < HEADER_BYTES:
        line.bad += 1
        return _BAD
    payload_type = I64(data[1]) & 0x7F
    if line.media[payload_type].kind == 0:
        if 192 <= data[1] < 224:  # RFC 5761 section 4
            return _REPORT
        line.bad += 1
        return _BAD
    if data[0] != PLAIN:
        size = _made_plain(data, size)
    sequence = order.sequence_of(data)
    ssrc = I64(data[8]) << 24 | I64(data[9]) << 16 | I64(data[10]) << 8 | I64(data[11])
    if size == 0 or (ssrc != line.ssrc and not _is_believed(line, ssrc, sequence, now_ns)):
        line.bad += 1
        return _BAD
    line.packets += 1
    line.octets += size - HEADER_BYTES
    line.heard_ns = now_ns
    count(line, sequence)
    if line.receives:
        _take(line, scratch, data[:size], sequence, now_ns)
    return _made(line, frames, presses) | _MEDIA
