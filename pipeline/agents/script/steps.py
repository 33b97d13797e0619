"""The steps of a script as tables of the settings, with their texts and the steps that may follow."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, field_validator

from pipeline.agents.script.llm_step import LlmStep
from pipeline.engines.tables import EngineTable, read_table
from pipeline.errors import SettingsRefused
from pipeline.speech import Expected
from pipeline.text.answers import KINDS
from pipeline.text.fold import plain_words
from pipeline.text.templates import PLACEHOLDER, placeholders

LAST_FOUR = ".last4"
"""Suffix of the variable with the last four of a slot's dictated digits, as cards and accounts are named."""

_KEYED = re.compile(r"[0-9*#A-D]+")

_LED_BY_MODEL = ("expect", "answers", "collect", "action", "mask", "confirm", "partial", "on")
"""Keys that a step with `llm` cannot have."""


class Retry(EngineTable):
    """The reaction to an answer that was not understood, or to a silence: `say` is said ("": the question
    again), and after `max` times in a row step `next` follows ("": hang-up with `disposition`)."""

    say: str = ""
    max: int = Field(default=2, ge=0, le=20)
    next: str = ""
    disposition: str = "not_understood"


class SilenceRetry(Retry):
    """The reaction to a silence, which ends the call as one without an answer."""

    disposition: str = "no_answer"


class AnswerTable(EngineTable):
    """The table `expect` of a step: phrases, kinds of answers, the number of digits and what ends keyed
    ones."""

    phrases: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    digits: int = Field(default=0, ge=0, le=64)
    terminator: Literal["", "#", "*"] = "#"
    key_timeout_s: float = Field(default=0.0, ge=0, le=60)

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if kind not in KINDS:
                raise ValueError(f"{kind!r} is not one of {', '.join(KINDS)}")
        return kinds


class ScriptStep(EngineTable):
    """A step of the script: a text, the answers that it expects, and the steps that follow.

    `answers`: the phrases of each label; `on`: the step for each label or value; `next`: the step for other
    answers; `failed`: the step after a transfer that nobody took. `collect`: the name of the answer. `mask`:
    the answer is masked in records. `language`: the language from this step on. `partial`: the text after a
    part of the digits; `confirm`: the text that asks whether the answer is right. `keys`: the digits of the
    action `send_digits`.
    """

    id: str = ""
    say: str = ""
    expect: AnswerTable | None = None
    answers: dict[str, list[str]] | None = None
    collect: str = ""
    next: str = ""
    on: dict[str, str] = Field(default_factory=dict)
    nomatch: Retry = Retry()
    silence: SilenceRetry = SilenceRetry()
    interruptible: bool = True
    action: Literal["", "hang_up", "transfer", "send_digits"] = ""
    target: str = ""
    failed: str = ""
    keys: str = Field(default="", alias="digits")
    disposition: str = ""
    goal: bool = False
    mask: bool = False
    language: str = ""
    partial: str = ""
    confirm: str = ""
    llm: LlmStep | None = None

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The label of each phrase; a phrase of `expect` is its own."""
        phrases = self.expect.phrases if self.expect is not None else ()
        labels = {plain_words(phrase): plain_words(phrase) for phrase in phrases}
        for label, others in (self.answers or {}).items():
            labels |= {plain_words(phrase): label for phrase in others}
        return labels

    @cached_property
    def expected(self) -> Expected | None:
        """What the recogniser is to expect; None for a step without an answer."""
        if self.llm is not None:
            return Expected(kinds=("free",))  # the caller answers the model
        if self.expect is None and self.answers is None:
            return None
        table = self.expect or AnswerTable()
        by_number = table.digits and "digits" not in table.kinds
        return Expected(
            tuple(self.labels),
            (*table.kinds, "digits") if by_number else table.kinds,
            table.digits,
            terminator=table.terminator,
            key_timeout_s=table.key_timeout_s,
            choices=tuple(filter(_KEYED.fullmatch, self.on)),
        )

    def follows(self) -> Iterator[tuple[str, str]]:
        """Every step that may follow, as pairs of the key in the settings and the step's name."""
        if self.next:
            yield "next", self.next
        for label, name in self.on.items():
            yield f"on.{label}", name
        if self.llm is not None and self.llm.failed:
            yield "llm.failed", self.llm.failed
        if self.failed:
            yield "failed", self.failed
        if self.nomatch.next:
            yield "nomatch.next", self.nomatch.next
        if self.silence.next:
            yield "silence.next", self.silence.next

    def templates(self) -> Iterator[str]:
        """Every text that may hold placeholders."""
        yield from (*self.spoken(), self.destination)

    def spoken(self) -> tuple[str, ...]:
        """The texts that the caller hears."""
        return (self.say, self.nomatch.say, self.silence.say, self.partial, self.confirm)

    @property
    def destination(self) -> str:
        """What the action `transfer` calls, or `send_digits` sends."""
        return self.target or self.keys

    @property
    def digits(self) -> int:
        """The number of digits of the answer; 0: unknown, or no digits."""
        return self.expected.digits if self.expected is not None else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked script: `start` and every step that follows another are in `steps`."""

    start: str
    steps: Mapping[str, ScriptStep] = field(default_factory=dict)

    @property
    def slots(self) -> frozenset[str]:
        """The names of all answers that steps collect."""
        found = frozenset(name for step in self.steps.values() if step.llm for name in step.llm.collect)
        return found | {step.collect for step in self.steps.values() if step.collect}

    @property
    def masked(self) -> frozenset[str]:
        """Slots whose answers are masked in records and transcripts."""
        return frozenset(step.collect for step in self.steps.values() if step.collect and step.mask)

    @property
    def dictated(self) -> frozenset[str]:
        """Slots that hold dictated digits, which are read back one by one."""
        return frozenset(
            step.collect
            for step in self.steps.values()
            if step.collect and step.expected is not None and "digits" in step.expected.kinds
        )

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that a call must have: those in texts that no step collects."""
        return (
            frozenset(
                name
                for step in self.steps.values()
                for text in step.templates()
                for name in placeholders(text)
            )
            - self.slots
            - {f"{slot}{LAST_FOUR}" for slot in self.dictated}
        )

    @property
    def patience(self) -> int:
        """Most silences of the caller in a row that any step answers."""
        return max((self._silences_from(step) for step in self.steps.values()), default=0)

    def _silences_from(self, step: ScriptStep) -> int:
        known, seen = 0, set[str]()
        while step.id not in seen:
            seen.add(step.id)
            listens = step.expected is not None
            known += step.silence.max + 1 if listens and step.llm is None else 0
            step = self.steps.get(step.silence.next if listens else step.next, step)
        return known

    @property
    def has_goal(self) -> bool:
        """Whether any step has `goal`, which means success."""
        return any(step.goal for step in self.steps.values())


