"""What a script is answered and has collected: as it is understood, said to the caller, shown to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipeline.engines.script_digits import in_figures
from pipeline.engines.script_lexicon import Lexicon
from pipeline.engines.script_steps import LAST_FOUR, Plan
from pipeline.engines.wording import folded
from pipeline.masking import masked

SHOWN_OF: Final = 8
"""The last four of fewer digits would give away too much of them."""


def spoken_answers(plan: Plan, answers: Mapping[str, str]) -> dict[str, str]:
    """Dictated digits one by one, and the last four of long ones under a name of their own."""
    digits = {slot: " ".join(answers[slot]) for slot in plan.dictated & answers.keys()}
    ends = {f"{slot}{LAST_FOUR}": said[-7:] for slot, said in digits.items() if len(said) >= 2 * SHOWN_OF - 1}
    return {**answers, **digits, **ends}


def shown_answers(plan: Plan, answers: Mapping[str, str]) -> dict[str, str]:
    """As people who read the call's record may see them."""
    return {slot: masked(value) if slot in plan.masked else value for slot, value in answers.items()}


def summary(place: str, reached_goal: bool | None, known: Mapping[str, str]) -> str:
    """A line on how far it got."""
    goal = {None: "", True: " goal reached;", False: " goal not reached;"}[reached_goal]
    answers = ", ".join(f"{slot}: {value}" for slot, value in known.items())
    return f"{place};{goal} answers: {answers or 'none'}"


def label_in(text: str, labels: Mapping[str, str], lexicon: Lexicon) -> str:
    """The label of the longest phrase that stands in `text`, "" where none does. Numbers may be words or
    figures in either."""
    said, counted = folded(text), in_figures(folded(text), lexicon)
    heard = [
        phrase
        for phrase in labels
        if f" {folded(phrase)} " in f" {said} "
        or f" {in_figures(folded(phrase), lexicon)} " in f" {counted} "
    ]
    return labels[max(heard, key=len)] if heard else ""
