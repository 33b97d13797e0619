"""Lost Opus packets out of the FEC of the one that follows them."""

from __future__ import annotations

from typing import Any, Final

from pipeline.audio.compiled import compiled
from pipeline.audio.opus import STEP, opus_decode
from pipeline.plane.native import I64, LINE, SCRATCH, U8, VOID
from pipeline.plane.reception.frames import at_rate, fill, place

MAX_RECOVERED: Final = 5
"""Frames that libopus makes up for one gap: it has faded to silence by then. Of a longer gap only the last
frame is recovered."""

_FRAMES_PER_SECOND: Final = 50


@compiled(VOID(LINE, SCRATCH, U8, I64, I64), inner=True)
def recover(line: Any, scratch: Any, payload: Any, next_timestamp: int, at_ns: int) -> None:
    """What was lost before the Opus payload stamped `next_timestamp`, out of its FEC; without any it is made
    up."""
    if line.expected < 0:
        return
    clock_hz, rate_hz = line.media_clock_hz, line.media_rate_hz
    units = clock_hz // _FRAMES_PER_SECOND
    missing = (next_timestamp - line.expected + 0x80000000 & 0xFFFFFFFF) - 0x80000000
    if missing > MAX_RECOVERED * units:
        missing = units
    samples = missing * rate_hz // clock_hz // STEP * STEP
    if samples <= 0:
        return  # nothing of the clock is missing (lost events)
    lost, state = scratch.pcm[:samples], line.opus_heard[:].ctypes.data
    if payload.shape[0] == 0 or opus_decode(state, payload, lost, 1) < 0:
        opus_decode(state, payload[:0], lost, 0)
    missing = samples * clock_hz // rate_hz
    line.recovered += 1
    line.concealed += max(1, (missing + units // 2) // units)
    place(line, scratch, (next_timestamp - missing) & 0xFFFFFFFF, missing, at_ns)
    fill(line, scratch, at_rate(line, scratch, lost), at_ns, 1)