class ScriptTable(EngineTable):
    """The table [agent.script]: its steps, and the id of the first."""

    start: str = ""
    step: tuple[ScriptStep, ...] = ()


Fault = tuple[str, str]
"""A key of a step, and what is wrong with it."""


def read_plan(settings: Mapping[str, Any]) -> Plan:
    """Reads the script in `settings`, the `[agent.script]` table. Raises `SettingsRefused` with every
    problem."""
    script, problems = _read(settings)
    steps = {step.id: step for step in reversed(script.step)}
    problems += [*_start_faults(script), *_placed(map(_faults, script.step))]
    problems += _placed(_link_faults(step, steps) for step in script.step)
    if not problems:
        reached, masked = _reached([script.start], steps), Plan("", steps).masked
        problems = _placed(_path_faults(step, steps, reached, masked) for step in script.step)
    if problems:
        raise SettingsRefused("script", [(key, reason + _step_of(key, script)) for key, reason in problems])
    return Plan(script.start, {step.id: step for step in script.step})


def _read(settings: Mapping[str, Any]) -> tuple[ScriptTable, list[Fault]]:
    """The script and what is wrong with values by themselves, which are left out, so that one mistake does
    not hide the next."""
    try:
        return read_table("script", ScriptTable, settings), []
    except SettingsRefused as refused:
        rest = copy.deepcopy(dict(settings))
        for key, _ in refused.problems:
            _leave_out(key, rest)
        return read_table("script", ScriptTable, rest), list(refused.problems)


def _leave_out(key: str, settings: dict[str, Any]) -> None:
    """Removes the innermost value that has a name on the way to `key` ("step[2].next")."""
    place: Any = settings
    holder, name = settings, ""
    for part in re.findall(r"[^.\[\]]+", key):
        if isinstance(place, dict):
            holder, name, place = place, part, place.get(part)
        elif isinstance(place, list):
            place = place[int(part)]
    holder.pop(name, None)


def _placed(faults: Iterable[Iterable[Fault]]) -> list[Fault]:
    """The faults of each step with the keys of the script."""
    return [(f"step[{place}].{key}", reason) for place, each in enumerate(faults) for key, reason in each]


def _step_of(key: str, script: ScriptTable) -> str:
    """The name of the step that `key` ("step[2].next") belongs to, for the message."""
    names = {f"step[{place}]": step.id for place, step in enumerate(script.step)}
    table, dot, _ = key.partition(".")
    return f" (step {names[table]!r})" if dot and table in names else ""


def _start_faults(script: ScriptTable) -> Iterator[Fault]:
    names = [step.id for step in script.step]
    if not names:
        yield "step", "a script needs at least one step"
    elif script.start not in names:
        yield "start", f"no step is called {script.start!r}"
    for place, name in enumerate(names):
        if name in names[:place]:
            yield f"step[{place}].id", f"{name!r} names another step already"


