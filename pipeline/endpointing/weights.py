"""The weights of the evidence for the end of a turn: odds as natural logarithms.

They stand in `weights.json`, made by `python -m bench turn-weights`; the names are those of
`pipeline.endpointing.scorer`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Terms:
    """The evidence at a pause. `cues`: the values of the cues found; `measures`: numbers by name."""

    cues: frozenset[str]
    measures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """The odds of a measure as a function of its value: linear between points, constant outside them."""

    at: tuple[float, ...]
    odds: tuple[float, ...]

    def of(self, value: float) -> float:
        """Gives the odds at `value`, as a natural logarithm, interpolated between the points."""
        after = bisect_right(self.at, value)
        if after == 0 or after == len(self.at):
            return self.odds[min(after, len(self.at) - 1)]
        below, odds = self.at[after - 1], self.odds[after - 1]
        return odds + (self.odds[after] - odds) / (self.at[after] - below) * (value - below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """One table of weights. `prior`: the odds before any evidence; `unheard`: the same where no words are
    known. `cues`, `curves`: the odds of each cue and each measure, by name."""

    prior: float
    unheard: float
    cues: Mapping[str, float]
    curves: Mapping[str, Curve]

    def p(self, terms: Terms, *, heard: bool = True) -> float:
        """Gives the probability that the turn is over. `heard`: words are known. Names that this table lacks
        are ignored."""
        odds = self.prior if heard else self.unheard
        odds += sum(self.cues.get(name, 0.0) for name in terms.cues)
        for name, value in terms.measures.items():
            curve = self.curves.get(name)
            if curve is not None:
                odds += curve.of(value)
        return 1.0 / (1.0 + math.exp(-odds))


def _odds(table: Mapping[str, Any]) -> Odds:
    curves = {name: Curve(tuple(at), tuple(odds)) for name, (at, odds) in table["curves"].items()}
    cues = MappingProxyType(table["cues"])
    return Odds(prior=table["prior"], unheard=table["unheard"], cues=cues, curves=MappingProxyType(curves))


_TABLES: Final = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="ascii"))

ENGLISH: Final = _odds(_TABLES["english"])
"""The weights where words are known to be English."""

OTHERS: Final = _odds(_TABLES["others"])
"""The weights for other languages, and for words of which it is not known how sentences end after them."""
