"""From decoded payloads of any length to frames of 20 ms with positions on the far end's clock.

The position comes from RTP timestamps, not from counting packets or from arrival times: silence suppression
and losses leave holes in it and never shorten it. A sender that sets its clock anew (a bridge that switches
sources) is noticed by a jump that the time passed does not explain, and gets a new base.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipeline.audio import FRAME_MS, kernels
from pipeline.plane.concealment import conceal, good
from pipeline.plane.native import I16, I64, ROWS, SCRATCH, VOID, native
from pipeline.plane.rows import HEARD, PRESSES

MAX_CONCEALED: Final = 3
"""Frames made up for one hole: what `concealment` fades out in. A longer hole is a hole in the positions."""

_SECOND_NS: Final = 1_000_000_000
_CLOCK_SLACK_S: Final = 1
_PAUSE_NS: Final = 100_000_000  # a rebased clock after more than this goes on where the listener's time is


@native(VOID, ROWS, I64, called_by_python=True)
def forget_tone(rows: Any, number: int) -> None:
    """The detector of tones begins anew."""
    state = rows.keys_state[number]
    state[:] = np.float32(0.0)
    state[kernels.DTMF_HIT] = state[kernels.DTMF_KEY] = np.float32(-1.0)
    rows.keys[number][:] = np.float32(0.0)


@native(VOID, ROWS, I64)
def restart(rows: Any, number: int) -> None:
    """Another source: its timestamps have nothing to do with those before; the positions go on."""
    line = rows.line[number]
    rows.past[number][:] = np.float32(0.0)
    rows.tail[number][:] = np.float32(0.0)
    line.losses = 0
    forget_tone(rows, number)
    if line.expected >= 0:
        line.expected = -2


@native(VOID, ROWS, I64, I64, I64)
def press(rows: Any, number: int, key: int, is_tone: int) -> None:
    """A key, before the frame that comes next."""
    line = rows.line[number]
    told = rows.presses[number, line.presses % PRESSES]
    told.key, told.is_tone, told.frame = key, is_tone, line.frames
    line.presses += 1


@native(VOID, ROWS, SCRATCH, I64, I64, I64)
def _pass_on(rows: Any, scratch: Any, number: int, at_ns: int, made_up: int) -> None:
    """The frame that was put into `heard` is complete."""
    line = rows.line[number]
    slot = line.frames % HEARD
    position, line.position = line.position, line.position + line.samples
    line.filled = 0
    if not line.listening:
        return
    if line.tones:
        frame = rows.heard[number, slot, : line.samples]
        key = kernels.dtmf_step(frame, rows.keys[number], scratch.cosines, scratch.sines, rows.keys_state[number])
        if key >= 0:
            press(rows, number, key, 1)
    told = rows.frames[number, slot]
    told.position, told.arrived_ns, told.made_up = position, at_ns, made_up
    line.frames += 1


@native(VOID, ROWS, SCRATCH, I64, I16, I64, I64)
def fill(rows: Any, scratch: Any, number: int, samples: Any, at_ns: int, made_up: int) -> None:
    """`samples` at the leg's rate: those that complete a frame pass it on."""
    line = rows.line[number]
    taken, size = 0, samples.shape[0]
    while taken < size:
        frame = rows.heard[number, line.frames % HEARD]
        step = min(line.samples - line.filled, size - taken)
        for i in range(step):
            frame[line.filled + i] = samples[taken + i]
        taken += step
        line.filled += step
        line.made_up |= made_up
        if line.filled == line.samples:
            whole = line.made_up
            line.made_up = made_up if taken < size else 0
            good(rows, scratch, number, frame)
            _pass_on(rows, scratch, number, at_ns, whole)


@native(VOID, ROWS, SCRATCH, I64, I64, I64)
def _silence(rows: Any, scratch: Any, number: int, samples: int, at_ns: int) -> None:
    scratch.resampled[:samples] = 0
    fill(rows, scratch, number, scratch.resampled[:samples], at_ns, rows.line[number].made_up)