def _faults(step: ScriptStep) -> Iterator[Fault]:
    """The problems of a single step."""
    if not step.id:
        yield "id", "a step needs a name"
    if step.llm is not None:
        for key in sorted(step.model_fields_set.intersection(_LED_BY_MODEL)):
            yield key, "the model leads this step; what it may collect stands in `llm`"
    yield from _answer_faults(step)
    ends = step.action in ("hang_up", "transfer")
    if step.expected is None and step.collect:
        yield "collect", "the step does not listen: it has no `expect`"
    if step.expected is None and step.on:
        yield "on", "the step does not listen: it has no `expect`"
    yield from _dictation_faults(step)
    if step.expected is not None and ends:
        yield "action", f"a step that ends with {step.action} cannot wait for an answer"
    yield from _target_faults(step)
    if step.expected is None and not ends and not step.next:
        yield "next", "the step leads nowhere: give it `next`, `expect` with `on`, or an ending `action`"
    yield from _branch_faults(step)


def _answer_faults(step: ScriptStep) -> Iterator[Fault]:
    if "" in step.labels:
        yield "expect.phrases", "a phrase without words"
    expected = step.expected
    if expected is not None and not expected.phrases and not expected.kinds:
        yield "expect.kinds", 'names nothing to expect; for any answer: kinds = ["free"]'


def _target_faults(step: ScriptStep) -> Iterator[Fault]:
    if step.failed and step.action != "transfer":
        yield "failed", "only a transfer fails"
    if step.action in ("transfer", "send_digits") and not step.destination:
        yield ("target" if step.action == "transfer" else "digits"), f"{step.action} needs it"
    elif step.action == "send_digits" and not _KEYED.fullmatch(PLACEHOLDER.sub("0", step.destination)):
        yield "digits", f"{step.destination!r}: only 0-9, *, #, A-D and variables can be keyed"


def _dictation_faults(step: ScriptStep) -> Iterator[Fault]:
    if step.mask and not step.collect:
        yield "mask", "there is no answer to hide: the step has no `collect`"
    if step.confirm and not step.collect:
        yield "confirm", "there is no answer to confirm: the step has no `collect`"
    if step.partial and not step.digits:
        yield "partial", "only digits of a known number come in parts: `expect = { digits = … }`"
    if step.language and re.fullmatch(r"[a-zA-Z]{2,3}(-[a-zA-Z0-9]{2,8})*", step.language) is None:
        yield "language", f"{step.language!r} is no language: en, ar, en-GB …"


def _branch_faults(step: ScriptStep) -> Iterator[Fault]:
    expected = step.expected
    if expected is None:
        return
    known = set(step.labels.values()) | ({"yes", "no"} if "yes_no" in expected.kinds else set())
    for label in step.on:
        if label not in known and not _KEYED.fullmatch(label):
            yield f"on.{label}", f"no answer of this step is called so; known are {', '.join(sorted(known))}"
    open_ended = bool(set(expected.kinds) - {"yes_no"})
    if not step.next and (open_ended or known - set(step.on)):
        missing = ", ".join(sorted(known - set(step.on))) or "what is said"
        yield "next", f"nothing follows the answer: {missing}"


def _link_faults(step: ScriptStep, steps: Mapping[str, ScriptStep]) -> Iterator[Fault]:
    for key, name in step.follows():
        if name not in steps:
            yield key, f"no step is called {name!r}"


def _path_faults(
    step: ScriptStep, steps: Mapping[str, ScriptStep], reached: set[str], masked: frozenset[str]
) -> Iterator[Fault]:
    """Steps that no step leads to, circles without a listening step, and texts that say a masked answer,
    which would be in the transcript and the recording."""
    if step.id not in reached:
        yield "id", f"no step leads to {step.id!r}"
    if step.expected is None and _circles(step, steps):
        yield "next", f"from {step.id!r} the script goes round without ever listening"
    for name in {name for text in step.spoken() for name in placeholders(text)} & masked:
        yield "say", f"{name!r} is masked; {{{{{name}{LAST_FOUR}}}}} says its last four digits"
    if step.action == "transfer" and masked.intersection(placeholders(step.destination)):
        yield "target", "it is masked, and the call's record names the target"


def _reached(names: Iterable[str], steps: Mapping[str, ScriptStep]) -> set[str]:
    seen: set[str] = set()
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name not in seen:
            seen.add(name)
            open_names += [follower for _, follower in steps[name].follows()]
    return seen


def _circles(step: ScriptStep, steps: Mapping[str, ScriptStep]) -> bool:
    here, seen = step, {step.id}
    while here.expected is None and here.next:
        here = steps[here.next]
        if here.id in seen:
            return here.id == step.id
        seen.add(here.id)
    return False
