"""A scripted conversation as a state machine: events in, acts out, no clock, no audio, no waiting.

Three states. OPENING: nothing has been said. ASKING: the current step's question has been put, and an answer
or silence moves on. ENDED: the last act (hang up, transfer) has been given out.

Why ENDED still answers: the caller may interrupt the farewell, and then the acts behind it were never
carried out. A caller who says more than goodbye is asked the last question again, unless a phrase of it is
in their words; what was found out and reached stands until that is answered. Any other event gets the ending
again, without its words. Because of interruptions the state moves before the acts are handed out, and
`Expect` stands in front of the words it belongs to: a caller who answers before the question is over is
answering it, under its grammar.

A caller who goes on after their turn was taken for over (`UserSaid.continues`) has said one thing in two
pieces: the state before the first piece is taken back, and the whole is the answer.

Digits of a known number may come in parts, by voice and by key: what is there is kept (`partial`), and the
rest is asked for. "no, nine six" puts right what was said last, also while the answer is being confirmed.

An answer that the recogniser doubts (`UserSaid.doubtful`) is confirmed like one of a step with `confirm`, by
its words ("Did you say four two seven?"). A doubtful yes or no is not understood: whether it was one would be
the same question again.

A question is put again when its answer made no sense or none came; each kind of trouble has its own count,
which starts anew with each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pipeline.agent import (
    AgentAct,
    AgentEvent,
    AgentReport,
    CallOpened,
    HangUp,
    SwitchLanguage,
    UserKeyed,
    UserSaid,
    UserSilent,
)
from pipeline.agents.script.llm_step import LlmStep
from pipeline.agents.script.position import ScriptState, ScriptWalk, label_in, shown_answers, summary
from pipeline.agents.script.steps import Retry
from pipeline.errors import LocalError
from pipeline.text.answers import value_of
from pipeline.text.fold import plain_words
from pipeline.text.prompts import Phrase, standard
from pipeline.text.spoken_numbers import gathered, keyed_onto
from pipeline.text.word_lists import is_parting


class ScriptRun(ScriptWalk):
    """One conversation through one plan."""

    def receive(self, event: AgentEvent) -> list[AgentAct]:
        """Moves on `event` and gives what to do now, in order."""
        if isinstance(event, UserSaid):
            if event.continues and self._before_said is not None:
                self.return_to(self._before_said)
            self._before_said = self.place()
        try:
            transition = _TRANSITIONS[self.state, type(event)]
        except KeyError:
            raise LocalError(f"no transition from {self.state} on {type(event).__name__}") from None
        self._note_question()
        return list(transition(self, event))

    @property
    def errand(self) -> LlmStep | None:
        """The step that a model leads now; None where the script does."""
        return self._step.llm if self.state is ScriptState.ASKING else None

    @property
    def speaks(self) -> bool:
        """Whether the current step has text of its own."""
        return bool(self._step.say)

    @property
    def known(self) -> Mapping[str, str]:
        """The answers so far, without masked ones and without one that the caller has yet to confirm."""
        open_slot = self._step.collect if self._confirming else ""
        return shown_answers(
            self._plan, {slot: value for slot, value in self.answers.items() if slot != open_slot}
        )

    def hand_back(self, errand: LlmStep, answers: Mapping[str, str], *, done: bool) -> list[AgentAct]:
        """Takes the model's answers for a step that has ended, and goes on with the script."""
        self.answers |= answers
        self._note_question()
        return list(self._enter(self._step.next if done or not errand.failed else errand.failed))

    def report(self) -> AgentReport:
        """Reports the answers and the disposition so far."""
        return AgentReport(
            disposition=self._disposition or ("" if self.state is ScriptState.OPENING else "incomplete"),
            reached_goal=self._reached_goal if self._plan.has_goal else None,
            answers=dict(self.known),
            summary=summary(
                f"{self.state.value} at step {self._step.id}",
                self._reached_goal if self._plan.has_goal else None,
                self.known,
            ),
        )

    # transitions

    def _open(self, event: AgentEvent) -> Iterator[AgentAct]:
        yield from self._enter(self._plan.start, before=self._greeting)

    def _said(self, event: AgentEvent) -> Iterator[AgentAct]:
        assert isinstance(event, UserSaid)
        text = plain_words(event.text)
        if (self._confirming or not self._dictates) and gathered(text, self._lexicon):
            text = f"{event.keyed} {text}".strip()
        if self._confirming:
            yield from self._confirmed("" if event.doubtful else text)
            return
        if event.doubtful:
            self._doubtful = text
        label, value = self._understand(text, event.keyed)
        if value or not self._dictates:
            yield from self._answered(label, value)
        else:
            yield from self._gather(self._dictated(text, event.keyed))

    def _keyed(self, event: AgentEvent) -> Iterator[AgentAct]:
        assert isinstance(event, UserKeyed)
        keys, expected = event.digits, self._step.expected
        if self._confirming:
            yield from self._confirmed(keys)
        elif keys in self._step.on:
            yield from self._answered(keys, keys)
        elif self._dictates:
            yield from self._gather(keyed_onto(self._partial, keys, self._step.digits))
        elif expected is not None and "digits" in expected.kinds:
            yield from self._answered(keys, keys)
        else:
            yield from self._answered("", "")

    def _silent(self, event: AgentEvent) -> Iterator[AgentAct]:
        self._silences += 1
        yield from self._retry(self._step.silence, self._silences)

    def _said_at_the_end(self, event: AgentEvent) -> Iterator[AgentAct]:
        assert isinstance(event, UserSaid)
        if self._asked is None or is_parting(event.text, self.language):
            yield from self._end_again(event)
            return
        spoken = self.language
        self._return_to_question(self._asked)
        if self.language != spoken:
            yield SwitchLanguage(self.language)
        text = plain_words(event.text)
        label = label_in(text, self._step.labels, self._lexicon)
        if label and not self._confirming:
            self._doubtful = text if event.doubtful else self._doubtful
            yield from self._answered(label, label)
        else:
            yield from self._ask(self._question)

    def _end_again(self, event: AgentEvent) -> Iterator[AgentAct]:
        if self._ending is not None:
            yield self._ending

    def _ignore(self, event: AgentEvent) -> Iterator[AgentAct]:
        yield from ()

    # what they are made of

    def _understand(self, text: str, keys: str = "") -> tuple[str, str]:
        """The label and the value of an answer, ("", "") where it is none.

        A phrase said inside a longer sentence counts ("yes tomorrow please"); the longest one wins. Phrases
        come before kinds, kinds count in the order they are written.
        """
        expected = self._step.expected
        if expected is None or not text:
            return "", ""
        label = label_in(text, self._step.labels, self._lexicon)
        if label:
            return label, label
        for kind in expected.kinds:
            if kind == "digits" and self._dictates:
                value = self._dictated(text, keys)
                value = value if len(value) == expected.digits else ""
            else:
                value = value_of(kind, text, self._lexicon)
            if value:
                return value, value
        return "", ""

    @property
    def _dictates(self) -> bool:
        """The answer is a known number of digits."""
        return self._step.digits > 0

    def _dictated(self, text: str, keys: str = "") -> str:
        """The digits known after `keys`, and `text`."""
        known = keyed_onto(self._partial, keys, self._step.digits)
        before = known or self._partial
        return gathered(text, self._lexicon, before=before, wanted=self._step.digits) or known

    def _gather(self, known: str) -> Iterator[AgentAct]:
        """`known` is what has been dictated so far: all of it, a part, or "" for nothing of use."""
        step = self._step
        if len(known) == step.digits:
            yield from self._answered(known, known)
        elif not known or known == self._partial:
            yield from self._answered("", "")
        else:
            self._partial = known
            yield from self._ask(step.partial or self._lexicon.go_on)

    def _confirmed(self, text: str) -> Iterator[AgentAct]:
        """The answer to "is that right?": yes, no, or what is right."""
        step, wanted = self._step, self._step.digits
        right = gathered(text, self._lexicon, before=self._confirming, wanted=wanted) if wanted else ""
        agreed = value_of("yes_no", text, self._lexicon)
        if wanted and len(right) == wanted:
            yield from self._answered(right, right)
        elif agreed == "yes":
            label, self._confirming = self._confirming, ""
            yield from self._enter(step.on.get(label) or step.next)
        else:
            self._nomatches += 1
            if agreed == "no":
                self._confirming = self._partial = self._doubtful = ""
                self.answers.pop(step.collect, None)
            yield from self._retry(replace(step.nomatch, say=self._question), self._nomatches)

    def _answered(self, label: str, value: str) -> Iterator[AgentAct]:
        step = self._step
        whether = self._whether(label)
        if not value or (self._doubtful and not whether):
            self._nomatches += 1
            self._partial = self._doubtful = ""
            yield from self._retry(step.nomatch, self._nomatches)
            return
        if step.collect:
            self.answers[step.collect] = value
        self._partial = ""
        if whether:
            self._confirming = label
            yield from self._ask(whether)
        else:
            yield from self._enter(step.on.get(label) or step.next)

    def _retry(self, retry: Retry, count: int) -> Iterator[AgentAct]:
        if count <= retry.max:
            yield from self._ask(retry.say or self._question)
        elif retry.next:
            yield from self._enter(retry.next)
        else:
            self._disposition = retry.disposition
            yield from self._words(standard(Phrase.GOODBYE, self.language), interruptible=True)
            yield self._end(HangUp(retry.disposition))


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
    (ScriptState.ENDED, UserSaid): ScriptRun._said_at_the_end,
    (ScriptState.ENDED, UserKeyed): ScriptRun._end_again,
    (ScriptState.ENDED, UserSilent): ScriptRun._end_again,
}
