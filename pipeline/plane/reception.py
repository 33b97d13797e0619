"""What arrived of one RTP source, in the terms of RFC 3550: A.1 (numbers), A.8 (jitter)."""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.plane.native import I64, LINE, VOID

_MAX_DROPOUT: Final = 3000
_MAX_MISORDER: Final = 100
JITTER_UNIT: Final = 1 << 16
"""Of `jitter`, in a unit of the RTP clock."""


@compiled(VOID(LINE, I64, I64), inner=True)
def begin_source(line: Any, ssrc: int, clock_hz: int) -> None:
    """Another source, whose numbers and times have nothing to do with those before."""
    line.ssrc, line.clock_hz = ssrc, clock_hz
    line.received = line.base = line.highest = line.cycles = line.jitter = 0
    line.bad_next = line.arrived_ns = -1


@compiled(VOID(LINE, I64), inner=True)
def _begin(line: Any, sequence: int) -> None:
    line.base = line.highest = sequence
    line.cycles = line.received = 0
    line.bad_next = -1


@compiled(VOID(LINE, I64), inner=True)
def count(line: Any, sequence: int) -> None:
    """Counts the packet with the 16-bit number `sequence` (RFC 3550 A.1)."""
    ahead = (sequence - line.highest) & 0xFFFF
    if line.received == 0:
        _begin(line, sequence)
    elif ahead < _MAX_DROPOUT:
        if sequence < line.highest:
            line.cycles += 0x10000
        line.highest = sequence
    elif ahead < 0x10000 - _MAX_MISORDER:
        if sequence != line.bad_next:
            line.bad_next = (sequence + 1) & 0xFFFF
            return  # a jump is believed when the next number follows
        _begin(line, sequence)
    line.received += 1


@compiled(VOID(LINE, I64, I64), inner=True)
def arrival(line: Any, timestamp: int, at_ns: int) -> None:
    """Takes an audio packet into the jitter (A.8). A jump of the sender's clock by a second or more is
    none."""
    if line.arrived_ns >= 0:
        apart = (timestamp - line.stamped + 0x80000000 & 0xFFFFFFFF) - 0x80000000
        off = abs(
            (at_ns - line.arrived_ns) * JITTER_UNIT // 1_000_000 * line.clock_hz // 1000 - apart * JITTER_UNIT
        )
        if off < line.clock_hz * JITTER_UNIT:
            line.jitter += (off - line.jitter) // 16
    line.arrived_ns, line.stamped = at_ns, timestamp
