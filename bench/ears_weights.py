"""Sets the weights of `pipeline.engines.sphinx_evidence`: logistic regression on the half of the questions
that tunes and espeak-ng's other voices. Prints the module; `python -m bench ears-weights >
pipeline/engines/sphinx_weights.py`. Takes five minutes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click
import numpy as np

from bench.ears_corpus import widened
from bench.ears_questions import Question, tuning_questions
from bench.logistic import Matrix, logistic
from mediaserver.demo.words import word_errors
from pipeline.engines.grammar import grammar
from pipeline.engines.pocketsphinx import dictionary
from pipeline.engines.sphinx_evidence import PLAIN
from pipeline.engines.sphinx_verified import Verified

PLAIN_ODDS: Final = math.log(0.79 / 0.39)
"""How much likelier an answer that begins with yes or no is than a corpus with each answer once a voice
tells: of 5,418 answers to yes-or-no questions in the Switchboard corpus 79 % (Jurafsky, Shriberg, Biasca
1997: yes 2,934, affirmative non-yes 842, no 1,340, negative non-no 302), of the grammar's 9 in 23."""

TAKEN: Final = 0.0425
"""Of a recorded person's other words, the share that the weights take for answers in the half that tunes, as
the mean of the kinds of question. The prior is set by it: a regression's own would refuse more answers."""

_RIDGE: Final = 0.3
_LONGEST: Final = 16000 * 2 * 8

_HEAD: Final = '''"""What each piece of `pipeline.engines.sphinx_evidence` weighs: odds as natural logarithms.

Made by `python -m bench ears-weights`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {'''


@dataclass(frozen=True, slots=True)
class Row:
    """`right`: the share of the words that were said."""

    question: Question
    found: dict[str, float]
    right: float


def rows(asked: Sequence[Question]) -> list[Row]:
    """The evidence for everything that is heard, right or not."""
    ears = Verified(dictionary(), narrow=True)
    heard = []
    for question in asked:
        made = grammar(question.expected, dictionary().knows)
        assert made is not None
        samples = widened(question.spoken.samples).tobytes()[:_LONGEST]
        understood, found = ears.weigh(samples, made)
        if found:
            heard.append(Row(question, found, _share(question.right, understood.text)))
    return heard


def _share(said: str, heard: str) -> float:
    if not said:
        return 0.0
    wrong, _ = word_errors(said, heard)
    return max(0.0, 1 - wrong / len(said.split()))


def fit(heard: Sequence[Row]) -> dict[str, float]:
    """The weights. Recorded and synthetic voices count alike, and answers as much as what is none, however
    many there are of each, every kind of question with the same number of them."""
    names = [name for name in heard[0].found if name != PLAIN]
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
    groups: dict[tuple[str, str], int] = defaultdict(int)
    kinds = [(row.question.material, "" if row.question.right else row.question.asked) for row in heard]
    for kind in kinds:
        groups[kind] += 1
    wrong = {material: sum(1 for kind in groups if kind[0] == material and kind[1]) for material, _ in groups}
    share = [1.0 / wrong[material] if asked else 1.0 for material, asked in kinds]
    return np.array([600 * share[at] / groups[kind] for at, kind in enumerate(kinds)])


def with_prior(
    weights: Mapping[str, float], heard: Sequence[Row], asked: Sequence[Question]
) -> dict[str, float]:
    """The weights with the prior at which `TAKEN` of the recorded other words reach a confidence of 0.5."""
    others = [each for each in asked if each.material == "recorded" and not each.right]
    kinds = Counter(each.asked for each in others)
    odds = sorted(
        (
            (sum(weights[name] * value for name, value in row.found.items()), 1 / kinds[row.question.asked])
            for row in heard
            if row.question.material == "recorded" and not row.question.right
        ),
        reverse=True,
    )
    taken = np.cumsum([share for _, share in odds]) / len(kinds)
    return {**weights, "prior": -odds[int(np.searchsorted(taken, TAKEN))][0]}


@click.command()
def main() -> None:
    """The weights of what speaks for a text of the embedded recogniser, set anew."""
    asked = list(tuning_questions())
    heard = rows(asked)
    weights = with_prior(fit(heard), heard, asked)
    click.echo(_HEAD)
    for name, weight in weights.items():
        click.echo(f'        "{name}": {weight:.3f},')
    click.echo("    }\n)")
