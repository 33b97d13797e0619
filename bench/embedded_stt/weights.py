"""Sets the weights of `pipeline.stt.sphinx.evidence`: logistic regression on the half of the questions
that tunes, espeak-ng's other voices, and the half of the people of `bench.embedded_stt.people` that tunes.
Prints the module; `python -m bench embedded-stt-weights FOLDER > pipeline/stt/sphinx/weights.py`. Takes five
minutes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import click
import numpy as np

from bench.embedded_stt.corpus import widened
from bench.embedded_stt.people import questions as people
from bench.embedded_stt.questions import Question, tuning_questions
from bench.training.weights import Matrix, logistic
from mediaserver.demo.persona import word_errors
from pipeline.stt.pocketsphinx import dictionary
from pipeline.stt.sphinx.evidence import KINDS, PLAIN
from pipeline.stt.sphinx.jsgf import grammar
from pipeline.stt.sphinx.verified import Verified

PLAIN_ODDS: Final = math.log(0.79 / 0.39)
"""Log odds of an answer that begins with yes or no, over its share in a corpus with each answer once for each
voice: of 5,418 answers to yes-or-no questions in the Switchboard corpus 79 % (Jurafsky, Shriberg, Biasca
1997: yes 2,934, affirmative non-yes 842, no 1,340, negative non-no 302), of the grammar's 9 in 23."""

TAKEN: Final = MappingProxyType({"yes_no": 0.04, "date": 0.06, "digits": 0.04, "a list": 0.03})
"""Largest share of other words that are accepted as answers without confirmation, in the half that tunes, by
kind of question; other kinds use the share of lists. Less certain answers are confirmed by the caller."""

_OTHERS: Final = ("recorded", "people")
"""The materials whose other words set the priors."""

_MATERIAL: Final = MappingProxyType({"recorded": 1, "synthetic": 3, "people": 3})
"""Weights of the announcer, the synthetic voices and the people in the regression."""

_FITTED: Final = -5.0
"""What fits worse sets a kind's prior, but no other weight: it is other words nearly always, and the weights
would separate these instead of those that sound like an answer."""

_RIDGE: Final = 10.0
_LONGEST: Final = 16000 * 2 * 8

_HEAD: Final = '''"""What each piece of `pipeline.stt.sphinx.evidence` weighs: odds as natural logarithms.

Made by `python -m bench embedded-stt-weights`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {'''


@dataclass(frozen=True, slots=True)
class Row:
    """The evidence of one recognition. `right`: the share of the spoken words that were recognised."""

    question: Question
    found: dict[str, float]
    right: float


def rows(asked: Sequence[Question]) -> list[Row]:
    """Returns the evidence of each recognition, right or wrong."""
    recognizer = Verified(dictionary(), narrow=True)
    heard = []
    for question in asked:
        made = grammar(question.expected, dictionary().knows)
        assert made is not None
        samples = widened(question.spoken.samples).tobytes()[:_LONGEST]
        understood, found = recognizer.weigh(samples, made)
        if found:
            heard.append(Row(question, found, _share(question.right, understood.text)))
    return heard


def _share(said: str, heard: str) -> float:
    if not said:
        return 0.0
    wrong, _ = word_errors(said, heard)
    return max(0.0, 1 - wrong / len(said.split()))


def fit(heard: Sequence[Row]) -> dict[str, float]:
    """Fits the weights. Questions with and without an answer have the same total weight, every person has the
    same, and so has every kind of question of a person."""
    names = [name for name in heard[0].found if name not in (PLAIN, *KINDS)]
    matrix = np.array([[row.found[name] for name in names] for row in heard])
    centre, scale = matrix.mean(axis=0), matrix.std(axis=0) + 1e-9
    standard = np.c_[np.ones(len(heard)), (matrix - centre) / scale]
    right = np.array([row.right for row in heard])
    count = _counts(heard)
    penalty = _RIDGE * np.eye(len(names) + 1)
    penalty[0, 0] = 0.0
    weights = logistic(
        np.r_[standard, standard],
        np.r_[np.ones(len(heard)), -np.ones(len(heard))],
        count=np.r_[count * right, count * (1 - right)],
        penalty=penalty,
    )
    slopes = weights[1:] / scale
    odds = dict(zip(names, slopes.tolist(), strict=True))
    return {"prior": float(weights[0] - slopes @ centre), **odds, PLAIN: PLAIN_ODDS}


def _counts(heard: Sequence[Row]) -> Matrix:
    kinds = [
        (row.question.material, row.question.right != "", row.question.spoken.voice, row.question.asked)
        for row in heard
    ]
    asked: dict[tuple[str, bool, str], set[str]] = defaultdict(set)
    people: dict[tuple[str, bool], set[str]] = defaultdict(set)
    for material, answered, voice, question in kinds:
        asked[material, answered, voice].add(question)
        people[material, answered].add(voice)
    groups = Counter(kinds)
    return np.array(
        [
            600 * _MATERIAL[kind[0]] / (len(people[kind[:2]]) * len(asked[kind[:3]]) * groups[kind])
            for kind in kinds
        ]
    )


def with_kinds(
    weights: Mapping[str, float], heard: Sequence[Row], asked: Sequence[Question]
) -> dict[str, float]:
    """Returns the weights with the prior of each kind of question for which at most the share `TAKEN` of the
    other words of the announcer and of the people reaches a confidence of 0.5."""
    priors = {
        kind: -max(_reached(weights, kind, material, heard, asked) for material in _OTHERS) for kind in TAKEN
    }
    kinds = {kind: priors[kind] - priors["a list"] for kind in KINDS}
    return {**weights, "prior": priors["a list"], **kinds}


def _reached(
    weights: Mapping[str, float],
    kind: str,
    material: str,
    heard: Sequence[Row],
    asked: Sequence[Question],
) -> float:
    """The odds without a prior that `TAKEN` of the other words of `material` exceed."""

    def other(question: Question) -> bool:
        return question.material == material and not question.right and question.asked == kind

    odds = sorted(
        (
            sum(weights[name] * value for name, value in row.found.items() if name in weights)
            for row in heard
            if other(row.question)
        ),
        reverse=True,
    )
    return odds[int(TAKEN[kind] * sum(map(other, asked)))]


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Fits the weights of the evidence for an answer of the embedded recogniser, and prints the module.
    FOLDER: as for `embedded-stt-people`."""
    asked = [*tuning_questions(), *(each for each in people(folder) if each.spoken.tunes)]
    heard = rows(asked)
    weights = with_kinds(fit([row for row in heard if row.found["fit"] >= _FITTED]), heard, asked)
    click.echo(_HEAD)
    for name, weight in weights.items():
        click.echo(f'        "{name}": {weight:.3f},')
    click.echo("    }\n)")
