"""How the voice sounds before a pause: falling and fading as at a full stop, or held as before "and"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline import kernels
from pipeline.audio import Pcm

_LOOK_BACK_S: Final = 4.0
_VOICING: Final = 0.5  # normalised autocorrelation of a voiced frame
_LOUD_DB: Final = 30.0  # a frame this far below the loudest is not the voice
_ENDING: Final = 12  # voiced frames of 10 ms: the last syllable or so
_LEAST: Final = 8  # voiced frames before anything is said about the pitch
_RANGE_ST: Final = 9.0  # around the voice's middle; beyond are wrong octaves, and the hiss after a "t"
_FLOOR: Final = 1.0

_PITCHED_WITHIN_MS: Final = 300
_PITCHED_MS: Final = 60  # a cough or a key has none, the shortest word 80


@dataclass(frozen=True, slots=True)
class Prosody:
    """The last seconds before a pause.

    `fall_st`: by how many semitones the last syllable lies below the voice's middle before it; negative for a
    rise; `late_st`, `last_st`: the same of the last 0.2 s and 60 ms of voice. `floor_st`, `lowest_st`: by how
    many the last syllable, and its lowest 10 ms, lie below the lowest tenth of what was before. `higher`: the
    share of what was before that lies above the end. `drop_db`: by how much the last half second is quieter.
    `slope_st_s`: of the pitch in the last 0.25 s of voice, semitones a second. `fade_db`: by how much the end
    is quieter than the loudest part. `held_ms`: the last stretch of voice without a break. `voiced_ms`: how
    much voice there was to judge by; with 0 the others say nothing."""

    fall_st: float = 0.0
    late_st: float = 0.0
    last_st: float = 0.0
    floor_st: float = 0.0
    lowest_st: float = 0.0
    higher: float = 0.5
    drop_db: float = 0.0
    slope_st_s: float = 0.0
    fade_db: float = 0.0
    held_ms: int = 0
    voiced_ms: int = 0


_SILENT: Final = Prosody()

_Voice: TypeAlias = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.intp]]
"""Pitch of the voiced frames, level of all, and which are voiced."""


def prosody_of(audio: Pcm, rate_hz: int) -> Prosody:
    """The prosody before the pause that ends `audio`: int16 at any multiple of 4 kHz. Takes 0.2 ms."""
    voice = _voice_in(audio, rate_hz)
    return _SILENT if voice is None else _measured(*voice)


def _voice_in(audio: Pcm, rate_hz: int) -> _Voice | None:
    ratio = rate_hz // kernels.PROSODY_HZ
    size = min(len(audio), int(_LOOK_BACK_S * rate_hz)) // ratio * ratio
    thin = _thinned(audio[len(audio) - size :], ratio)
    count = (len(thin) - kernels.PROSODY_WINDOW - kernels.PROSODY_LONGEST) // kernels.PROSODY_HOP
    if count < _LEAST:
        return None
    rows = np.empty((count, 3), np.float32)
    kernels.prosody(thin, rows)
    level_db = 20.0 * np.log10(rows[:, 0] + _FLOOR)
    voiced = (rows[:, 2] > _VOICING) & (level_db > level_db.max() - _LOUD_DB)
    at = np.flatnonzero(voiced)
    if len(at) < _LEAST:
        return None
    pitch_st = 12.0 * np.log2(rows[at, 1])
    own = np.abs(pitch_st - _quantile(pitch_st, 0.5)) < _RANGE_ST
    return (pitch_st[own], level_db, at[own]) if own.sum() >= _LEAST else None


def _thinned(audio: Pcm, ratio: int) -> npt.NDArray[np.float32]:
    """The mean of each `ratio` samples. Column by column: numpy's mean over so short rows takes 14 times as
    long."""
    columns = audio.reshape(-1, ratio)
    total = columns[:, 0].astype(np.float32)
    for column in range(1, ratio):
        total += columns[:, column]
    total /= ratio
    return total


def is_pitched(audio: Pcm, rate_hz: int) -> bool:
    """The last 0.3 s of `audio` are a voice, and no cough, key or hiss."""
    voice = _voice_in(audio[-(rate_hz * _PITCHED_WITHIN_MS // 1000) :], rate_hz)
    return voice is not None and len(voice[2]) * 10 >= _PITCHED_MS


def _measured(
    pitch_st: npt.NDArray[np.float32], level_db: npt.NDArray[np.float32], at: npt.NDArray[np.intp]
) -> Prosody:
    """`pitch_st`: of the voiced frames, which are at `at`."""
    ending, before = pitch_st[-_ENDING:], pitch_st[:-_ENDING]
    recent = at >= at[-1] - 25
    slope = 0.0
    if recent.sum() >= _LEAST:
        times = at[recent] - at[recent].mean()
        slope = float((times * pitch_st[recent]).sum() / (times * times).sum()) * 100.0
    gaps = np.flatnonzero(np.diff(at) > 3)
    held = at[-1] - (at[gaps[-1] + 1] if len(gaps) else at[0]) + 1
    told = Prosody(
        slope_st_s=slope,
        fade_db=float(level_db[at].max() - level_db[at[-6:]].mean()),
        held_ms=int(held) * 10,
        voiced_ms=len(at) * 10,
    )
    if len(before) < _LEAST:
        return told
    end, middle, floor = _quantile(ending, 0.5), _quantile(before, 0.5), _quantile(before, 0.1)
    loud = level_db[at]
    return replace(
        told,
        fall_st=middle - end,
        late_st=middle - _quantile(pitch_st[-20:], 0.5),
        last_st=middle - _quantile(ending[-6:], 0.5),
        floor_st=floor - end,
        lowest_st=float(floor - ending.min()),
        higher=float((before > end).mean()),
        drop_db=_quantile(loud, 0.8) - _quantile(loud[-50:], 0.8),
    )


def _quantile(values: npt.NDArray[np.float32], share: float) -> float:
    """Between two values on a line, as numpy's own, which takes ten times as long for so few."""
    ordered = np.sort(values)
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (at - below) * (ordered[above] - ordered[below]))
