"""From decoded payloads of any length to frames of 20 ms with positions on the far end's clock.

The position comes from RTP timestamps, not from counting packets or from arrival times: silence suppression
and losses leave holes in it and never shorten it. A sender that sets its clock anew (a bridge that switches
sources) is noticed by a jump that the time passed does not explain, and gets a new base.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipeline.audio import FRAME_MS, kernels
from pipeline.audio.compiled import compiled
from pipeline.audio.dtmf import TONE_MS
from pipeline.plane.atomic import fence
from pipeline.plane.native import I16, I64, LINE, SCRATCH, VOID
from pipeline.plane.reception.concealment import conceal, good
from pipeline.plane.reception.hearing import notice
from pipeline.plane.rows import HEARD, HISTORY, PRESSES

MAX_CONCEALED: Final = 3
"""Frames made up for one hole: what `concealment` fades out in. A longer hole is a hole in the positions."""

_SECOND_NS: Final = 1_000_000_000
_CLOCK_SLACK_S: Final = 1
_PAUSE_NS: Final = 100_000_000  # a rebased clock after more than this goes on where the listener's time is


@compiled(VOID(LINE))
def forget_tone(line: Any) -> None:
    """The detector of tones begins anew."""
    state = line.keys_state[:]
    state[:] = np.float32(0.0)
    state[kernels.DTMF_HIT] = state[kernels.DTMF_KEY] = np.float32(-1.0)
    line.keys[:] = np.float32(0.0)


@compiled(VOID(LINE), inner=True)
def restart(line: Any) -> None:
    """Another source: its timestamps have nothing to do with those before; the positions go on."""
    line.past[:] = np.float32(0.0)
    line.tail[:] = np.float32(0.0)
    line.losses = 0
    forget_tone(line)
    if line.expected >= 0:
        line.expected = -2


@compiled(VOID(LINE, I64, I64), inner=True)
def press(line: Any, key: int, is_tone: int) -> None:
    """A key, before the frame that comes next."""
    told = line.pressed[line.presses % PRESSES]
    told.key, told.is_tone, told.frame = key, is_tone, line.frames
    line.presses += 1
    begins = line.position - line.samples if is_tone else line.position
    line.keyed_until = begins + line.rate_hz * TONE_MS // 1000


@compiled(VOID(LINE, SCRATCH, I64, I64), inner=True)
def _pass_on(line: Any, scratch: Any, at_ns: int, made_up: int) -> None:
    """The frame that was put into `heard` is complete."""
    slot = line.frames % HEARD
    position, line.position = line.position, line.position + line.samples
    line.filled = 0
    if not line.listening:
        return
    if line.tones:
        frame = line.heard[slot * line.samples : (slot + 1) * line.samples]
        key = kernels.dtmf_step(frame, line.keys[:], scratch.cosines[:], scratch.sines[:], line.keys_state[:])
        if key >= 0:
            press(line, key, 1)
    told = line.heard_frames[slot]
    told.position, told.arrived_ns, told.made_up = position, at_ns, made_up
    notice(line, scratch, slot, position, at_ns)
    fence()
    line.frames += 1


@compiled(VOID(LINE, SCRATCH, I16, I64, I64), inner=True)
def fill(line: Any, scratch: Any, samples: Any, at_ns: int, made_up: int) -> None:
    """`samples` at the leg's rate: those that complete a frame pass it on."""
    taken, size = 0, samples.shape[0]
    while taken < size:
        first = line.frames % HEARD * line.samples
        frame = line.heard[first : first + line.samples]
        step = min(line.samples - line.filled, size - taken)
        for i in range(step):
            frame[line.filled + i] = samples[taken + i]
        taken += step
        line.filled += step
        line.made_up |= made_up
        if line.filled == line.samples:
            whole = line.made_up
            line.made_up = made_up if taken < size else 0
            good(line, scratch, frame)
            _pass_on(line, scratch, at_ns, whole)


