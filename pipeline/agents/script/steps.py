"""The steps of a script as data, with their texts and the steps that may follow; reads and checks the
settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.agents.script.llm_step import LlmStep, read_llm_step
from pipeline.engines.options import Options
from pipeline.speech import Expected
from pipeline.text.answers import KINDS
from pipeline.text.fold import plain_words
from pipeline.text.templates import PLACEHOLDER, placeholders

ACTIONS = ("hang_up", "transfer", "send_digits")

LAST_FOUR = ".last4"
"""Suffix of the variable with the last four of a slot's dictated digits, as cards and accounts are named."""

_KEYED = re.compile(r"[0-9*#A-D]+")


@dataclass(frozen=True, slots=True)
class Retry:
    """The reaction to an answer that was not understood, or to a silence: `say` is said ("": the question
    again), and after `max` times in a row step `next` follows ("": hang-up with `disposition`)."""

    say: str
    max: int
    next: str
    disposition: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the script: a text, the answers that it expects, and the steps that follow.

    `expected`: None for a step without an answer. `labels`: the label of each phrase; `on`: the step for each
    label or value; `next`: the step for other answers. `collect`: the name of the answer. `mask`: the answer
    is masked in records. `language`: the language from this step on. `partial`: the text after a part of the
    digits; `confirm`: the text that asks whether the answer is right.
    """

    id: str
    say: str
    expected: Expected | None
    labels: Mapping[str, str]
    collect: str
    next: str
    on: Mapping[str, str]
    nomatch: Retry
    silence: Retry
    interruptible: bool
    action: str
    target: str
    disposition: str
    goal: bool
    mask: bool = False
    language: str = ""
    partial: str = ""
    confirm: str = ""
    llm: LlmStep | None = None

    def follows(self) -> Iterator[tuple[str, str]]:
        """Every step that may follow, as pairs of the key in the settings and the step's name."""
        if self.next:
            yield "next", self.next
        for label, name in self.on.items():
            yield f"on.{label}", name
        if self.llm is not None and self.llm.failed:
            yield "llm.failed", self.llm.failed
        if self.nomatch.next:
            yield "nomatch.next", self.nomatch.next
        if self.silence.next:
            yield "silence.next", self.silence.next

    def templates(self) -> Iterator[str]:
        """Every text that may hold placeholders."""
        yield from (*self.spoken(), self.target)

    def spoken(self) -> tuple[str, ...]:
        """The texts that the caller hears."""
        return (self.say, self.nomatch.say, self.silence.say, self.partial, self.confirm)

    @property
    def digits(self) -> int:
        """The number of digits of the answer; 0: unknown, or no digits."""
        return self.expected.digits if self.expected is not None else 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked script: `start` and every step that follows another are in `steps`."""

    start: str
    steps: Mapping[str, Step] = field(default_factory=dict)

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

    def _silences_from(self, step: Step) -> int:
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


def read_plan(settings: Mapping[str, Any]) -> Plan:
    """Reads the script in `settings`, the `[agent.script]` table. Raises `SettingsRefused` with every
    problem."""
    options = Options("script", settings)
    start = options.text("start")
    steps: dict[str, Step] = {}
    places: dict[str, Options] = {}
    tables = options.tables("step")
    for table in tables:
        step = _read_step(table)
        if step.id in steps:
            table.wrong("id", f"{step.id!r} names another step already")
        elif step.id:
            steps[step.id], places[step.id] = step, table
    if not tables:
        options.wrong("step", "a script needs at least one step")
    elif start not in steps:
        options.wrong("start", f"no step is called {start!r}")
    _check_links(steps, places)
    if not options.problems:
        _check_paths(start, steps, places)
        _check_masks(steps, places)
    options.check_unknown()
    options.problems[:] = [(key, reason + _step_of(key, tables)) for key, reason in options.problems]
    options.finish()
    return Plan(start, steps)


def _step_of(key: str, tables: Iterable[Options]) -> str:
    """The name of the step that `key` ("step[2].next") belongs to, for the message."""
    for index, table in enumerate(tables):
        if key.startswith(f"step[{index}]."):
            return f" (step {table.text('id')!r})"
    return ""


def _read_step(table: Options) -> Step:
    name = table.text("id")
    if not name:
        table.wrong("id", "a step needs a name")
    on = _read_on(table.table("on"))
    expected, labels = _read_expected(table, on)
    llm_step = read_llm_step(table)
    if llm_step is not None:
        expected = Expected(kinds=("free",))  # the caller answers the model
    step = Step(
        id=name,
        say=table.text("say"),
        expected=expected,
        labels=labels,
        collect=table.text("collect"),
        next=table.text("next"),
        on=on,
        nomatch=_read_retry(table.table("nomatch"), "not_understood"),
        silence=_read_retry(table.table("silence"), "no_answer"),
        interruptible=table.flag("interruptible", True),
        action=table.text("action", choices=ACTIONS),
        target=table.text("target") or table.text("digits"),
        disposition=table.text("disposition"),
        goal=table.flag("goal"),
        mask=table.flag("mask"),
        language=table.text("language"),
        partial=table.text("partial"),
        confirm=table.text("confirm"),
        llm=llm_step,
    )
    table.check_unknown()
    for key, reason in _faults(step):
        table.wrong(key, reason)
    return step


def _read_expected(table: Options, on: Iterable[str]) -> tuple[Expected | None, dict[str, str]]:
    listens = table.has("expect") or table.has("answers")
    expect, answers = table.table("expect"), table.table("answers")
    labels = {plain_words(phrase): plain_words(phrase) for phrase in expect.texts("phrases")}
    for label in answers.names():
        labels |= {plain_words(phrase): label for phrase in answers.texts(label)}
    kinds = expect.texts("kinds", choices=KINDS)
    digits = expect.integer("digits", 0, low=0, high=64)
    if digits and "digits" not in kinds:
        kinds = (*kinds, "digits")
    terminator = expect.text("terminator", "#", choices=("", "#", "*"))
    key_timeout_s = expect.number("key_timeout_s", 0.0, low=0.0, high=60.0)
    expect.check_unknown()
    if "" in labels:
        expect.wrong("phrases", "a phrase without words")
    if listens and not labels and not kinds:
        expect.wrong("kinds", 'names nothing to expect; for any answer: kinds = ["free"]')
    expected = Expected(
        tuple(labels),
        kinds,
        digits,
        terminator=terminator,
        key_timeout_s=key_timeout_s,
        choices=tuple(filter(_KEYED.fullmatch, on)),
    )
    return (expected if listens else None), labels


def _read_on(table: Options) -> dict[str, str]:
    return {label: table.text(label) for label in table.names()}


def _read_retry(table: Options, disposition: str) -> Retry:
    retry = Retry(
        say=table.text("say"),
        max=table.integer("max", 2, low=0, high=20),
        next=table.text("next"),
        disposition=table.text("disposition", disposition),
    )
    table.check_unknown()
    return retry


def _faults(step: Step) -> Iterator[tuple[str, str]]:
    """The problems of a single step, as pairs of key and reason."""
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


def _target_faults(step: Step) -> Iterator[tuple[str, str]]:
    if step.action in ("transfer", "send_digits") and not step.target:
        yield ("target" if step.action == "transfer" else "digits"), f"{step.action} needs it"
    elif step.action == "send_digits" and not _KEYED.fullmatch(PLACEHOLDER.sub("0", step.target)):
        yield "digits", f"{step.target!r}: only 0-9, *, #, A-D and variables can be keyed"


def _dictation_faults(step: Step) -> Iterator[tuple[str, str]]:
    if step.mask and not step.collect:
        yield "mask", "there is no answer to hide: the step has no `collect`"
    if step.confirm and not step.collect:
        yield "confirm", "there is no answer to confirm: the step has no `collect`"
    if step.partial and not step.digits:
        yield "partial", "only digits of a known number come in parts: `expect = { digits = … }`"
    if step.language and re.fullmatch(r"[a-zA-Z]{2,3}(-[a-zA-Z0-9]{2,8})*", step.language) is None:
        yield "language", f"{step.language!r} is no language: en, ar, en-GB …"


def _branch_faults(step: Step) -> Iterator[tuple[str, str]]:
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


def _check_links(steps: Mapping[str, Step], places: Mapping[str, Options]) -> None:
    for step in steps.values():
        for key, name in step.follows():
            if name not in steps:
                places[step.id].wrong(key, f"no step is called {name!r}")


def _check_paths(start: str, steps: Mapping[str, Step], places: Mapping[str, Options]) -> None:
    for name in steps.keys() - _reached([start], steps):
        places[name].wrong("id", f"no step leads to {name!r}")
    for step in steps.values():
        if step.expected is None and _circles(step, steps):
            places[step.id].wrong("next", f"from {step.id!r} the script goes round without ever listening")


def _check_masks(steps: Mapping[str, Step], places: Mapping[str, Options]) -> None:
    """Notes texts that say a masked answer, which would be in the transcript and the recording."""
    masked = Plan("", steps).masked
    for step in steps.values():
        for name in {name for text in step.spoken() for name in placeholders(text)} & masked:
            places[step.id].wrong(
                "say", f"{name!r} is masked; {{{{{name}{LAST_FOUR}}}}} says its last four digits"
            )
        if step.action == "transfer" and masked.intersection(placeholders(step.target)):
            places[step.id].wrong("target", "it is masked, and the call's record names the target")


def _reached(names: Iterable[str], steps: Mapping[str, Step]) -> set[str]:
    seen: set[str] = set()
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name not in seen:
            seen.add(name)
            open_names += [follower for _, follower in steps[name].follows()]
    return seen


def _circles(step: Step, steps: Mapping[str, Step]) -> bool:
    here, seen = step, {step.id}
    while here.expected is None and here.next:
        here = steps[here.next]
        if here.id in seen:
            return here.id == step.id
        seen.add(here.id)
    return False
