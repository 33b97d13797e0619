"""Finds which samples of the agent's text were heard, when, and how loud.

A text may be lowered, paused and continued from a cut word; frames are compared whatever their level, and
searched again after a silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from bench.conversation.caller import FRAME, LOUD
from bench.conversation.sounds import RATE_HZ, Sound
from pipeline.audio import Pcm

LOWERED: Final = 10 ** (-10 / 20)
TAIL_S: Final = 0.4
"""Seconds at the end of a text that must be in the recording for the text to count as finished."""

FRAME_S: Final = FRAME / RATE_HZ
_ALIKE: Final = 0.5
_SAME: Final = 0.8  # for a search after a silence: the answer has other words in the same voice
_LOST: Final = 4  # missing frames in a row after which the text was stopped, or paused
_AGAIN_S: Final = 0.9  # how far back or on a text may continue: no word is longer, and no pause in one
_PROBE_S: Final = 0.2  # length of the sample that is searched after a silence


@dataclass(frozen=True, slots=True)
class Piece:
    """20 ms of a text that were heard: sample `first` of the text, at second `at_s` of the recording, `gain`
    times as loud."""

    first: int
    at_s: float
    gain: float

    @property
    def until_s(self) -> float:
        """Returns where the piece ends in the recording, in seconds."""
        return self.at_s + FRAME_S


def followed(sound: Sound, heard: Pcm, begins_s: float | None = None) -> list[Piece]:
    """Returns the heard pieces of `sound`, in order. `begins_s`: about where it begins; None: the first in
    the recording. Frames too soft to be heard are left out."""
    first_s = 0.0 if begins_s is None else max(0.0, begins_s - 0.1)
    search = slice(round(first_s * RATE_HZ), round((first_s + (6.0 if begins_s is None else 1.0)) * RATE_HZ))
    start = search.start + best_place(sound.samples[: RATE_HZ // 2], heard[search])
    found: list[Piece] = []
    shift: int | None = start
    first = 0
    while shift is not None:
        found += _in_one_go(sound, heard, first, shift)
        first, shift = _taken_up(sound, heard, found[-1]) if found else (0, None)
    return found


def _in_one_go(sound: Sound, heard: Pcm, first: int, shift: int) -> list[Piece]:
    """Returns the pieces from sample `first` on, `shift` samples later in the recording, until frames are
    missing."""
    found: list[Piece] = []
    lost = 0
    for place in range(first, sound.samples.size - FRAME, FRAME):
        piece = sound.samples[place : place + FRAME].astype(np.float64)
        there = heard[shift + place : shift + place + FRAME].astype(np.float64)
        if there.size < FRAME:
            break
        if float(np.abs(piece).mean()) < LOUD:
            continue
        lost += 1
        if _alike(piece, there) > _ALIKE:
            gain = float(piece @ there) / float(piece @ piece)
            found.append(Piece(place, (shift + place) / RATE_HZ, gain))
            lost = 0
        elif lost > _LOST:
            break
    return found


def _taken_up(sound: Sound, heard: Pcm, last: Piece) -> tuple[int, int | None]:
    """Returns the sample at which the text continues after `last`, and its shift; None where it does not."""
    size = round(_PROBE_S * RATE_HZ)
    from_at = round(last.until_s * RATE_HZ) + _LOST * FRAME
    frames = heard[from_at:][: (heard.size - from_at) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    loud = np.flatnonzero(np.sqrt((frames**2).mean(axis=1)) >= LOUD)
    if not loud.size:
        return 0, None
    at = from_at + int(loud[0]) * FRAME
    probe = heard[at : at + size].astype(np.float64)
    begin = max(0, last.first - round(_AGAIN_S * RATE_HZ))
    source = sound.samples[begin : last.first + size + round(_AGAIN_S * RATE_HZ)]
    if source.size < probe.size or probe.size < size:
        return 0, None
    place = best_place(probe, source)
    if _alike(source[place : place + size].astype(np.float64), probe) < _SAME:
        return 0, None
    return begin + place, at - begin - place


def completed(sound: Sound, heard: Pcm) -> bool:
    """Whether the end of `sound` was heard."""
    tail = sound.samples[-round(TAIL_S * RATE_HZ) :].astype(np.float64)
    at = best_place(tail, heard)
    there = heard[at : at + tail.size].astype(np.float64)
    return there.size == tail.size and _alike(tail, there) > _ALIKE


def best_place(piece: Any, within: Pcm) -> int:
    """Returns where `piece` fits best, whatever its level."""
    wanted = np.asarray(piece, np.float64)
    there = within.astype(np.float64)
    size = 1 << (there.size + wanted.size).bit_length()
    product = np.fft.irfft(np.fft.rfft(there, size) * np.conj(np.fft.rfft(wanted, size)), size)[: there.size]
    energy = np.cumsum(np.concatenate(([0.0], there**2)))
    last = np.minimum(np.arange(there.size) + wanted.size, there.size)
    local = np.sqrt(energy[last] - energy[: there.size]) + 1000.0
    whole = max(1, there.size - wanted.size + 1)
    return int(np.argmax((product / local)[:whole]))


def _alike(one: Any, other: Any) -> float:
    return float(one @ other) / (float(np.linalg.norm(one) * np.linalg.norm(other)) + 1e-9)


# Figures ----------------------------------------------------------------------------------------------------


def samples_heard(pieces: Sequence[Piece]) -> int:
    """Returns how many samples of the text were reached."""
    return max((piece.first + FRAME for piece in pieces), default=0)


def silent_from_s(pieces: Sequence[Piece]) -> float:
    """Returns where the last piece was heard, in seconds."""
    return max((piece.until_s for piece in pieces), default=0.0)


def lowered_from_s(pieces: Sequence[Piece]) -> float:
    """Returns from where on the text was 10 dB lower than it should be, or silent, to its end."""
    return max((piece.until_s for piece in pieces if piece.gain > LOWERED), default=0.0)


def longest_hush_s(pieces: Sequence[Piece]) -> float:
    """Returns the longest silence in the heard text that the text itself does not have; 0 for none."""
    return max(
        (
            later.at_s - piece.until_s
            for piece, later in pairwise(pieces)
            if abs((later.at_s - piece.at_s) - (later.first - piece.first) / RATE_HZ) > FRAME_S / 2
        ),
        default=0.0,
    )