@compiled(VOID(LINE, SCRATCH, I64, I64), inner=True)
def _silence(line: Any, scratch: Any, samples: int, at_ns: int) -> None:
    scratch.resampled[:samples] = 0
    fill(line, scratch, scratch.resampled[:samples], at_ns, line.made_up)


@compiled(VOID(LINE, SCRATCH, I64, I64), inner=True)
def _jump(line: Any, scratch: Any, timestamp: int, at_ns: int) -> None:
    """Moves the position to where `timestamp` belongs; a frame begun before is filled up with silence."""
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
        _silence(line, scratch, padding, at_ns)
        samples -= padding
    line.position += samples


@compiled(VOID(LINE, SCRATCH, I64, I64, I64), inner=True)
def place(line: Any, scratch: Any, timestamp: int, units: int, at_ns: int) -> None:
    """A packet of `units` of the RTP clock is stamped `timestamp`."""
    if timestamp != line.expected:
        _jump(line, scratch, timestamp, at_ns)
    line.expected = (timestamp + units) & 0xFFFFFFFF
    line.heard_at_ns = at_ns


@compiled(I16(LINE, SCRATCH, I16), inner=True)
def at_rate(line: Any, scratch: Any, samples: Any) -> Any:
    """`samples` of the codec at the leg's rate."""
    if line.media_rate_hz == line.rate_hz:
        return samples
    up = line.media_rate_hz < line.rate_hz
    phases = scratch.up[:] if up else scratch.down[:]
    ratio, step = (2, 1) if up else (1, 2)
    end = samples.shape[0] * ratio
    out = scratch.resampled[: max(0, (end - line.resampled + step - 1) // step)]
    kernels.polyphase(samples, line.resampling[:], phases, out, (line.resampled, step))
    line.resampled += out.shape[0] * step - end
    return out


@compiled(VOID(LINE, SCRATCH, I16, I64, I64), inner=True)
def audio(line: Any, scratch: Any, samples: Any, timestamp: int, at_ns: int) -> None:
    """A packet's audio, at its codec's rate, in order."""
    place(line, scratch, timestamp, samples.shape[0] * line.media_clock_hz // line.media_rate_hz, at_ns)
    fill(line, scratch, at_rate(line, scratch, samples), at_ns, 0)


@compiled(VOID(LINE, SCRATCH, I64, I64), inner=True)
def comfort_noise(line: Any, scratch: Any, timestamp: int, at_ns: int) -> None:
    """A packet that says "silence" (RFC 3389): one frame of it. The next timestamp says how long it was.
    Before any audio there is no clock yet, and nothing to fill up."""
    if line.media_clock_hz == 0:
        return
    place(line, scratch, timestamp, line.media_clock_hz * FRAME_MS // 1000, at_ns)
    scratch.resampled[: line.samples] = 0
    fill(line, scratch, scratch.resampled[: line.samples], at_ns, 0)


@compiled(VOID(LINE, SCRATCH, I64, I64), inner=True)
def gap(line: Any, scratch: Any, next_timestamp: int, at_ns: int) -> None:
    """Packets before the one stamped `next_timestamp` were given up: conceals what fits."""
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
            conceal(line, scratch, made_up)
            fill(line, scratch, made_up, at_ns, 1)
        else:
            first = line.frames % HEARD * line.samples
            conceal(line, scratch, line.heard[first : first + line.samples])
            _pass_on(line, scratch, at_ns, 1)


@compiled(VOID(LINE, I64), inner=True)
def use(line: Any, payload_type: int) -> None:
    """`audio` is of `payload_type` from now on."""
    media = line.media[payload_type]
    if line.media_clock_hz not in (0, media.clock_hz) and line.expected >= 0:
        line.expected = -2
    if line.media_rate_hz != media.rate_hz:
        line.resampled = 0
        if media.rate_hz != line.rate_hz:
            line.resampling[:HISTORY] = np.float32(0.0)
    line.payload_type, line.media_clock_hz, line.media_rate_hz = payload_type, media.clock_hz, media.rate_hz
