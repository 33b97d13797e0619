"""A scripted conversation as a state machine: takes events and gives acts, without clock, audio or waits.

There are three states. OPENING: nothing has been said. ASKING: the current step's question was asked; an
answer or a silence moves on. ENDED: the last act (hang up, transfer) was given.

ENDED still takes events, because the caller may interrupt the farewell, and then the acts after it were not
carried out. A caller who says more than goodbye is asked the last question again, unless the words have a
phrase of that question; answers and goal stay until the question is answered. Any other event gets the ending
again, without its words. Because of interruptions the state changes before the acts are given, and `Expect`
precedes the words of its question: a caller who answers before the end of the question is answering that
question, with its grammar.

When a caller goes on after the turn was taken for over (`UserSaid.continues`), the state before the first
part is restored, and the words of both parts are the answer.

The digits of a number of known length may come in parts, by voice and by key: the digits so far are kept
(`partial`), and the rest is asked for. "no, nine six" corrects the last digits, also during confirmation.

An answer that the recogniser doubts (`UserSaid.doubtful`) is confirmed like one of a step with `confirm`, by
its words ("Did you say four two seven?"). A doubtful yes or no is not understood: whether it was one would be
the same question again.

A question is put again when its answer made no sense or none came; each kind of trouble has its own count,
which starts anew with each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from pipeline.agent import (
    AgentAct,
    AgentEvent,
    AgentReport,
    CallOpened,
    HandedBack,
    HangUp,
    Say,
    SendDigits,
    SwitchLanguage,
    Transfer,
    TransferFailed,
    UserKeyed,
    UserSaid,
    UserSilent,
)
from pipeline.agents.script.llm_step import LlmStep
from pipeline.agents.script.position import (
    Position,
    ScriptState,
    label_in,
    shown_answers,
    spoken_answers,
    summary,
)
from pipeline.agents.script.steps import Plan, Retry, ScriptStep
from pipeline.errors import LocalError
from pipeline.text.answers import value_of
from pipeline.text.fold import plain_words
from pipeline.text.prompts import Phrase, standard
from pipeline.text.spoken_numbers import gathered, keyed_onto
from pipeline.text.templates import fill
from pipeline.text.word_lists import is_parting


class ScriptRun:
    """One conversation through one plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        language: str = "en",
        greeting: str = "",
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.position = Position(plan.steps[plan.start], language)
        """The position in the script. Setting an earlier position takes back all events since."""
        self._plan = plan
        self._greeting = greeting
        self._variables = dict(variables or {})
        self._asked: Position | None = None  # the question that was answered before the end
        self._reopened: Position | None = None  # the question whose answer is asked for again

    def receive(self, event: AgentEvent) -> list[AgentAct]:
        """Takes `event`, moves on and gives the acts, in order. Raises `LocalError` for an event without a
        transition."""
        state = self.position.state
        try:
            transition = _TRANSITIONS[state, type(event)]
        except KeyError:
            raise LocalError(f"no transition from {state} on {type(event).__name__}") from None
        self._note_question()
        return list(transition(self, event))

    @property
    def llm_step(self) -> LlmStep | None:
        """The model's part of the current step; None where the script leads the step."""
        return self.position.step.llm if self.position.state is ScriptState.ASKING else None

    @property
    def speaks(self) -> bool:
        """Whether the current step has text of its own."""
        return bool(self.position.step.say)

    @property
    def known(self) -> Mapping[str, str]:
        """The answers so far, without masked ones and without one that the caller has yet to confirm."""
        return shown_answers(self._plan, self.position.without_unconfirmed().answers)

    def hand_back(self, llm_step: LlmStep, answers: Mapping[str, str], *, done: bool) -> list[AgentAct]:
        """Takes the model's answers after its step and goes on with the script; gives the acts, in order.
        `done`: the model reached its goal."""
        self.position = replace(self.position, answers={**self.position.answers, **answers})
        self._note_question()
        return list(self._enter(self.position.step.next if done or not llm_step.failed else llm_step.failed))

    def report(self) -> AgentReport:
        """Reports the answers and the disposition so far."""
        at = self.position
        reached_goal = at.reached_goal if self._plan.has_goal else None
        return AgentReport(
            disposition=at.disposition or ("" if at.state is ScriptState.OPENING else "incomplete"),
            reached_goal=reached_goal,
            answers=dict(self.known),
            summary=summary(f"{at.state.value} at step {at.step.id}", reached_goal, self.known),
        )

    # transitions

    def _open(self, event: AgentEvent) -> Iterator[AgentAct]:
        yield from self._enter(self._plan.start, before=self._greeting)

    def _said(self, event: AgentEvent) -> Iterator[AgentAct]:
        assert isinstance(event, UserSaid)
        at, text = self.position, plain_words(event.text)
        if (at.confirming or not at.dictates) and gathered(text, at.lexicon):
            text = f"{event.keyed} {text}".strip()
        if at.confirming:
            yield from self._confirmed("" if event.doubtful else text)
            return
        if event.doubtful:
            self.position = at = replace(at, doubtful=text)
        label, value = at.understood(text, event.keyed)
        if value or not at.dictates:
            yield from self._answered(label, value)
        else:
            yield from self._gather(at.dictated(text, event.keyed))

    def _keyed(self, event: AgentEvent) -> Iterator[AgentAct]:
        assert isinstance(event, UserKeyed)
        at, keys, expected = self.position, event.digits, self.position.step.expected
        if at.confirming:
            yield from self._confirmed(keys)
        elif keys in at.step.on:
            yield from self._answered(keys, keys)
        elif at.dictates:
            yield from self._gather(keyed_onto(at.partial, keys, at.step.digits))
        elif expected is not None and "digits" in expected.kinds:
            yield from self._answered(keys, keys)
        else:
            yield from self._answered("", "")

    def _silent(self, event: AgentEvent) -> Iterator[AgentAct]:
        self.position = at = replace(self.position, silences=self.position.silences + 1)
        silence = at.step.silence
        if at.confirming:
            silence = silence.model_copy(update={"say": at.question})
        yield from self._retry(silence, at.silences)

    def _said_at_the_end(self, event: AgentEvent) -> Iterator[AgentAct]:
        assert isinstance(event, UserSaid)
        asked, spoken = self._asked, self.position.language
        if asked is None or is_parting(event.text, spoken):
            yield from self._end_again(event)
            return
        self._reopened = asked
        self.position = at = self.position.returned_to(asked)
        if at.language != spoken:
            yield SwitchLanguage(at.language)
        text = plain_words(event.text)
        label = label_in(text, at.step.labels, at.lexicon)
        if label and not at.confirming:
            self.position = replace(at, doubtful=text if event.doubtful else at.doubtful)
            yield from self._answered(label, label)
        else:
            yield from self._ask(at.question)

    def _end_again(self, event: AgentEvent) -> Iterator[AgentAct]:
        if self.position.ending is not None:
            yield self.position.ending

    def _back(self, event: AgentEvent) -> Iterator[AgentAct]:
        """Takes the caller back after a transfer that nobody took."""
        assert isinstance(event, TransferFailed)
        step, self._asked = self.position.step, None
        self.position = replace(self.position, disposition="", ending=None)
        if step.failed:
            yield from self._enter(step.failed)
        else:
            yield from self._words(event.apology, interruptible=False)
            yield self._end(HangUp("not_transferred", final=True), "not_transferred")

    def _once_more(self, event: AgentEvent) -> Iterator[AgentAct]:
        yield from self._ask(self.position.question)

    def _ignore(self, event: AgentEvent) -> Iterator[AgentAct]:
        yield from ()

    # steps of transitions

    def _note_question(self) -> None:
        if self.position.state is ScriptState.ASKING:
            self._asked = self.position

    def _gather(self, known: str) -> Iterator[AgentAct]:
        """Handles dictated digits. `known`: all digits so far, "" for none that can be used."""
        at = self.position
        if len(known) == at.step.digits:
            yield from self._answered(known, known)
        elif not known or known == at.partial:
            yield from self._answered("", "")
        else:
            self.position = replace(at, partial=known)
            yield from self._ask(at.step.partial or at.lexicon.go_on)

    def _confirmed(self, text: str) -> Iterator[AgentAct]:
        """Handles the answer to a confirmation: yes, no, or corrected digits."""
        at, step = self.position, self.position.step
        wanted = step.digits
        if wanted:
            right = gathered(text, at.lexicon, before=at.confirming, wanted=wanted)
        else:
            right = label_in(text, step.labels, at.lexicon)
        agreed = value_of("yes_no", text, at.lexicon)
        if agreed == "yes" or (agreed != "no" and right == at.confirming):  # who repeats the answer agrees
            yield from self._enter(step.on.get(at.confirming) or step.next)
        elif wanted and len(right) == wanted:
            said_whole = len(gathered(text, at.lexicon, wanted=wanted)) == wanted
            self.position = replace(at, doubtful="" if said_whole else at.doubtful)
            yield from self._answered(right, right)
        else:
            if agreed == "no":
                at = at.without_unconfirmed()
            self.position = at = replace(at, nomatches=at.nomatches + 1)
            yield from self._retry(step.nomatch.model_copy(update={"say": at.question}), at.nomatches)

    def _answered(self, label: str, value: str) -> Iterator[AgentAct]:
        at, step = self.position, self.position.step
        whether = at.whether(label)
        if not value or (at.doubtful and not whether):
            self.position = at = replace(at, nomatches=at.nomatches + 1, partial="", doubtful="")
            yield from self._retry(step.nomatch, at.nomatches)
            return
        answers = {**at.answers, step.collect: value} if step.collect else at.answers
        self.position = replace(at, answers=answers, partial="", confirming=label if whether else "")
        if whether:
            yield from self._ask(whether)
        else:
            yield from self._enter(step.on.get(label) or step.next)

    def _retry(self, retry: Retry, count: int) -> Iterator[AgentAct]:
        if count <= retry.max:
            yield from self._ask(retry.say or self.position.question)
            return
        self.position = self.position.without_unconfirmed()
        if retry.next:
            yield from self._enter(retry.next)
        else:
            yield from self._words(standard(Phrase.GOODBYE, self.position.language), interruptible=True)
            yield self._end(HangUp(retry.disposition), retry.disposition)

    def _enter(self, name: str, *, before: str = "") -> Iterator[AgentAct]:
        """Goes to a step and on through those that do not listen, up to the next question or the end."""
        spoken: list[AgentAct] = self._words(before, interruptible=True)
        while True:
            step = self._plan.steps[name]
            self.position, self._reopened = self.position.arrived(step, reopened=self._reopened), None
            if step.expected is not None:
                break
            spoken += self._switched()
            spoken += self._words(step.say, interruptible=step.interruptible)
            if step.action in ("hang_up", "transfer"):
                yield from (*spoken, self._finish(step))
                return
            if step.action == "send_digits":
                spoken.append(SendDigits(self._target(step)))
            name = step.next
        yield from self._ask(step.say, before=spoken)

    def _ask(self, text: str, *, before: Iterable[AgentAct] = ()) -> Iterator[AgentAct]:
        switched = self._switched()
        self.position = at = replace(self.position, state=ScriptState.ASKING)
        yield from (*before, *switched, *at.expect()) if switched else (*at.expect(), *before)
        yield from self._words(text, interruptible=at.step.interruptible)

    def _switched(self) -> list[AgentAct]:
        """Changes to the step's language, if it has one, until a step with another."""
        language = self.position.step.language
        if language in ("", self.position.language):
            return []
        self.position = replace(self.position, language=language)
        return [SwitchLanguage(language)]

    def _finish(self, step: ScriptStep) -> AgentAct:
        disposition = self.position.disposition
        if step.action == "transfer":
            return self._end(Transfer(self._target(step)), disposition or "transferred")
        disposition = disposition or "completed"
        final = self._asked is None or not step.interruptible
        return self._end(HangUp(disposition, final=final), disposition)

    def _end(self, act: AgentAct, disposition: str) -> AgentAct:
        self.position = replace(self.position, state=ScriptState.ENDED, ending=act, disposition=disposition)
        return act

    def _words(self, text: str, *, interruptible: bool) -> list[AgentAct]:
        said = fill(text, {**self._variables, **spoken_answers(self._plan, self.position.answers)})
        return [Say(said, interruptible=interruptible)] if said else []

    def _target(self, step: ScriptStep) -> str:
        return fill(step.destination, {**self._variables, **self.position.answers})


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
    (ScriptState.OPENING, TransferFailed): ScriptRun._open,
    (ScriptState.ASKING, TransferFailed): ScriptRun._once_more,
    (ScriptState.ENDED, CallOpened): ScriptRun._ignore,
    (ScriptState.ENDED, TransferFailed): ScriptRun._back,
    (ScriptState.OPENING, HandedBack): ScriptRun._open,
    (ScriptState.ASKING, HandedBack): ScriptRun._once_more,
    (ScriptState.ENDED, HandedBack): ScriptRun._end_again,
    (ScriptState.ENDED, UserSaid): ScriptRun._said_at_the_end,
    (ScriptState.ENDED, UserKeyed): ScriptRun._end_again,
    (ScriptState.ENDED, UserSilent): ScriptRun._end_again,
}
