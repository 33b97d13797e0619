"""Sets the weights of `pipeline.turn_weights`: logistic regression over the terms of `BuiltInScorer` on the
pauses and the ends of `turns/tuned_on_en.txt`.

Prints both tables; `python -m bench turn-weights > pipeline/turn_weights.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click
import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from bench.conversation_pauses import TUNING_VOICES, Moment, Place, moments, read, speak
from pipeline.sentence_ends import sentence_ends
from pipeline.turn_cues import Cue
from pipeline.turn_scorer import BuiltInScorer

TUNED_ON: Final = "tuned_on_en.txt"
RIDGE: Final = 1.0
CAUTION: Final = 0.7
"""Taken from the prior: to cut in is worse than to be late. Not where somebody asks or says one word, which
wants an answer soon."""

_HEAD: Final = '''"""What each piece of evidence for the end of a turn weighs: odds as natural logarithms.

Made by `python -m bench turn-weights`; `pipeline.turn_scorer` says what the names mean."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
'''

Matrix = npt.NDArray[np.float64]


UNHEARD: Final = -0.4
"""Instead of the prior where the words are not known: doubt."""

CLAUSES: Final = 2.0
"""What a pause counts after words that could be all: there the voice has to decide, and they are few."""


def fit(terms: Sequence[Mapping[str, float]], places: Sequence[Place | None]) -> dict[str, float]:
    """The weights by name, and "prior". Pauses and ends count alike, however many there are."""
    names = sorted({name for each in terms for name in each} - {"story"})
    x = np.array([[1.0, *(each.get(name, 0.0) for name in names)] for each in terms])
    y = np.array([1.0 if place is None else -1.0 for place in places])
    count = np.array([CLAUSES if place is Place.CLAUSE else 1.0 for place in places])
    count[y > 0] = count[y < 0].sum() / np.sum(y > 0)
    count /= len(TUNING_VOICES)
    ridge = np.array([0.0, *(RIDGE for _ in names)])

    def cost(weights: Matrix) -> tuple[float, Matrix]:
        margin = (x @ weights) * y
        slope = -y * count / (1.0 + np.exp(margin))
        loss = float((count * np.logaddexp(0.0, -margin)).sum() + (ridge * weights**2).sum())
        return loss, x.T @ slope + 2.0 * ridge * weights

    found = minimize(cost, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B").x
    return dict(zip(["prior", *names], (float(each) for each in found), strict=True))


def _table(name: str, weights: Mapping[str, float]) -> str:
    rows = "".join(f'        "{key}": {value:.2f},\n' for key, value in weights.items())
    return f"{name}: Final[Mapping[str, float]] = MappingProxyType(\n    {{\n{rows}    }}\n)\n"


@click.command()
def main() -> None:
    """The weights of the end of a turn, set anew."""
    turns = read(TUNED_ON)
    found: list[Moment] = []
    for voice in TUNING_VOICES:
        if not voice.is_there:
            raise click.ClickException(f"the voice {voice.name} is not installed")
        found += moments(turns, speak(turns, [voice]))
    click.echo(_HEAD)
    places = [moment.place for moment in found]
    for name, ends in (("WITH_ENDS", sentence_ends()), ("WITHOUT_ENDS", None)):
        scorer = BuiltInScorer(ends)
        weights = fit([scorer.terms(moment.evidence) for moment in found], places)
        weights["prior"] -= CAUTION
        for cue in (Cue.QUESTION, Cue.LONE_WORD):
            weights[cue.name.lower()] += CAUTION
        weights["unheard"] = UNHEARD - weights["prior"]
        click.echo(_table(name, weights), nl=False)
