"""Fits the weights of `pipeline.endpointing.weights`: logistic regression over the terms of
`BuiltInDetector`, cues as they are and measures as curves, on the pauses and ends of the turns in `TUNED_ON`.

Prints both tables: `python -m bench turn-weights > pipeline/endpointing/weights.json`, in twenty minutes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import click
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import sparray

from bench.conversation.pauses import TUNING_VOICES, Place, moments, read, speak
from pipeline.endpointing.scorer import ASKING, OF_ENGLISH, OF_WORDS, WORDS, BuiltInDetector
from pipeline.endpointing.sentence_model import sentence_ends
from pipeline.endpointing.weights import Curve, Odds, Terms

Matrix = npt.NDArray[np.float64]


def logistic(
    rows: Matrix | sparray,
    y: Matrix,
    *,
    count: Matrix,
    penalty: Matrix | sparray,
    known: Matrix | float = 0.0,
) -> Matrix:
    """Returns the weight of each column of `rows`. `y`: 1 or -1 per row, `count`: weight of the row;
    `penalty`: quadratic form of the weights' penalty; `known`: odds to add to those of the rows."""

    def cost(weights: Matrix) -> tuple[float, Matrix]:
        margin = (rows @ weights + known) * y
        slope = -y * count * np.exp(-np.logaddexp(0.0, margin))
        loss = float((count * np.logaddexp(0.0, -margin)).sum() + weights @ (penalty @ weights))
        return loss, rows.T @ slope + 2.0 * (penalty @ weights)

    start = np.zeros(rows.shape[1])
    return np.asarray(minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000}).x)


TUNED_ON: Final = ("tuned_on_en.txt", "tuned_on_spoken_en.txt")
CLAUSES: Final = 2.0
"""The weight of a pause after words that could be a complete turn: there the voice decides, and such pauses
are few."""

_RIDGE: Final = 0.3
_LEVEL: Final = 0.3
_SMOOTH: Final = 5.0
_CENTRE: Final = 3000.0
"""Penalties of odds: of a cue, of a point on a curve, of a bend between points, and of a curve's mean."""

_SHARES: Final = (0.03, 0.15, 0.3, 0.5, 0.7, 0.85, 0.97)
_ASKING_SHARES: Final = (0.05, 0.3, 0.5, 0.7, 0.95)
_WORDS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 13.0, 18.0)
"""The points of a curve, as quantiles of the measured values."""


class Columns:
    """The column of each cue and of each point of each curve; the first column is the prior's."""

    def __init__(self, terms: Sequence[Terms]) -> None:
        values: dict[str, list[float]] = defaultdict(list)
        for each in terms:
            for name, value in each.measures.items():
                values[name].append(value)
        cues = sorted({cue for each in terms for cue in each.cues})
        self.cues = {cue: 1 + number for number, cue in enumerate(cues)}
        self.points = {name: _points(name, values[name]) for name in sorted(values)}
        self.starts: dict[str, int] = {}
        self.size = 1 + len(cues)
        for name, points in self.points.items():
            self.starts[name] = self.size
            self.size += len(points)

    def matrix(self, terms: Sequence[Terms]) -> Matrix:
        """Returns one row for each of `terms`."""
        rows = np.zeros((len(terms), self.size))
        rows[:, 0] = 1.0
        for row, each in zip(rows, terms, strict=True):
            row[[self.cues[cue] for cue in each.cues]] = 1.0
        for name, points in self.points.items():
            there = [number for number, each in enumerate(terms) if name in each.measures]
            values = [terms[number].measures[name] for number in there]
            for column, share in enumerate(np.eye(len(points)), self.starts[name]):
                rows[there, column] = np.interp(values, points, share)
        return rows

    def penalty(self, rows: Matrix) -> Matrix:
        """Returns the quadratic form of the weights' penalty. Curves lie around 0, so that one contributes
        nothing where it is not measured; `rows`: of all terms."""
        found = np.zeros((self.size, self.size))
        for column in self.cues.values():
            found[column, column] = _RIDGE
        for name, points in self.points.items():
            part = slice(self.starts[name], self.starts[name] + len(points))
            bends = np.diff(np.eye(len(points)), 2, axis=0)
            found[part, part] = _LEVEL * np.eye(len(points)) + _SMOOTH * bends.T @ bends
            middle = rows[:, part].sum(axis=0) / rows[:, part].sum()
            found[part, part] += _CENTRE * np.outer(middle, middle)
        return found

    def odds(self, weights: Matrix, unheard: float) -> Odds:
        """Returns the weights by name."""
        curves = {
            name: Curve(points, tuple(weights[self.starts[name] :][: len(points)].tolist()))
            for name, points in self.points.items()
        }
        cues = {cue: float(weights[column]) for cue, column in self.cues.items()}
        return Odds(prior=float(weights[0]), unheard=unheard, cues=cues, curves=curves)


