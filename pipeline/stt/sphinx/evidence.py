"""Computes the probability that the words of a grammar were said, from one search and the phones of its
words.

A grammar has no word for other speech: "hello there" becomes the answer that sounds most like it, with a high
posterior among the answers. Three measures detect that: the frames fit the words badly (a frame's score is
relative to the best density of all phones in the search); other phones fit the same frames better, relative
to the fit of any phones to this voice and line (`pipeline.stt.sphinx.phones`); and there is a voice before or
after the words. The measures are few: with more of them (how long each phone lasts, the phones that fit
worst), weights fitted to few people refused more answers of others. `WEIGHTS` is a logistic regression by
`python -m bench embedded-stt-weights`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.stt.sphinx.jsgf import Grammar
from pipeline.stt.sphinx.weights import WEIGHTS

Levels = npt.NDArray[np.float32]

_FRAME: Final = 160  # samples of 10 ms at 16 kHz
PLAIN: Final = "plain"
"""Name of the measure for a text that begins with yes or no, the most frequent first words of answers."""

KINDS: Final = ("yes_no", "digits", "date")
"""Kinds of question with weights of their own."""

_PLAIN: Final = frozenset({"yes", "yeah", "yep", "yup", "no", "nope"})

_WORST: Final = -745.0  # pocketsphinx gives lower scores as 0.0
_LOUD_BELOW_DB: Final = (
    25.0  # this far below the words' loud frames begins what is no voice of the same person
)
_FLOOR_DB: Final = 30.0
_TALK: Final = math.log(65.0)  # frames
_EDGE: Final = 3  # frames around the words that belong to them


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word of the best path: the dictionary's entry ("to(2)"), its first and last frame (10 ms), and the
    natural logarithm of its acoustic score."""

    entry: str
    first: int
    last: int
    score: float

    @property
    def frames(self) -> int:
        """Length in frames of 10 ms."""
        return self.last - self.first + 1


def score(likelihood: float) -> float:
    """Gives the natural logarithm of a segment's `ascore`, which may have underflowed to 0."""
    return math.log(likelihood) if likelihood > 0 else _WORST


def levels(samples: bytes) -> Levels:
    """Gives the level in dB of each frame of 10 ms. `samples`: int16 at 16 kHz."""
    whole = np.frombuffer(samples, np.int16, len(samples) // (2 * _FRAME) * _FRAME)
    frames = whole.reshape(-1, _FRAME).astype(np.float32)
    return np.asarray(10 * np.log10(np.einsum("ij,ij->i", frames, frames) / _FRAME + 1), np.float32)


def evidence(words: Sequence[SpokenWord], heard: Levels, made: Grammar) -> dict[str, float]:
    """Gives the measures of at least one word, without those of phones. `heard`: the levels of the
    utterance's frames; `made`: the grammar of the search."""
    frames = sum(word.frames for word in words)
    found = {
        "fit": sum(word.score for word in words) / frames,
        "beside": math.log1p(_beside(words, heard)),
        "length": math.log(frames),
        "words": math.log(len(words)),
        "choices": math.log(len(made.words)),
        PLAIN: float(words[0].entry.partition("(")[0] in _PLAIN),
    }
    return found | {kind: float(made.kinds == (kind,)) for kind in KINDS}


def is_hopeless(found: Mapping[str, float]) -> bool:
    """Whether there is too much voice around the words for an answer. How badly the words fit says less: in
    the search that follows the caller, whose level is not that of the model's training, 10 of 295 answers of
    people fit as badly as other words."""
    return found["beside"] > _TALK


def confidence(found: Mapping[str, float], weights: Mapping[str, float] = WEIGHTS) -> float:
    """Gives the probability, 0 to 1, that the words were said."""
    odds = weights["prior"] + sum(weights[name] * value for name, value in found.items())
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))


def _beside(words: Sequence[SpokenWord], heard: Levels) -> int:
    """The number of frames outside the words that are as loud as a voice."""
    first, last = words[0].first, words[-1].last
    inside = heard[first : last + 1]
    if not len(inside):
        return 0
    loud = heard > max(float(np.quantile(inside, 0.9)) - _LOUD_BELOW_DB, _FLOOR_DB)
    return int(loud[: max(0, first - _EDGE)].sum() + loud[last + 1 + _EDGE :].sum())
