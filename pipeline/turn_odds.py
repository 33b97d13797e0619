"""Evidence for the end of a turn, added up: odds as natural logarithms, 0 where it says nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Terms:
    """What is weighed at a pause. `cues`: what is true of it; `measures`: how much there is of what."""

    cues: frozenset[str]
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """What a measure weighs: straight between the points, level outside of them."""

    at: tuple[float, ...]
    odds: tuple[float, ...]

    def of(self, value: float) -> float:
        """The odds at `value`."""
        return float(np.interp(value, self.at, self.odds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """One table of weights. `prior`: of a turn of which nothing is known; `unheard`: instead of it where the
    voice alone speaks, since the words are not known."""

    prior: float
    unheard: float
    cues: Mapping[str, float]
    curves: Mapping[str, Curve]

    def p(self, terms: Terms, *, heard: bool = True) -> float:
        """The probability of the end; what no table knows is passed over."""
        odds = self.prior if heard else self.unheard
        odds += sum(self.cues.get(name, 0.0) for name in terms.cues)
        for name, value in terms.measures.items():
            curve = self.curves.get(name)
            if curve is not None:
                odds += curve.of(value)
        return 1.0 / (1.0 + math.exp(-odds))
