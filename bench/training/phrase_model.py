"""Learns `pipeline/endpointing/phrase_model.txt`: logistic regression over the traits of callers' words at
pauses and at ends of turns, in `LEARNT_FROM`.

Prints the weights; `python -m bench turn-wording > pipeline/endpointing/phrase_model.txt`. Takes a minute.
Run `turn-weights` after it, which weighs the sum of these against the other evidence, on other turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import click
import numpy as np
from scipy.sparse import csr_array, eye_array

from bench.conversation.pauses import read
from bench.training.weights import logistic
from pipeline.endpointing.phrase_model import traits
from pipeline.text.word_lists import plain

LEARNT_FROM: Final = "wording_en.txt"
_SEEN: Final = 4
"""The least occurrences of a trait that is kept."""

_RIDGE: Final = 4.0
"""Ridge penalty: half of the squares of the weights, times this."""

_LEAST: Final = 0.1
"""Weights of smaller size are left out."""


def examples(name: str) -> tuple[list[frozenset[str]], list[bool]]:
    """Returns the traits at each pause and each end of the turns in a file, and whether it is an end."""
    found: list[frozenset[str]] = []
    ends: list[bool] = []
    for turn in read(name):
        for at in (*(at for at, _ in turn.pauses), len(turn.words)):
            found.append(traits(plain(" ".join(turn.words[:at])), turn.asked))
            ends.append(at == len(turn.words))
    return found, ends


def learn(found: Sequence[frozenset[str]], ends: Sequence[bool]) -> dict[str, float]:
    """Returns the weights of the traits. Pauses and ends count alike, whatever their numbers."""
    seen = Counter(trait for each in found for trait in each)
    kept = sorted(trait for trait, times in seen.items() if times >= _SEEN)
    columns = {trait: number for number, trait in enumerate(kept)}
    at = [sorted(columns[trait] for trait in each if trait in columns) for each in found]
    starts = np.cumsum([0, *map(len, at)])
    flat = np.concatenate([np.array(each, np.int64) for each in at])
    rows = csr_array((np.ones(len(flat)), flat, starts), shape=(len(found), len(columns)))
    y = np.where(ends, 1.0, -1.0)
    count = np.where(ends, 0.5 / np.mean(y > 0), 0.5 / np.mean(y < 0))
    weights = logistic(rows, y, count=count, penalty=0.5 * _RIDGE * eye_array(len(columns)))
    return {trait: float(weights[column]) for trait, column in columns.items()}


@click.command()
def main() -> None:
    """How the words of turns go on, learnt anew."""
    weights = learn(*examples(LEARNT_FROM))
    for trait, weight in sorted(weights.items()):
        if abs(weight) >= _LEAST:
            click.echo(f"{weight:.2f} {trait}")
