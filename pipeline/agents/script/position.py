"""The position of a conversation in its script, and the meaning of the caller's words at that position."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pipeline.agent import AgentAct, Expect
from pipeline.agents.script.steps import LAST_FOUR, Plan, ScriptStep
from pipeline.speech import Expected
from pipeline.text.answers import value_of
from pipeline.text.fold import folded
from pipeline.text.lexicon import Lexicon, lexicon
from pipeline.text.redaction import masked
from pipeline.text.spoken_numbers import gathered, in_figures, keyed_onto

_YES_NO = Expected(kinds=("yes_no",))
_YES_NO_OR_DIGITS = Expected(kinds=("yes_no", "digits"))


class ScriptState(enum.Enum):
    """The state of a scripted conversation."""

    OPENING = "opening"
    ASKING = "asking"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a conversation in its script; immutable, so that an earlier position can be restored.

    `nomatches`, `silences`: at this step. `ending`: the act that ended the script. `partial`: the part that
    is known of the digits asked for. `confirming`: the label of the answer that the caller is to confirm.
    `doubtful`: the words of an answer that the recogniser doubts.
    """

    step: ScriptStep
    language: str = "en"
    state: ScriptState = ScriptState.OPENING
    answers: Mapping[str, str] = field(default_factory=dict)
    nomatches: int = 0
    silences: int = 0
    disposition: str = ""
    reached_goal: bool = False
    ending: AgentAct | None = None
    partial: str = ""
    confirming: str = ""
    doubtful: str = ""

    @property
    def question(self) -> str:
        """The question that is open: whether an answer is right, or the step's own."""
        return self.whether(self.confirming) if self.confirming else self.step.say

    def whether(self, label: str) -> str:
        """The question whether the answer `label` is right; "" where none is asked: the answer is certain, a
        yes would have to confirm a yes, or a masked answer would be said aloud."""
        step = self.step
        if step.confirm or not self.doubtful:
            return step.confirm
        if label in ("yes", "no") or step.mask:
            return ""
        dictated = step.expected is not None and "digits" in step.expected.kinds and label.isdecimal()
        return self.lexicon.did_you_say.format(" ".join(label) if dictated else self.doubtful)

    @property
    def lexicon(self) -> Lexicon:
        """The lexicon of the current language."""
        return lexicon(self.language)

    @property
    def dictates(self) -> bool:
        """Whether the answer is a known number of digits."""
        return self.step.digits > 0

    def arrived(self, step: ScriptStep, *, reopened: Position | None) -> Position:
        """Gives the position at `step`. `reopened`: the question that was asked again; disposition and goal
        of its first answer are taken back."""
        before = reopened or self
        return replace(
            self,
            step=step,
            nomatches=0,
            silences=0,
            disposition=step.disposition or before.disposition,
            reached_goal=before.reached_goal or step.goal,
            partial="",
            confirming="",
            doubtful="",
        )

    def without_unconfirmed(self) -> Position:
        """The position without an answer that the caller was asked to confirm and has not."""
        if not self.confirming:
            return self
        kept = {slot: value for slot, value in self.answers.items() if slot != self.step.collect}
        return replace(self, answers=kept, partial="", confirming="", doubtful="")

    def returned_to(self, asked: Position) -> Position:
        """Gives the position at the question `asked`, with the answers, disposition and goal of this one."""
        return replace(
            asked,
            answers=self.answers,
            nomatches=0,
            silences=0,
            disposition=self.disposition,
            reached_goal=self.reached_goal,
        )

    def expect(self) -> list[AgentAct]:
        """Gives the `Expect` for the step's answer, the rest of its digits, or a confirmation."""
        expected = self.step.expected
        if expected is None:
            return []
        if self.confirming:
            expected = _YES_NO_OR_DIGITS if self.step.digits else _YES_NO
        elif self.partial:
            expected = replace(expected, digits=expected.digits - len(self.partial))
        return [Expect(expected, masked=self.step.mask)]

    def dictated(self, text: str, keys: str = "") -> str:
        """Adds digits of `keys` and `text` to those known and gives the result; "" for none."""
        known = keyed_onto(self.partial, keys, self.step.digits)
        before = known or self.partial
        return gathered(text, self.lexicon, before=before, wanted=self.step.digits) or known

    def understood(self, text: str, keys: str = "") -> tuple[str, str]:
        """Gives the label and the value of an answer, ("", "") for none.

        A phrase inside a longer sentence counts ("yes tomorrow please"); the longest phrase wins. Phrases
        precede kinds, and kinds count in the order of the configuration.
        """
        expected = self.step.expected
        if expected is None or not text:
            return "", ""
        label = label_in(text, self.step.labels, self.lexicon)
        if label:
            return label, label
        for kind in expected.kinds:
            if kind == "digits" and self.dictates:
                value = self.dictated(text, keys)
                value = value if len(value) == expected.digits else ""
            else:
                value = value_of(kind, text, self.lexicon)
            if value:
                return value, value
        return "", ""


SHOWN_OF: Final = 8
"""Fewest digits of a number whose last four are shown: of a shorter number they would reveal too much."""


def spoken_answers(plan: Plan, answers: Mapping[str, str]) -> dict[str, str]:
    """Gives the answers for texts: dictated digits one by one, and the last four digits of long numbers under
    the name with `LAST_FOUR`."""
    digits = {slot: " ".join(answers[slot]) for slot in plan.dictated & answers.keys()}
    ends = {f"{slot}{LAST_FOUR}": said[-7:] for slot, said in digits.items() if len(said) >= 2 * SHOWN_OF - 1}
    return {**answers, **digits, **ends}


def shown_answers(plan: Plan, answers: Mapping[str, str]) -> dict[str, str]:
    """Gives the answers with masked ones as dots, for the call's record."""
    return {slot: masked(value) if slot in plan.masked else value for slot, value in answers.items()}


def summary(place: str, reached_goal: bool | None, known: Mapping[str, str]) -> str:
    """Words the position, the goal and the answers in one line."""
    goal = {None: "", True: " goal reached;", False: " goal not reached;"}[reached_goal]
    answers = ", ".join(f"{slot}: {value}" for slot, value in known.items())
    return f"{place};{goal} answers: {answers or 'none'}"


def label_in(text: str, labels: Mapping[str, str], lexicon: Lexicon) -> str:
    """Gives the label of the longest phrase in `text`, "" for none. Numbers may be words or figures in
    both."""
    said, counted = folded(text), in_figures(folded(text), lexicon)
    heard = [
        phrase
        for phrase in labels
        if f" {folded(phrase)} " in f" {said} "
        or f" {in_figures(folded(phrase), lexicon)} " in f" {counted} "
    ]
    return labels[max(heard, key=len)] if heard else ""
