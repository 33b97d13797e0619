"""Questions of an agent's script for the recordings of people, and the answers that a script takes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from bench.embedded_stt.corpus import Spoken
from pipeline.agents.script.position import label_in
from pipeline.speech import Expected
from pipeline.text.answers import value_of
from pipeline.text.lexicon import lexicon
from pipeline.text.spoken_numbers import spoken_digits

LANGUAGE: Final = "en"
KINDS: Final = ("yes_no", "digits", "date")
TEN: Final = 10
ANSWER_WORDS: Final = 4
"""Words of an answer, at most; a longer text is an announcement."""


@dataclass(frozen=True)
class Question:
    """One question. `name`: "digits", "a phrase of ten" …; `spoken`: the utterance; `right`: the answer that
    the script should take, "" for none."""

    name: str
    expected: Expected
    spoken: Spoken
    right: str

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The labels of the answers, as in a script's step."""
        return {phrase: phrase for phrase in self.expected.phrases}

    def acted_on(self, text: str) -> str:
        """Returns the answer that a script takes from `text`, "" for none."""
        return _acted_on(text, self.expected, self.labels)


def _acted_on(text: str, expected: Expected, labels: Mapping[str, str]) -> str:
    label = label_in(text, labels, lexicon(LANGUAGE)) if text else ""
    if label or not text:
        return label
    for kind in expected.kinds:
        found = value_of(kind, text, lexicon(LANGUAGE))
        if found:
            return spoken_digits(text, lexicon(LANGUAGE)) if kind == "digits" else found
    return ""


def dictated(numbers: Sequence[Spoken]) -> Iterator[Question]:
    """Yields each number, as the answer to a question for one."""
    for spoken in numbers:
        yield Question("digits", Expected(kinds=("digits",)), spoken, spoken.text)


def of_ten(corpus: Sequence[Spoken]) -> Iterator[Question]:
    """Yields each answer, to a question that expects this one and nine others of the same half."""
    dice = random.Random(11)
    known = sorted({each.text for each in corpus if is_answer(each)})
    for spoken in filter(is_answer, corpus):
        others = [text for text in known if _apart(text, spoken.text)]
        phrases = _chosen(dice, others, [spoken.text])
        yield Question("a phrase of ten", Expected(tuple(phrases)), spoken, spoken.text)


def other_words(corpus: Sequence[Spoken]) -> Iterator[Question]:
    """Yields all utterances, to questions that they do not answer."""
    dice = random.Random(12)
    known = sorted({each.text for each in corpus if is_answer(each)})
    for spoken in corpus:
        expectations = [Expected(kinds=(kind,)) for kind in KINDS]
        phrases = _chosen(dice, [text for text in known if _apart(text, spoken.text)], [])
        for expected in (*expectations, Expected(tuple(phrases))):
            question = Question(expected.kinds[0] if expected.kinds else "ten phrases", expected, spoken, "")
            if not question.acted_on(spoken.text):
                yield question


def is_answer(spoken: Spoken) -> bool:
    """Whether the utterance is short enough for an answer."""
    return len(spoken.text.split()) <= ANSWER_WORDS


def _chosen(dice: random.Random, others: Sequence[str], begun: list[str]) -> list[str]:
    """Returns `begun` and others up to ten, none of which contains another."""
    chosen = list(begun)
    for text in dice.sample(others, len(others)):
        if len(chosen) < TEN and all(_apart(text, each) for each in chosen):
            chosen.append(text)
    dice.shuffle(chosen)
    return chosen


def _apart(one: str, other: str) -> bool:
    return f" {one} " not in f" {other} " and f" {other} " not in f" {one} "
