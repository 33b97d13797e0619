"""How sure it is that the words of a grammar were said, from one search and the phones of its words.

A grammar has no word for anything else: "hello there" is the answer that sounds most like it, and the
posterior among answers is high. What gives it away: its frames fit the words badly (a frame's score is
relative to the best density of all phones in the search), other phones fit the same frames better
(`pipeline.engines.sphinx_phones`), there is a voice before or behind the words, and words last longer than
their phones do. `WEIGHTS` is a logistic regression over such evidence, set by `python -m bench ears-weights`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.engines.sphinx_weights import WEIGHTS

Levels = npt.NDArray[np.float32]

_FRAME: Final = 160  # samples of 10 ms at 16 kHz
PLAIN: Final = "plain"
"""The text begins with yes or no, as answers do more often than with a grammar's other words."""

_PLAIN: Final = frozenset({"yes", "yeah", "yep", "yup", "no", "nope"})

_WORST: Final = -745.0  # a score below is 0.0 as a float, in which pocketsphinx tells it
_TYPICAL_FIT: Final = -3.0
_LOUD_BELOW_DB: Final = (
    25.0  # this far below the words' loud frames begins what is no voice of the same person
)
_FLOOR_DB: Final = 30.0
_MISFIT: Final = -5.0
_TALK: Final = math.log(65.0)  # frames
_EDGE: Final = 3  # frames around the words that are theirs too

_CLASSES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "sibilants": frozenset({"S", "Z", "SH", "ZH", "CH", "JH"}),
        "fricatives": frozenset({"F", "TH", "V", "DH", "HH"}),
        "stops": frozenset({"P", "T", "K", "B", "D", "G"}),
        "nasals": frozenset({"M", "N", "NG"}),
        "glides": frozenset({"L", "R", "W", "Y"}),
    }
)
"""Phones of which a line of 8 kHz carries little fit worse than vowels."""


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
        """How long it lasts."""
        return self.last - self.first + 1


def score(likelihood: float) -> float:
    """The logarithm of a segment's `ascore`, which may have underflowed."""
    return math.log(likelihood) if likelihood > 0 else _WORST


def levels(samples: bytes) -> Levels:
    """The level of each frame of 10 ms, in dB. `samples`: int16 at 16 kHz."""
    whole = np.frombuffer(samples, np.int16, len(samples) // (2 * _FRAME) * _FRAME)
    frames = whole.reshape(-1, _FRAME).astype(np.float32)
    return np.asarray(10 * np.log10(np.einsum("ij,ij->i", frames, frames) / _FRAME + 1), np.float32)


def evidence(
    words: Sequence[SpokenWord], heard: Levels, phones: Callable[[str], Sequence[str]], *, choices: int
) -> dict[str, float]:
    """What speaks for and against at least one word, beside its phones' fit. `heard`: the utterance;
    `phones(entry)`: how an entry is pronounced; `choices`: the words that the grammar has."""
    frames = sum(word.frames for word in words)
    fit = sum(word.score for word in words) / frames
    spoken = [phones(word.entry) for word in words]
    every = [phone for each in spoken for phone in each]
    many = math.log(len(words))
    found = {
        "fit": fit,
        "fit_of_many": (fit - _TYPICAL_FIT) * many,
        "worst": fit - min(word.score / word.frames for word in words),
        "beside": math.log1p(_beside(words, heard)),
        "words": many,
        "length": math.log(frames),
        "drawn": math.log(max(word.frames / len(each) for word, each in zip(words, spoken, strict=True))),
        "choices": math.log(choices),
        PLAIN: float(words[0].entry.partition("(")[0] in _PLAIN),
    }
    shares = {name: sum(phone in members for phone in every) for name, members in _CLASSES.items()}
    return found | {name: count / len(every) for name, count in shares.items()}


def is_hopeless(found: Mapping[str, float]) -> bool:
    """The words were not said, whatever else is found: they fit too badly, or too much is beside them."""
    return found["fit"] < _MISFIT or found["beside"] > _TALK


def confidence(found: Mapping[str, float], weights: Mapping[str, float] = WEIGHTS) -> float:
    """The probability that the words were said."""
    odds = weights["prior"] + sum(weights[name] * value for name, value in found.items())
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))


def _beside(words: Sequence[SpokenWord], heard: Levels) -> int:
    """Frames as loud as a voice outside the words."""
    first, last = words[0].first, words[-1].last
    inside = heard[first : last + 1]
    if not len(inside):
        return 0
    loud = heard > max(float(np.quantile(inside, 0.9)) - _LOUD_BELOW_DB, _FLOOR_DB)
    return int(loud[: max(0, first - _EDGE)].sum() + loud[last + 1 + _EDGE :].sum())
