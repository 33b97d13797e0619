"""Lost frames replaced by more of what was heard last, in the manner of ITU-T G.711 Appendix I.

The last pitch periods are repeated, faded out between 10 and 60 ms, then silence: a machine's listener must
not be given invented words. Unlike Appendix I nothing is delayed: the start of a repetition is joined to
what was already heard by removing the step instead of overlapping the past (3.75 ms), so a good frame costs
a copy and no wait.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipeline.audio import FRAME_MS, kernels
from pipeline.audio.compiled import compiled
from pipeline.plane.native import F32, I16, I64, LINE, SCRATCH, VOID

_FADE_FROM_MS: Final = 10.0
_FADE_TO_MS: Final = 60.0
_SHORTEST_MS: Final = 5  # the pitch periods of Appendix I
_LONGEST_MS: Final = 15


@compiled(VOID(F32, F32, I64), inner=True)
def _crossfade(wave: Any, tail: Any, overlap: int) -> None:
    """What would have been repeated goes, `wave` comes."""
    for i in range(overlap):
        ramp = np.float32(i) / np.float32(overlap - 1)
        wave[i] = wave[i] * ramp + tail[i] * (np.float32(1.0) - ramp)


@compiled(VOID(F32, I16, I64), inner=True)
def _remember(past: Any, frame: Any, samples: int) -> None:
    """`past`: the last three frames, the newest last."""
    for i in range(2 * samples):
        past[i] = past[i + samples]
    for i in range(samples):
        past[2 * samples + i] = np.float32(frame[i])


@compiled(VOID(F32, I16, I64), inner=True)
def _round(wave: Any, frame: Any, samples: int) -> None:
    for i in range(samples):
        frame[i] = np.int16(min(max(np.rint(wave[i]), np.float32(-32768.0)), np.float32(32767.0)))


@compiled(VOID(LINE, SCRATCH, I16), inner=True)
def good(line: Any, scratch: Any, frame: Any) -> None:
    """A frame of 20 ms that arrived, in place: after a concealed one it fades in over the repetition."""
    wave = scratch.wave[:]
    samples = line.samples
    if line.losses:
        line.losses = 0
        for i in range(samples):
            wave[i] = np.float32(frame[i])
        _crossfade(wave, line.tail[:], samples // 2)
        _round(wave, frame, samples)
    _remember(line.past[:], frame, samples)


@compiled(I64(F32, F32, LINE), inner=True)
def _loop(past: Any, loop: Any, line: Any) -> int:
    """As many of the last periods as frames were lost, their end faded into what preceded their start, so
    that they repeat without a seam. Their length in samples."""
    length, quarter, end = line.losses * line.period, line.period // 4, 3 * line.samples
    for i in range(length):
        loop[i] = past[end - length + i]
    for i in range(quarter):
        ramp = np.float32(i) / np.float32(quarter - 1)
        before = past[end - length - quarter + i]
        at = length - quarter + i
        loop[at] = loop[at] * (np.float32(1.0) - ramp) + before * ramp
    return int(length)


@compiled(VOID(LINE, SCRATCH, I16, I64), inner=True)
def _repeat(line: Any, scratch: Any, frame: Any, begun_ms: int) -> None:
    """The frame that starts `begun_ms` into the loss: one, then two, then three periods over and over."""
    past, tail, wave = line.past[:], line.tail[:], scratch.wave[:]
    samples, overlap = line.samples, line.samples // 2
    length = _loop(past, scratch.loop[:], line)
    for i in range(samples + overlap):
        at_ms = begun_ms + i * 1000.0 / line.rate_hz
        gain = min(max((_FADE_TO_MS - at_ms) / (_FADE_TO_MS - _FADE_FROM_MS), 0.0), 1.0)
        wave[i] = scratch.loop[(line.phase + i) % length] * np.float32(gain)
    if begun_ms == 0:
        last = 3 * samples - 1
        step, count = past[last] - past[last - line.period], line.rate_hz // 1000
        for i in range(count):  # the step at the start, spread over a millisecond
            wave[i] += step * (np.float32(1.0) - np.float32(i) / np.float32(count - 1))
    else:
        _crossfade(wave, tail, overlap)
    for i in range(overlap):
        tail[i] = wave[samples + i]
    line.phase = (line.phase + samples) % line.period
    _round(wave, frame, samples)


@compiled(VOID(LINE, SCRATCH, I16), inner=True)
def conceal(line: Any, scratch: Any, frame: Any) -> None:
    """Fills `frame` in place of a lost one; digital silence once 60 ms have been lost."""
    samples, begun_ms = line.samples, line.losses * FRAME_MS
    line.losses += 1
    if begun_ms >= _FADE_TO_MS:
        line.tail[:] = np.float32(0.0)
        frame[:samples] = 0
    else:
        if begun_ms == 0:
            past = line.past[: 3 * samples]
            shortest, longest = line.rate_hz * _SHORTEST_MS // 1000, line.rate_hz * _LONGEST_MS // 1000
            line.period = kernels.pitch_period(past, shortest, longest, samples)
            line.phase = 0
        _repeat(line, scratch, frame, begun_ms)
    _remember(line.past[:], frame, samples)