@native(VOID, ROWS, SCRATCH, I64, I64, I64)
def _jump(rows: Any, scratch: Any, number: int, timestamp: int, at_ns: int) -> None:
    """Moves the position to where `timestamp` belongs; a frame begun before is filled up with silence."""
    line = rows.line[number]
    if line.expected == -1:
        return  # the first packet is position 0
    elapsed_ns, clock_hz = at_ns - line.heard_at_ns, line.media_clock_hz
    jump = -1
    if line.expected >= 0:
        jump = (timestamp - line.expected + 0x80000000 & 0xFFFFFFFF) - 0x80000000
    jump_ns = jump * _SECOND_NS // clock_hz
    slack_ns = _CLOCK_SLACK_S * _SECOND_NS
    if jump < 0 or (jump_ns > slack_ns and abs(jump_ns - elapsed_ns) > slack_ns):
        jump_ns = elapsed_ns - FRAME_MS * 1_000_000 if elapsed_ns > _PAUSE_NS else 0
    samples = (jump_ns * line.rate_hz + _SECOND_NS // 2) // _SECOND_NS
    if line.filled:
        padding = min(samples, line.samples - line.filled)
        _silence(rows, scratch, number, padding, at_ns)
        samples -= padding
    line.position += samples


@native(VOID, ROWS, SCRATCH, I64, I64, I64, I64)
def place(rows: Any, scratch: Any, number: int, timestamp: int, units: int, at_ns: int) -> None:
    """A packet of `units` of the RTP clock is stamped `timestamp`."""
    line = rows.line[number]
    if timestamp != line.expected:
        _jump(rows, scratch, number, timestamp, at_ns)
    line.expected = (timestamp + units) & 0xFFFFFFFF
    line.heard_at_ns = at_ns


@native(I16, ROWS, SCRATCH, I64, I16)
def at_rate(rows: Any, scratch: Any, number: int, samples: Any) -> Any:
    """`samples` of the codec at the leg's rate."""
    line = rows.line[number]
    if line.media_rate_hz == line.rate_hz:
        return samples
    up = line.media_rate_hz < line.rate_hz
    phases = scratch.up if up else scratch.down
    ratio, step = (2, 1) if up else (1, 2)
    end = samples.shape[0] * ratio
    out = scratch.resampled[: max(0, (end - line.resampled + step - 1) // step)]
    kernels.polyphase(samples, rows.resampling[number], phases, out, (line.resampled, step))
    line.resampled += out.shape[0] * step - end
    return out


@native(VOID, ROWS, SCRATCH, I64, I16, I64, I64, I64)
def audio(rows: Any, scratch: Any, number: int, samples: Any, timestamp: int, at_ns: int, made_up: int) -> None:
    """A packet's audio, at its codec's rate, in order. `made_up`: by the codec, for a packet that was lost."""
    line = rows.line[number]
    line.concealed += made_up
    units = samples.shape[0] * line.media_clock_hz // line.media_rate_hz
    place(rows, scratch, number, timestamp, units, at_ns)
    fill(rows, scratch, number, at_rate(rows, scratch, number, samples), at_ns, made_up)


@native(VOID, ROWS, SCRATCH, I64, I64, I64)
def comfort_noise(rows: Any, scratch: Any, number: int, timestamp: int, at_ns: int) -> None:
    """A packet that says "silence" (RFC 3389): one frame of it. The next timestamp says how long it was."""
    line = rows.line[number]
    place(rows, scratch, number, timestamp, line.media_clock_hz * FRAME_MS // 1000, at_ns)
    scratch.resampled[: line.samples] = 0
    fill(rows, scratch, number, scratch.resampled[: line.samples], at_ns, 0)


@native(VOID, ROWS, SCRATCH, I64, I64, I64)
def gap(rows: Any, scratch: Any, number: int, next_timestamp: int, at_ns: int) -> None:
    """Packets before the one stamped `next_timestamp` were given up: conceals what fits."""
    line = rows.line[number]
    if line.expected < 0:
        return
    units = line.media_clock_hz * FRAME_MS // 1000
    missing = (next_timestamp - line.expected + 0x80000000 & 0xFFFFFFFF) - 0x80000000
    if not units // 2 < missing <= _CLOCK_SLACK_S * line.media_clock_hz:
        return  # nothing of the clock is missing (lost events), or more than loss explains
    for _ in range(min((missing + units // 2) // units, MAX_CONCEALED)):
        line.expected = (line.expected + units) & 0xFFFFFFFF
        line.concealed += 1
        if line.filled:
            made_up = scratch.resampled[: line.samples]
            conceal(rows, scratch, number, made_up)
            fill(rows, scratch, number, made_up, at_ns, 1)
        else:
            conceal(rows, scratch, number, rows.heard[number, line.frames % HEARD])
            _pass_on(rows, scratch, number, at_ns, 1)


@native(VOID, ROWS, I64, I64)
def use(rows: Any, number: int, payload_type: int) -> None:
    """`audio` is of `payload_type` from now on."""
    line, media = rows.line[number], rows.media[number, payload_type]
    if line.media_clock_hz not in (0, media.clock_hz) and line.expected >= 0:
        line.expected = -2
    if line.media_rate_hz != media.rate_hz:
        rows.resampling[number][:] = np.float32(0.0)
        line.resampled = 0
    line.payload_type, line.media_clock_hz, line.media_rate_hz = payload_type, media.clock_hz, media.rate_hz