def _points(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if name == WORDS:
        return _WORDS
    shares = _ASKING_SHARES if name.startswith(ASKING) else _SHARES
    return tuple(sorted({round(float(each), 2) for each in np.quantile(values, shares)}))


def fit(rows: Matrix, penalty: Matrix, places: Sequence[Place | None], known: Matrix | float = 0.0) -> Matrix:
    """Returns the weights of the columns, beside odds that are `known`. Pauses and ends count alike, whatever
    their numbers."""
    y = np.array([1.0 if place is None else -1.0 for place in places])
    count = np.array([CLAUSES if place is Place.CLAUSE else 1.0 for place in places])
    count[y > 0] = count[y < 0].sum() / np.sum(y > 0)
    count /= len(TUNING_VOICES)
    return logistic(rows, y, count=count, penalty=penalty, known=known)


def weigh(terms: Sequence[Terms], places: Sequence[Place | None]) -> Odds:
    """Returns the weights. Where the words are not known, the voice has the same weights, and a constant
    stands for the words."""
    columns = Columns(terms)
    rows = columns.matrix(terms)
    weights = fit(rows, columns.penalty(rows), places)
    voice = columns.matrix([_without_words(each) for each in terms])[:, 1:] @ weights[1:]
    unheard = fit(np.ones((len(terms), 1)), np.zeros((1, 1)), places, voice)
    return columns.odds(weights, float(unheard[0]))


def _without_words(terms: Terms) -> Terms:
    measures = {name.removeprefix(ASKING): value for name, value in terms.measures.items()}
    return Terms(frozenset(), {name: measures[name] for name in measures.keys() - OF_WORDS})


def _without_english(terms: Terms) -> Terms:
    return Terms(terms.cues, {name: terms.measures[name] for name in terms.measures.keys() - OF_ENGLISH})


def written(tables: Mapping[str, Odds]) -> str:
    """Returns `pipeline/endpointing/weights.json`, a line for each cue and each curve."""
    told = {
        name: f'"prior": {odds.prior:.2f}, "unheard": {odds.unheard:.2f}, '
        f'"cues": {_lines(odds.cues)}, "curves": {_lines(odds.curves)}'
        for name, odds in tables.items()
    }
    return "{" + ",\n".join(f'"{name}": {{{table}}}' for name, table in told.items()) + "}"


def _lines(entries: Mapping[str, float] | Mapping[str, Curve]) -> str:
    rounded = {
        name: [[round(each, 2) for each in values] for values in (entry.at, entry.odds)]
        if isinstance(entry, Curve)
        else round(entry, 2)
        for name, entry in entries.items()
    }
    return "{\n" + ",\n".join(f'"{name}": {json.dumps(entry)}' for name, entry in rounded.items()) + "\n}"


@click.command()
def main() -> None:
    """The weights of the end of a turn, set anew."""
    turns = [turn for name in TUNED_ON for turn in read(name)]
    scorer = BuiltInDetector(sentence_ends())
    terms: list[Terms] = []
    places: list[Place | None] = []
    for voice in TUNING_VOICES:
        if not voice.is_there:
            raise click.ClickException(f"the voice {voice.name} is not installed")
        for moment in moments(turns, speak(turns, [voice])):
            terms.append(scorer.terms(moment.evidence))
            places.append(moment.place)
    english, others = weigh(terms, places), weigh([_without_english(each) for each in terms], places)
    click.echo(written({"english": english, "others": others}))
