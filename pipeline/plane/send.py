"""RTP out: one packet each 20 ms, of the agent, of silence, or of a keyed digit.

Silence is sent too: carriers expect a steady stream, and the NAT in between forgets a silent one. Of a row
that is `discontinuous` it is not: a browser takes that for DTX (RFC 7587 3.1.3), and ICE keeps the NAT open.
The first packet of a talkspurt has the marker bit (RFC 3551 4.1).

**Slots.** Streams are spread over four phases of the 20 ms: a hundred in one phase would leave as one burst.

**Lead.** An agent's first words do not wait for the next tick: the packet due next leaves at once, and the
following ones 20 ms after it, so the stream runs ahead of its regular clock by up to 20 ms, with its regular
timestamps. In silence the lead is given back, `GIVE_BACK_NS` with each packet, which no jitter buffer
notices; such packets leave between the ticks.

**Stalls.** After the plane stood still, the frames missed are sent in one go up to `CATCH_UP`; of a longer
stall the rest is skipped, and the timestamps move: time passed, nothing was said.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipeline.audio import kernels
from pipeline.audio.compiled import compiled
from pipeline.audio.levels import amplitude
from pipeline.plane.atomic import fence
from pipeline.plane.codecs import encode
from pipeline.plane.native import I16, I64, LINE, SCRATCH, U8, VOID
from pipeline.plane.reception.hearing import played
from pipeline.plane.rows import KEYS, SAID, Kind
from pipeline.plane.said import claim

FRAME_NS: Final = 20_000_000
SLOTS: Final = 4
SLOT_NS: Final = FRAME_NS // SLOTS
CATCH_UP: Final = 3
GIVE_BACK_NS: Final = 1_000_000
HEADER_BYTES: Final = 12

_COALESCE_NS: Final = 500_000
_PCMU: Final = int(Kind.PCMU)
_PCMA: Final = int(Kind.PCMA)
_GAIN_STEP: Final = 0.5  # a frame: from silence to all in 40 ms
_TONE: Final = amplitude(-13.0)
_TONE_FRAMES: Final = 5
_KEY_FRAMES: Final = 10  # 100 ms of tone, 100 ms of pause: what gateways want between two
_UPDATES: Final = (
    5  # packets of an event, the last of them sent three times with the end bit (RFC 4733 2.5.1.4)
)
_END_PACKETS: Final = 3
_VOLUME: Final = 10
_END: Final = 0x80
_LOW_HZ: Final = tuple(float(hz) for hz in kernels.DTMF_HZ[:4])
_HIGH_HZ: Final = tuple(float(hz) for hz in kernels.DTMF_HZ[4:])
_ROWS_OF_EVENTS: Final = (3, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 0, 1, 2, 3)
_COLUMNS_OF_EVENTS: Final = (1, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 2, 3, 3, 3, 3)


@compiled(VOID(LINE, U8, I64, I64), inner=True)
def _head(line: Any, packet: Any, payload_type: int, timestamp: int) -> None:
    packet[0] = 0x80
    packet[1] = payload_type | (0x80 if line.marker else 0)
    line.marker = 0
    packet[2], packet[3] = line.sequence >> 8, line.sequence & 255
    for i in range(4):
        shift = 24 - 8 * i
        packet[4 + i] = timestamp >> shift & 255
        packet[8 + i] = line.own_ssrc >> shift & 255
    line.sequence = (line.sequence + 1) & 0xFFFF


@compiled(I64(LINE, SCRATCH, I16, U8), inner=True)
def _encode(line: Any, scratch: Any, frame: Any, packet: Any) -> int:
    """A frame at the leg's rate, as a packet; its size, 0 where its codec refuses."""
    if line.send_rate_hz != line.rate_hz:
        up = line.rate_hz < line.send_rate_hz
        ratio, step = (2, 1) if up else (1, 2)
        out = scratch.resampled[: frame.shape[0] * ratio // step]
        phases = scratch.up[:] if up else scratch.down[:]
        kernels.polyphase(frame, line.send_resampling[:], phases, out, (line.resent, step))
        frame = out
    size = encode(line, frame, packet[HEADER_BYTES:])
    if size <= 0:
        line.send_errors += 1
        return 0
    _head(line, packet, line.send_type, line.timestamp)
    return int(HEADER_BYTES + size)


@compiled(I64(LINE, SCRATCH, U8), inner=True)
def _silence(line: Any, scratch: Any, packet: Any) -> int:
    if line.send_kind in (_PCMU, _PCMA):
        size = line.send_rate_hz // 50
        packet[HEADER_BYTES : HEADER_BYTES + size] = 0xFF if line.send_kind == _PCMU else 0xD5
        _head(line, packet, line.send_type, line.timestamp)
        return int(HEADER_BYTES + size)
    frame = scratch.pcm[: line.samples]
    frame[:] = 0
    return int(_encode(line, scratch, frame, packet))


@compiled(VOID(LINE, I16), inner=True)
def _at_gain(line: Any, frame: Any) -> None:
    """Ramps the gain of `frame` towards the one that is wanted, in place."""
    gains = line.gains[:]
    if line.resets_done != line.resets:
        line.resets_done, gains[0] = line.resets, 1.0
    if line.fades_done != line.fades:
        line.fades_done, gains[0] = line.fades, 0.0
    before = gains[0]
    after = min(max(gains[1], before - _GAIN_STEP), before + _GAIN_STEP)
    gains[0] = after
    if before == 1.0 and after == 1.0:
        return
    rise = np.float32(after - before) / np.float32(frame.shape[0])
    for i in range(frame.shape[0]):
        frame[i] = np.int16(np.float32(frame[i]) * (np.float32(before) + rise * np.float32(i + 1)))


@compiled(VOID(LINE, I16, I64, I64), inner=True)
def _tone(line: Any, frame: Any, event: int, step: int) -> None:
    """The `step`th 20 ms of a digit as a tone (ITU-T Q.23), with soft edges."""
    total = _TONE_FRAMES * frame.shape[0]
    edge = line.rate_hz * 2 // 1000
    low, high = _LOW_HZ[_ROWS_OF_EVENTS[event]], _HIGH_HZ[_COLUMNS_OF_EVENTS[event]]
    for i in range(frame.shape[0]):
        at = step * frame.shape[0] + i
        ramp = min(1.0, (at + 0.5) / edge) * min(1.0, (total - at - 0.5) / edge)
        angle = 2.0 * np.pi * at / line.rate_hz
        frame[i] = np.int16(np.rint(_TONE * ramp * (np.sin(low * angle) + np.sin(high * angle))))


@compiled(I64(LINE, U8, I64), inner=True)
def _event(line: Any, packet: Any, event: int) -> int:
    """One packet of a digit as an RTP event; its size."""
    if line.key_step == 0:
        line.key_timestamp, line.marker = line.timestamp, 1
    updates = min(line.key_step + 1, _UPDATES)
    duration = updates * line.events_step
    packet[HEADER_BYTES] = event
    packet[HEADER_BYTES + 1] = _VOLUME | (_END if updates == _UPDATES else 0)
    packet[HEADER_BYTES + 2], packet[HEADER_BYTES + 3] = duration >> 8 & 255, duration & 255
    _head(line, packet, line.events_type, line.key_timestamp)
    return HEADER_BYTES + 4


@compiled(I64(LINE, SCRATCH, U8), inner=True)
def _key(line: Any, scratch: Any, packet: Any) -> int:
    """The packet of the digit under way. What is being said waits."""
    event, step = I64(line.wanted_keys[line.keys_sent % KEYS]), line.key_step
    if step == 0:
        line.key_as_tone = 1 if line.events_type < 0 else 0
    frame = scratch.pcm[: line.samples]
    if line.key_as_tone and step < _TONE_FRAMES:
        _tone(line, frame, event, step)
        size = _encode(line, scratch, frame, packet)
    elif not line.key_as_tone and step < _UPDATES + _END_PACKETS - 1 and line.events_type >= 0:
        size = _event(line, packet, event)
    else:
        size = _silence(line, scratch, packet)
    line.key_step = step + 1
    if line.key_step == _KEY_FRAMES:
        line.key_step = 0
        line.keys_sent += 1
    line.talking = 0
    return int(size)


@compiled(I64(LINE, SCRATCH, I64, I64, U8), inner=True)
def _frame(line: Any, scratch: Any, taken: int, now_ns: int, packet: Any) -> int:
    """The packet of the agent's frame number `taken`, which has departed once it is there at its gain."""
    slot = taken % SAID
    frame = line.said[slot * line.samples : (slot + 1) * line.samples]
    _at_gain(line, frame)
    played(line, scratch, slot, now_ns)
    if line.talking == 0:
        line.marker = 1
    line.talking, line.said_ns = taken + 1, now_ns
    fence()
    line.departed = taken + 1
    if line.unwanted:
        line.marker = 1
        return 0
    return int(_encode(line, scratch, frame, packet))


@compiled(I64(LINE, SCRATCH, I64, U8), inner=True)
def packet_due(line: Any, scratch: Any, now_ns: int, packet: Any) -> int:
    """The packet that is due, in `packet`; its size, 0 where nothing is sent."""
    line.ticked_ns = now_ns
    if not line.sends:
        line.talking, size = 0, 0
    elif line.keys_sent != line.keys_wanted:
        size = _key(line, scratch, packet)
    else:
        taken = claim(line.word[:])
        if taken < 0:
            line.talking, size = 0, 0
            if not line.discontinuous:
                size = _silence(line, scratch, packet)
            line.lead_ns = max(0, line.lead_ns - GIVE_BACK_NS)
        else:
            size = _frame(line, scratch, taken, now_ns, packet)
    line.timestamp = (line.timestamp + line.send_step) & 0xFFFFFFFF
    return int(size)


@compiled(I64(LINE, I64), inner=True)
def frames_due(line: Any, now_ns: int) -> int:
    """How many packets are due by now; the time of those that are not sent after a stall is skipped."""
    late_ns = now_ns - line.due_ns + line.lead_ns
    if late_ns < -_COALESCE_NS:
        return 0
    due = max(0, late_ns) // FRAME_NS + 1
    frames = min(due, CATCH_UP)
    if due > frames:
        line.due_ns += (due - frames) * FRAME_NS
        line.timestamp = (line.timestamp + (due - frames) * line.send_step) & 0xFFFFFFFF
        line.marker = 1
    return int(frames)


@compiled(I64(LINE, I64), inner=True)
def due_between(line: Any, now_ns: int) -> int:
    """When the next packet leaves, of a stream that gives back its lead before the next tick; 0: it leaves
    with a tick."""
    if line.lead_ns % SLOT_NS == 0:
        return 0
    at_ns, tick_ns = line.due_ns - line.lead_ns, (now_ns // SLOT_NS + 1) * SLOT_NS
    return int(at_ns) if at_ns < tick_ns - _COALESCE_NS else 0


@compiled(I64(LINE, I64), inner=True)
def brought_forward(line: Any, now_ns: int) -> int:
    """Audio came after silence: 1 where a packet may leave now, with the lead that takes; else 0. A lead is
    whole slots, so that speaking streams share ticks."""
    if line.talking or not line.sends or line.keys_sent != line.keys_wanted:
        return 0
    ahead_ns = max(line.due_ns - now_ns, line.lead_ns)
    if ahead_ns > FRAME_NS:
        line.lead_ns = FRAME_NS
        return 0
    line.lead_ns = (ahead_ns + SLOT_NS - 1) // SLOT_NS * SLOT_NS
    return 1
