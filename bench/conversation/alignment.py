"""How much of the agent's text was heard, when, and how loud: its own samples looked for in the recording.

A text may be lowered, held and taken up again at a word that was cut; frames are compared whatever their
level, and after a silence looked for anew."""

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
"""The end of a text that has to be found in the recording for the text to have been finished."""

FRAME_S: Final = FRAME / RATE_HZ
_ALIKE: Final = 0.5
_SAME: Final = 0.8  # of what is looked for anew: the answer has other words in the same voice
_LOST: Final = 4  # frames in a row that should be heard and are not: the text was stopped, or held
_AGAIN_S: Final = 0.9  # how far back a text is taken up, or on: no word is longer, and no pause within it
_PROBE_S: Final = 0.2  # of what is heard after a silence, to know it by


@dataclass(frozen=True, slots=True)
class Piece:
    """20 ms of a text that were heard: from sample `first` of it, at second `at_s` of the recording, `gain`
    times as loud."""

    first: int
    at_s: float
    gain: float

    @property
    def until_s(self) -> float:
        """Where it ends in the recording."""
        return self.at_s + FRAME_S


def followed(sound: Sound, heard: Pcm, begins_s: float | None = None) -> list[Piece]:
    """What was heard of `sound`, in order. `begins_s`: about where it begins; None: it is the recording's
    first. Frames too soft to be heard are left out."""
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
    """From sample `first` on, which lies `shift` later in the recording, until it is not there any more."""
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
    """Where the text goes on after `last`: sample, and how much later it lies; None where it does not."""
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
    """The end of `sound` was heard."""
    tail = sound.samples[-round(TAIL_S * RATE_HZ) :].astype(np.float64)
    at = best_place(tail, heard)
    there = heard[at : at + tail.size].astype(np.float64)
    return there.size == tail.size and _alike(tail, there) > _ALIKE


def best_place(piece: Any, within: Pcm) -> int:
    """Where `piece` fits best, whatever its level."""
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


# What it means ----------------------------------------------------------------------------------------------


def samples_heard(pieces: Sequence[Piece]) -> int:
    """How far into the text they got."""
    return max((piece.first + FRAME for piece in pieces), default=0)


def silent_from_s(pieces: Sequence[Piece]) -> float:
    """Where the last of it was heard."""
    return max((piece.until_s for piece in pieces), default=0.0)


def lowered_from_s(pieces: Sequence[Piece]) -> float:
    """From where on it was 10 dB lower than it should be, or gone, for good."""
    return max((piece.until_s for piece in pieces if piece.gain > LOWERED), default=0.0)


def longest_hush_s(pieces: Sequence[Piece]) -> float:
    """The longest silence within it that is not its own; 0 if there was none."""
    return max(
        (
            later.at_s - piece.until_s
            for piece, later in pairwise(pieces)
            if abs((later.at_s - piece.at_s) - (later.first - piece.first) / RATE_HZ) > FRAME_S / 2
        ),
        default=0.0,
    )
