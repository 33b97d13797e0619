"""What the plane notices in the frames of a conversation: voice, the echo of the agent's voice, the tones of
keys. The kernels and their order are those of `pipeline.session.audio_input` on a leg that does not listen.

Python is told at once of a frame in which something hangs on it, and of the others after `beat` frames: it
reads the ring up to there. Nothing is decided here; a frame's verdicts lie beside its samples.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipeline.audio import kernels
from pipeline.audio.compiled import compiled
from pipeline.audio.echo_gate import EXPLAINED, REALIGN, TAIL_S
from pipeline.audio.levels import AUDIBLE
from pipeline.plane.native import BOOL, F32, I16, I64, LINE, SCRATCH, VOID
from pipeline.plane.rows import Note

_VOICED, _ACTIVE, _ECHO, _MASKED, _JUDGED = (int(each) for each in Note)
_COARSE: Final = kernels.ECHO_COARSE
_COARSE_HZ: Final = _COARSE * 50
_NS: Final = 1e9


@compiled(VOID(LINE, SCRATCH, I16, F32), inner=True)
def _thin(line: Any, scratch: Any, frame: Any, history: Any) -> None:
    """`frame` into `scratch.thinned`."""
    taps = scratch.echo_taps_8k[:] if line.rate_hz == 8000 else scratch.echo_taps_16k[:]
    kernels.echo_thin(frame, taps, history[: taps.shape[0] + 2 * line.samples], scratch.thinned[:])


@compiled(VOID(LINE, SCRATCH, I64), inner=True)
def _skip(line: Any, scratch: Any, due: int) -> None:
    """Fills a pause within the agent's words with silence."""
    scratch.thinned[:] = np.float32(0.0)
    while line.echo_next_played < due:
        kernels.echo_remember(line.echo_rings[:], line.echo_next_played, scratch.thinned[:])
        line.echo_next_played += _COARSE
    line.echo_next_played = due


@compiled(VOID(LINE, I64), inner=True)
def _begin(line: Any, due: int) -> None:
    """The agent begins to speak: lag and filter of the line are kept."""
    line.echo_next_played = due
    line.echo_rings[:] = 0
    line.echo_sums[:] = np.float32(0.0)
    for k in range(kernels.ECHO_LOCKED):
        line.echo[k] = np.float32(0.0)
    line.echo[kernels.ECHO_QUIET] = np.float32(kernels.ECHO_HANG)


@compiled(VOID(LINE, SCRATCH, I64, I64), inner=True)
def played(line: Any, scratch: Any, slot: int, now_ns: int) -> None:
    """The agent's frame in `slot` of the frames said leaves now (`EchoGate.played`)."""
    frame, told = line.said[slot * line.samples : (slot + 1) * line.samples], line.sent_frames[slot]
    told.sent_ns = now_ns
    told.audible = kernels.peak(frame) > AUDIBLE
    if not line.follows:
        return
    due = I64(np.rint(now_ns / _NS * _COARSE_HZ))
    if now_ns / _NS - line.echo_played_ns / _NS > TAIL_S:
        _begin(line, due)
    line.echo_played_ns = now_ns
    if abs(due - line.echo_next_played) > REALIGN:
        _skip(line, scratch, due)
    _thin(line, scratch, frame, line.echo_far[:])
    kernels.echo_remember(line.echo_rings[:], line.echo_next_played, scratch.thinned[:])
    line.echo_next_played += _COARSE


@compiled(BOOL(LINE, SCRATCH, I16, I64), inner=True)
def _is_echo(line: Any, scratch: Any, frame: Any, now_ns: int) -> bool:
    """Whether `frame` is only the echo of what was played (`EchoGate.is_echo`)."""
    due = I64(np.rint(now_ns / _NS * _COARSE_HZ))
    position = line.echo_next_heard if abs(due - line.echo_next_heard) <= REALIGN else due
    line.echo_next_heard = position + _COARSE
    if now_ns / _NS - line.echo_played_ns / _NS > TAIL_S:
        return False
    _thin(line, scratch, frame, line.echo_near[:])
    share = kernels.echo_share(
        line.echo_rings[:],
        position,
        scratch.thinned[:],
        line.echo_sums[:],
        line.echo_weights[:],
        line.echo[:],
    )
    return bool(share > EXPLAINED)


@compiled(VOID(LINE, SCRATCH, I64, I64, I64), inner=True)
def notice(line: Any, scratch: Any, slot: int, position: int, at_ns: int) -> None:
    """Looks at the frame in `slot` of the frames heard, which begins at `position` of the media clock."""
    told = line.heard_frames[slot]
    told.note, told.level = 0, 0.0
    if not line.detects or not line.sends:
        line.stirred = 1
        return
    frame = line.heard[slot * line.samples : (slot + 1) * line.samples]
    note = _JUDGED | (_ECHO if _is_echo(line, scratch, frame, at_ns) else 0)
    if position < line.masked_until or position < line.keyed_until:
        note |= _MASKED
    else:
        note |= kernels.energy_vad_step(frame, line.voice[:], line.voice_bands[:])
        if note & _VOICED:
            told.level = kernels.rms_dbfs(frame)
    told.note = note
    awaited = note & (_VOICED | _ACTIVE) and told.level < line.alert_below
    if awaited or note & _MASKED or (note ^ line.noted) & _ACTIVE:
        line.stirred = 1
    line.noted = note


@compiled(BOOL(LINE, I64), inner=True)
def is_news(line: Any, presses: int) -> bool:
    """Whether Python is to be told of the frames heard; `presses`: keys before them."""
    if not line.stirred and line.presses == presses and line.frames - line.told < line.beat:
        return False
    line.told, line.stirred = line.frames, 0
    return True
