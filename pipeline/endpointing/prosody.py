"""Measures the prosody before a pause: pitch and level fall at the end of a sentence and stay up before more
words."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from pipeline.audio import Pcm, kernels

LOOK_BACK_S: Final = 4.0
"""Most audio that is looked at, in seconds."""

_VOICING: Final = 0.5  # normalised autocorrelation of a voiced frame
_LOUD_DB: Final = 30.0  # a frame this far below the loudest is unvoiced
_ENDING: Final = 12  # voiced frames of 10 ms: the last syllable or so
_LAST: Final = 6
_LATE: Final = 50
_BREAK: Final = 3  # frames without voice in a stretch
_LEAST: Final = 8  # fewest voiced frames for a statement about the pitch
_RANGE_ST: Final = 9.0  # around the voice's median; beyond are octave errors, and the hiss after a "t"
_FLOOR: Final = 1.0

_PITCHED_WITHIN_MS: Final = 300
_PITCHED_MS: Final = 60  # of voice with a pitch; a cough or a click has none, the shortest word 80 ms

Values: TypeAlias = Sequence[float]


@dataclass(frozen=True, slots=True)
class Prosody:
    """The prosody of the last 4 s before a pause; pitches in semitones (`_st`), levels in dB. "Middle" is the
    median pitch before the last syllable, "ending" the last syllable.

    `fall_st`, `last_st`: distance of the ending, and of the last 60 ms of voice, below the middle; negative
    for a rise. `floor_st`: distance of the ending below the lowest tenth of the pitches before;
    `over_floor_st`: distance of the last 60 ms above the lowest twentieth of all pitches. `higher`: share of
    the pitches before that lie above the ending. `up_st`, `down_st`: distance of the highest and the lowest
    twentieth of all pitches from the middle. `late_high_st`: highest pitch of the last half second of voice,
    above the middle; `late_fall_st`: fall from the highest tenth of that half second to the last 60 ms.

    `held_ms`: length of the last stretch of voice without a break. `stretch_high_st`, `stretch_low_st`: the
    highest and the lowest pitch of that stretch, from the middle; `stretch_fall_st`: fall from its begin to
    its end; `peak_fall_st`: fall from its highest pitch to the last 60 ms; `since_peak_ms`: time since its
    highest pitch.

    `drop_db`: level of the last half second of voice below that of all voice. `fade_db`: level of the end
    below the loudest frame. `voiced_ms`: length of all voice; at 0 no other field has a meaning."""

    fall_st: float = 0.0
    last_st: float = 0.0
    floor_st: float = 0.0
    over_floor_st: float = 0.0
    higher: float = 0.5
    up_st: float = 0.0
    down_st: float = 0.0
    late_high_st: float = 0.0
    late_fall_st: float = 0.0
    held_ms: float = 0
    stretch_high_st: float = 0.0
    stretch_low_st: float = 0.0
    stretch_fall_st: float = 0.0
    peak_fall_st: float = 0.0
    since_peak_ms: float = 0
    drop_db: float = 0.0
    fade_db: float = 0.0
    voiced_ms: float = 0


_SILENT: Final = Prosody()

_Voice: TypeAlias = tuple[Values, Values, Sequence[int]]
"""Of the voiced frames: pitch in semitones, level in dB, index."""


def prosody_of(audio: Pcm, rate_hz: int) -> Prosody:
    """Measures the prosody before the pause at the end of `audio`: int16 at a multiple of 4 kHz. Takes 0.1
    ms."""
    voice = _voice_in(audio, rate_hz)
    return _SILENT if voice is None else _measured(*voice)


def _voice_in(audio: Pcm, rate_hz: int) -> _Voice | None:
    ratio = rate_hz // kernels.PROSODY_HZ
    size = min(len(audio), int(LOOK_BACK_S * rate_hz)) // ratio
    count = (size - kernels.PROSODY_WINDOW - kernels.PROSODY_LONGEST) // kernels.PROSODY_HOP
    if count < _LEAST:
        return None
    rows = np.empty((count, 3), np.float32)
    kernels.prosody(audio[len(audio) - size * ratio :], ratio, np.empty(size, np.float32), rows)
    level_db = 20.0 * np.log10(rows[:, 0] + _FLOOR)
    voiced = (rows[:, 2] > _VOICING) & (level_db > level_db.max() - _LOUD_DB)
    at = np.flatnonzero(voiced)
    if len(at) < _LEAST:
        return None
    pitch_st = 12.0 * np.log2(rows[at, 1])
    own = np.abs(pitch_st - _quantile(np.sort(pitch_st).tolist(), 0.5)) < _RANGE_ST
    at = at[own]
    return (pitch_st[own].tolist(), level_db[at].tolist(), at.tolist()) if len(at) >= _LEAST else None


def is_pitched(audio: Pcm, rate_hz: int) -> bool:
    """Whether the last 0.3 s of `audio` (int16 at a multiple of 4 kHz) have a pitch, which a cough, a click
    or a hiss has not."""
    voice = _voice_in(audio[-(rate_hz * _PITCHED_WITHIN_MS // 1000) :], rate_hz)
    return voice is not None and len(voice[2]) * 10 >= _PITCHED_MS


def _measured(pitch_st: Values, loud_db: Values, at: Sequence[int]) -> Prosody:
    """Computes the measures of the voiced frames: their pitches, their levels, their indices. For so few
    values lists take a fifth of the time of arrays."""
    begin = next((i for i in range(len(at) - 1, 0, -1) if at[i] - at[i - 1] > _BREAK), 0)
    told: dict[str, float] = {"fade_db": max(loud_db) - _mean(loud_db[-_LAST:])}
    if len(pitch_st) >= _ENDING + _LEAST:
        told["drop_db"] = _quantile(sorted(loud_db), 0.8) - _quantile(sorted(loud_db[-_LATE:]), 0.8)
        before = sorted(pitch_st[:-_ENDING])
        told |= _of_the_stretch(pitch_st[begin:], _quantile(before, 0.5)) | _of_the_end(pitch_st, before)
    return Prosody(held_ms=(at[-1] - at[begin] + 1) * 10, voiced_ms=len(at) * 10, **told)


def _of_the_end(pitch_st: Values, before: Values) -> dict[str, float]:
    """The measures of the ending against the pitches `before`, which are sorted."""
    ending = pitch_st[-_ENDING:]
    last, whole, late = ending[-_LAST:], sorted(pitch_st), sorted(pitch_st[-_LATE:])
    end, middle = _quantile(sorted(ending), 0.5), _quantile(before, 0.5)
    return {
        "fall_st": middle - end,
        "last_st": middle - _quantile(sorted(last), 0.5),
        "floor_st": _quantile(before, 0.1) - end,
        "over_floor_st": _mean(last) - _quantile(whole, 0.05),
        "higher": (len(before) - bisect_right(before, end)) / len(before),
        "up_st": _quantile(whole, 0.95) - middle,
        "down_st": middle - _quantile(whole, 0.05),
        "late_high_st": late[-1] - middle,
        "late_fall_st": _quantile(late, 0.9) - _mean(last),
    }


def _of_the_stretch(stretch: Values, middle: float) -> dict[str, float]:
    """The measures of the last stretch of voice."""
    peak = max(stretch)
    return {
        "stretch_high_st": peak - middle,
        "stretch_low_st": min(stretch) - middle,
        "stretch_fall_st": stretch[0] - stretch[-1],
        "peak_fall_st": peak - _mean(stretch[-_LAST:]),
        "since_peak_ms": (len(stretch) - stretch.index(peak)) * 10,
    }


def _mean(values: Values) -> float:
    return sum(values) / len(values)


def _quantile(ordered: Values, share: float) -> float:
    """The quantile, interpolated like numpy's."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])
