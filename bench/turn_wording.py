"""Learns `pipeline/turn_wording.txt`: logistic regression over the traits of what callers have said where
they pause, and where they are done, in `LEARNT_FROM`.

Prints the weights; `python -m bench turn-wording > pipeline/turn_wording.txt`. Takes a minute. `turn-weights`
comes after it: it says what the sum of these weighs beside the other evidence, on turns that are not among
these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_array

from bench.conversation_pauses import read
from pipeline.language_lists import plain
from pipeline.turn_wording import traits

LEARNT_FROM: Final = "wording_en.txt"
_SEEN: Final = 4
"""How often a trait must have been seen."""

_RIDGE: Final = 4.0
"""What weights cost: half of their squares, times this."""

_LEAST: Final = 0.1
"""What weighs less is left out."""

Weights = npt.NDArray[np.float64]


def examples(name: str) -> tuple[list[frozenset[str]], list[bool]]:
    """The traits at each pause and each end of the turns in a file, and whether it is an end."""
    found: list[frozenset[str]] = []
    ends: list[bool] = []
    for turn in read(name):
        for at in (*(at for at, _ in turn.pauses), len(turn.words)):
            found.append(traits(plain(" ".join(turn.words[:at])), turn.asked))
            ends.append(at == len(turn.words))
    return found, ends


def learn(found: Sequence[frozenset[str]], ends: Sequence[bool]) -> dict[str, float]:
    """The weights of the traits. Pauses and ends count alike, however many there are."""
    seen = Counter(trait for each in found for trait in each)
    columns = {trait: number for number, trait in enumerate(sorted(seen)) if seen[trait] >= _SEEN}
    columns = {trait: number for number, trait in enumerate(columns)}
    at = [sorted(columns[trait] for trait in each if trait in columns) for each in found]
    starts = np.cumsum([0, *map(len, at)])
    flat = np.concatenate([np.array(each, np.int64) for each in at])
    rows = csr_array((np.ones(len(flat)), flat, starts), shape=(len(found), len(columns)))
    weights = _fit(rows, np.where(ends, 1.0, -1.0))
    return {trait: float(weights[column]) for trait, column in columns.items()}


def _fit(rows: csr_array, y: Weights) -> Weights:
    count = np.where(y > 0, 0.5 / np.mean(y > 0), 0.5 / np.mean(y < 0))

    def cost(weights: Weights) -> tuple[float, Weights]:
        margin = (rows @ weights) * y
        slope = -y * count * np.exp(-np.logaddexp(0.0, margin))
        loss = float((count * np.logaddexp(0.0, -margin)).sum() + 0.5 * _RIDGE * weights @ weights)
        return loss, rows.T @ slope + _RIDGE * weights

    start = np.zeros(rows.shape[1])
    return np.asarray(minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x)


@click.command()
def main() -> None:
    """How the words of turns go on, learnt anew."""
    weights = learn(*examples(LEARNT_FROM))
    for trait, weight in sorted(weights.items()):
        if abs(weight) >= _LEAST:
            click.echo(f"{weight:.2f} {trait}")
