"""The position of a conversation in its script, and the words from step to step."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pipeline.agent import AgentAct, Expect, HangUp, Say, SendDigits, SwitchLanguage, Transfer
from pipeline.agents.script.steps import LAST_FOUR, Plan, Step
from pipeline.speech import Expected
from pipeline.text.fold import folded
from pipeline.text.lexicon import Lexicon, lexicon
from pipeline.text.redaction import masked
from pipeline.text.spoken_numbers import in_figures
from pipeline.text.templates import fill

_YES_NO = Expected(kinds=("yes_no",))
_YES_NO_OR_DIGITS = Expected(kinds=("yes_no", "digits"))


class ScriptState(enum.Enum):
    """The state of a scripted conversation."""

    OPENING = "opening"
    ASKING = "asking"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Place:
    """A snapshot of the position: restored when an answer turns out to be half of one."""

    state: ScriptState
    step: Step
    answers: Mapping[str, str]
    counts: tuple[int, int]
    outcome: tuple[str, bool]
    ending: AgentAct | None
    dictation: tuple[str, str, str, str]


class ScriptWalk:
    """The position in a script, and the acts of moving on from it."""

    def __init__(
        self,
        plan: Plan,
        *,
        language: str = "en",
        greeting: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.state = ScriptState.OPENING
        self.answers: dict[str, str] = {}
        self._plan = plan
        self.language = language
        self._greeting = greeting
        self._variables = dict(variables or {})
        self._step = plan.steps[plan.start]
        self._nomatches = 0
        self._silences = 0
        self._disposition = ""
        self._reached_goal = False
        self._ending: AgentAct | None = None
        self._reopened: tuple[str, bool] | None = None  # the outcome before an answer that is asked for again
        self._asked: Place | None = None  # the question that was answered before the end
        self._before_said: Place | None = None
        self._partial = ""  # of the digits asked for
        self._confirming = ""  # the label of the answer that the caller is asked to confirm
        self._doubtful = ""  # words of the answer that the recogniser doubts

    @property
    def _lexicon(self) -> Lexicon:
        return lexicon(self.language)

    def place(self) -> Place:
        """Takes a snapshot for `return_to`."""
        return Place(
            self.state,
            self._step,
            dict(self.answers),
            (self._nomatches, self._silences),
            (self._disposition, self._reached_goal),
            self._ending,
            (self._partial, self._confirming, self._doubtful, self.language),
        )

    def return_to(self, place: Place) -> None:
        """Restores the snapshot `place`."""
        self.state, self._step, self.answers = place.state, place.step, dict(place.answers)
        self._nomatches, self._silences = place.counts
        self._disposition, self._reached_goal = place.outcome
        self._ending = place.ending
        self._partial, self._confirming, self._doubtful, self.language = place.dictation

    def _note_question(self) -> None:
        if self.state is ScriptState.ASKING:
            self._asked = self.place()

    def _return_to_question(self, asked: Place) -> None:
        """The farewell was taken back. What the call has come to stands until the question is answered."""
        self._reopened, outcome = asked.outcome, (self._disposition, self._reached_goal)
        self.return_to(replace(asked, answers=self.answers, counts=(0, 0), outcome=outcome))

    def _enter(self, name: str, *, before: str = "") -> Iterator[AgentAct]:
        """Goes to a step and on through those that do not listen, up to the next question or the end."""
        spoken: list[AgentAct] = self._words(before, interruptible=True)
        while True:
            step = self._arrive(name)
            if step.expected is not None:
                break
            spoken += self._switched(step)
            spoken += self._words(step.say, interruptible=step.interruptible)
            if step.action in ("hang_up", "transfer"):
                yield from (*spoken, self._end(self._ending_of(step)))
                return
            if step.action == "send_digits":
                spoken.append(SendDigits(self._fill(step.target)))
            name = step.next
        yield from self._ask(step.say, before=spoken)

    def _arrive(self, name: str) -> Step:
        self._step = step = self._plan.steps[name]
        self._nomatches = self._silences = 0
        self._partial = self._confirming = self._doubtful = ""
        if self._reopened is not None:
            (self._disposition, self._reached_goal), self._reopened = self._reopened, None
        self._disposition = step.disposition or self._disposition
        self._reached_goal = self._reached_goal or step.goal
        return step

    def _ask(self, text: str, *, before: list[AgentAct] | None = None) -> Iterator[AgentAct]:
        step = self._step
        self.state = ScriptState.ASKING
        switched = self._switched(step)
        if not switched:
            yield from self._expect(step)
        yield from before or ()
        if switched:
            yield from (*switched, *self._expect(step))
        yield from self._words(text, interruptible=step.interruptible)

    def _expect(self, step: Step) -> Iterator[AgentAct]:
        """What the next words may be: the answer, the rest of it, or a yes."""
        expected = step.expected
        if expected is not None and self._confirming:
            yield Expect(_YES_NO_OR_DIGITS if step.digits else _YES_NO, masked=step.mask)
        elif expected is not None:
            rest = expected.digits - len(self._partial)
            yield Expect(replace(expected, digits=rest) if self._partial else expected, masked=step.mask)

    @property
    def _question(self) -> str:
        """The question that is open: whether an answer is right, or the step's own."""
        return self._whether(self._confirming) if self._confirming else self._step.say

    def _whether(self, label: str) -> str:
        """The question whether the answer `label` is right; "" where none is asked: the answer is certain, a
        yes would have to confirm a yes, or a masked answer would be said aloud."""
        step = self._step
        if step.confirm or not self._doubtful:
            return step.confirm
        if label in ("yes", "no") or step.mask:
            return ""
        dictated = step.expected is not None and "digits" in step.expected.kinds and label.isdecimal()
        return self._lexicon.did_you_say.format(" ".join(label) if dictated else self._doubtful)

    def _switched(self, step: Step) -> list[AgentAct]:
        """From this step on its language is spoken, until another step has one."""
        if not step.language or step.language == self.language:
            return []
        self.language = step.language
        return [SwitchLanguage(step.language)]

    def _ending_of(self, step: Step) -> AgentAct:
        if step.action == "transfer":
            self._disposition = self._disposition or "transferred"
            return Transfer(self._fill(step.target))
        self._disposition = self._disposition or "completed"
        final = self._asked is None or not step.interruptible
        return HangUp(self._disposition, final=final)

    def _end(self, act: AgentAct) -> AgentAct:
        self.state, self._ending = ScriptState.ENDED, act
        return act

    def _words(self, text: str, *, interruptible: bool) -> list[AgentAct]:
        filled = fill(text, {**self._variables, **spoken_answers(self._plan, self.answers)})
        return [Say(filled, interruptible=interruptible)] if filled else []

    def _fill(self, text: str) -> str:
        return fill(text, {**self._variables, **self.answers})


SHOWN_OF: Final = 8
"""Fewest digits of a number whose last four are shown: of fewer, four would give away too much."""


def spoken_answers(plan: Plan, answers: Mapping[str, str]) -> dict[str, str]:
    """Dictated digits one by one, and the last four of long ones under a name of their own."""
    digits = {slot: " ".join(answers[slot]) for slot in plan.dictated & answers.keys()}
    ends = {f"{slot}{LAST_FOUR}": said[-7:] for slot, said in digits.items() if len(said) >= 2 * SHOWN_OF - 1}
    return {**answers, **digits, **ends}


def shown_answers(plan: Plan, answers: Mapping[str, str]) -> dict[str, str]:
    """Gives the answers with masked ones as dots: for people who read the call's record."""
    return {slot: masked(value) if slot in plan.masked else value for slot, value in answers.items()}


def summary(place: str, reached_goal: bool | None, known: Mapping[str, str]) -> str:
    """Words the position, the goal and the answers in one line."""
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
