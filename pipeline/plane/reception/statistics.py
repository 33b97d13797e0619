"""What arrived of one RTP source, in the terms of RFC 3550: A.1 (sequence numbers), A.8 (jitter)."""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.native import I64, LINE, VOID

_MAX_DROPOUT: Final = 3000
_MAX_MISORDER: Final = 100
JITTER_UNIT: Final = 1 << 16
"""Of `jitter`, in a unit of the RTP clock."""


@compiled(VOID(LINE, I64), inner=True)
def begin_source(line: Any, ssrc: int) -> None:
    """Another source: its numbers and times have nothing to do with those before."""
    line.ssrc, line.clock_hz, line.jitter = ssrc, 0, 0
    line.received, line.bad_next = 0, -1


@compiled(VOID(LINE, I64), inner=True)
def count(line: Any, sequence: int) -> None:
    """Counts the packet with the 16-bit number `sequence` (A.1). A run of numbers begins with the first
    packet, and where a jump is followed by the next number."""
    ahead = (sequence - line.highest) & 0xFFFF
    jump = _MAX_DROPOUT <= ahead <= 0x10000 - _MAX_MISORDER
    if line.received and jump and sequence != line.bad_next:
        line.bad_next = (sequence + 1) & 0xFFFF
        return
    if line.received == 0 or jump:
        line.base = line.highest = sequence
        line.cycles = line.received = 0
        line.bad_next = -1
        line.runs += 1
    elif ahead < _MAX_DROPOUT:
        if sequence < line.highest:
            line.cycles += 0x10000
        line.highest = sequence
    line.received += 1


@compiled(VOID(LINE, I64, I64, I64), inner=True)
def arrival(line: Any, clock_hz: int, timestamp: int, at_ns: int) -> None:
    """Takes an audio packet into the jitter (A.8). A jump of the sender's clock by a second or more is none,
    nor is a change to a codec with another clock."""
    if clock_hz == line.clock_hz:
        apart = (timestamp - line.stamped + 0x80000000 & 0xFFFFFFFF) - 0x80000000
        arrived = (at_ns - line.arrived_ns) * JITTER_UNIT // 1_000_000 * clock_hz // 1000
        off = abs(arrived - apart * JITTER_UNIT)
        if off < clock_hz * JITTER_UNIT:
            line.jitter += (off - line.jitter + 8) // 16
    else:
        line.clock_hz, line.jitter = clock_hz, 0
    line.arrived_ns, line.stamped = at_ns, timestamp
