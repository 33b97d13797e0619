"""A scripted conversation as a state machine: events in, acts out, no clock, no audio, no waiting.

Three states. OPENING: nothing has been said. ASKING: the current step's question has been put, and an answer
or silence moves on. ENDED: the last act (hang up, transfer) has been given out.

Why ENDED still answers: the caller may interrupt the farewell, and then the acts behind it were never
carried out. Whatever comes next gets the ending again, without its words. For the same reason the state moves
before the acts are handed out and `Expect` stands in front of the words it belongs to: a caller who answers
before the question is over is answering it, under its grammar.

A caller who goes on after their turn was taken for over (`UserSaid.continues`) has said one thing in two
pieces: the state before the first piece is taken back, and the whole is the answer.

A question is put again when its answer made no sense or none came; each kind of trouble has its own count,
which starts anew with each step.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pipeline.agent import (
    AgentAct,
    AgentEvent,
    AgentReport,
    CallOpened,
    Expect,
    HangUp,
    Say,
    SendDigits,
    Transfer,
    UserKeyed,
    UserSaid,
    UserSilent,
)
from pipeline.engines.script_answers import value_of
from pipeline.engines.script_lexicon import Lexicon
from pipeline.engines.script_steps import Plan, Retry, Step, fill
from pipeline.engines.wording import plain_words
from pipeline.errors import LocalError


class ScriptState(enum.Enum):
    """Where a scripted conversation stands."""

    OPENING = "opening"
    ASKING = "asking"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class _Place:
    """Everything that an answer can change: taken back when the answer turns out to be half of one."""

    state: ScriptState
    step: Step
    answers: Mapping[str, str]
    counts: tuple[int, int]
    outcome: tuple[str, bool]
    ending: AgentAct | None


class ScriptRun:
    """One conversation through one plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        lexicon: Lexicon,
        greeting: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.state = ScriptState.OPENING
        self.answers: dict[str, str] = {}
        self._plan = plan
        self._lexicon = lexicon
        self._greeting = greeting
        self._variables = dict(variables or {})
        self._step = plan.steps[plan.start]
        self._nomatches = 0
        self._silences = 0
        self._disposition = ""
        self._reached_goal = False
        self._ending: AgentAct | None = None
        self._before_said: _Place | None = None

    def receive(self, event: AgentEvent) -> list[AgentAct]:
        """Moves on `event` and gives what to do now, in order."""
        if isinstance(event, UserSaid):
            if event.continues and self._before_said is not None:
                self._return_to(self._before_said)
            self._before_said = self._place()
        try:
            transition = _TRANSITIONS[self.state, type(event)]
        except KeyError:
            raise LocalError(f"no transition from {self.state} on {type(event).__name__}") from None
        return list(transition(self, event))

    def report(self) -> AgentReport:
        """What came of it so far."""
        return AgentReport(
            disposition=self._disposition or ("" if self.state is ScriptState.OPENING else "incomplete"),
            reached_goal=self._reached_goal if self._plan.has_goal else None,
            answers=dict(self.answers),
            summary=self._summary(),
        )

    # transitions

    def _open(self, event: AgentEvent) -> Iterator[AgentAct]:
        yield from self._enter(self._plan.start, before=self._greeting)

    def _said(self, event: AgentEvent) -> Iterator[AgentAct]:
        assert isinstance(event, UserSaid)
        yield from self._answered(*self._understand(plain_words(event.text)))

    def _keyed(self, event: AgentEvent) -> Iterator[AgentAct]:
        assert isinstance(event, UserKeyed)
        digits, expected = event.digits, self._step.expected
        wanted = expected.digits if expected and "digits" in expected.kinds else -1
        if digits in self._step.on or wanted == 0 or wanted == len(digits):
            yield from self._answered(digits, digits)
        else:
            yield from self._answered("", "")

    def _silent(self, event: AgentEvent) -> Iterator[AgentAct]:
        self._silences += 1
        yield from self._retry(self._step.silence, self._silences)

    def _end_again(self, event: AgentEvent) -> Iterator[AgentAct]:
        if self._ending is not None:
            yield self._ending

    def _ignore(self, event: AgentEvent) -> Iterator[AgentAct]:
        yield from ()

    # what they are made of

    def _understand(self, text: str) -> tuple[str, str]:
        """The label and the value of an answer, ("", "") where it is none.

        A phrase said inside a longer sentence counts ("yes tomorrow please"); the longest one wins. Phrases
        come before kinds, kinds count in the order they are written.
        """
        expected = self._step.expected
        if expected is None or not text:
            return "", ""
        padded = f" {text} "
        heard = [phrase for phrase in self._step.labels if f" {phrase} " in padded]
        if heard:
            label = self._step.labels[max(heard, key=len)]
            return label, label
        for kind in expected.kinds:
            value = value_of(kind, text, self._lexicon, digits=expected.digits)
            if value:
                return value, value
        return "", ""

    def _answered(self, label: str, value: str) -> Iterator[AgentAct]:
        step = self._step
        if not value:
            self._nomatches += 1
            yield from self._retry(step.nomatch, self._nomatches)
            return
        if step.collect:
            self.answers[step.collect] = value
        yield from self._enter(step.on.get(label) or step.next)

    def _retry(self, retry: Retry, count: int) -> Iterator[AgentAct]:
        step = self._step
        if count <= retry.max:
            yield from self._ask(retry.say or step.say)
        elif retry.next:
            yield from self._enter(retry.next)
        else:
            self._disposition = retry.disposition
            yield self._end(HangUp(retry.disposition))

    def _place(self) -> _Place:
        return _Place(
            self.state,
            self._step,
            dict(self.answers),
            (self._nomatches, self._silences),
            (self._disposition, self._reached_goal),
            self._ending,
        )

    def _return_to(self, place: _Place) -> None:
        self.state, self._step, self.answers = place.state, place.step, dict(place.answers)
        self._nomatches, self._silences = place.counts
        self._disposition, self._reached_goal = place.outcome
        self._ending = place.ending

    def _enter(self, name: str, *, before: str = "") -> Iterator[AgentAct]:
        """Goes to a step and on through those that do not listen, up to the next question or the end."""
        spoken: list[AgentAct] = self._words(before, interruptible=True)
        while True:
            step = self._arrive(name)
            if step.expected is not None:
                break
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
        self._disposition = step.disposition or self._disposition
        self._reached_goal = self._reached_goal or step.goal
        return step

    def _ask(self, text: str, *, before: list[AgentAct] | None = None) -> Iterator[AgentAct]:
        step = self._step
        self.state = ScriptState.ASKING
        if step.expected is not None:
            yield Expect(step.expected)
        yield from before or ()
        yield from self._words(text, interruptible=step.interruptible)

    def _ending_of(self, step: Step) -> AgentAct:
        if step.action == "transfer":
            self._disposition = self._disposition or "transferred"
            return Transfer(self._fill(step.target))
        self._disposition = self._disposition or "completed"
        return HangUp(self._disposition)

    def _end(self, act: AgentAct) -> AgentAct:
        self.state, self._ending = ScriptState.ENDED, act
        return act

    def _words(self, text: str, *, interruptible: bool) -> list[AgentAct]:
        filled = fill(text, {**self._variables, **self._spoken_answers()})
        return [Say(filled, interruptible=interruptible)] if filled else []

    def _spoken_answers(self) -> dict[str, str]:
        dictated = self._plan.dictated
        return {slot: " ".join(value) if slot in dictated else value for slot, value in self.answers.items()}

    def _fill(self, text: str) -> str:
        return fill(text, {**self._variables, **self.answers})

    def _summary(self) -> str:
        known = ", ".join(f"{slot}: {value}" for slot, value in self.answers.items())
        goal = (
            ""
            if not self._plan.has_goal
            else " goal reached;"
            if self._reached_goal
            else " goal not reached;"
        )
        return f"{self.state.value} at step {self._step.id};{goal} answers: {known or 'none'}"


_Transition = Callable[[ScriptRun, AgentEvent], Iterator[AgentAct]]

_TRANSITIONS: dict[tuple[ScriptState, type], _Transition] = {
    (ScriptState.OPENING, CallOpened): ScriptRun._open,
    (ScriptState.OPENING, UserSaid): ScriptRun._open,  # the caller spoke first: the greeting is the answer
    (ScriptState.OPENING, UserKeyed): ScriptRun._open,
    (ScriptState.OPENING, UserSilent): ScriptRun._open,
    (ScriptState.ASKING, CallOpened): ScriptRun._ignore,
    (ScriptState.ASKING, UserSaid): ScriptRun._said,
    (ScriptState.ASKING, UserKeyed): ScriptRun._keyed,
    (ScriptState.ASKING, UserSilent): ScriptRun._silent,
    (ScriptState.ENDED, CallOpened): ScriptRun._ignore,
    (ScriptState.ENDED, UserSaid): ScriptRun._end_again,
    (ScriptState.ENDED, UserKeyed): ScriptRun._end_again,
    (ScriptState.ENDED, UserSilent): ScriptRun._end_again,
}
