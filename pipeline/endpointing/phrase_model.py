"""Scores English words by weights learnt from callers' words before a pause and at the end of a turn.

The weights hold what a list of last words cannot: after which questions "yes" is a complete answer, and that
a caller who begins with "so" has more to say. Each trait of the words (the last words, the first, those of
the question) has a weight; the sum is one measure for `pipeline.endpointing.scorer`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pipeline.endpointing.cues import asked_for
from pipeline.text.english import SMALL, TENS
from pipeline.text.lexicon import MONTHS, ORDINALS, WEEKDAYS
from pipeline.text.word_lists import plain

WEIGHTS: Final = Path(__file__).with_name("phrase_model.txt")
"""The file of weights, with a weight and a trait in each line; made by `python -m bench turn-wording`."""

_LENGTHS: Final = (1, 2, 3, 4, 6, 9, 14)
_LATE_WORDS: Final = 12  # most words from the end whose presence is a trait
_WHOLE_WORDS: Final = 3
_ASKED_WORDS: Final = 10
_NUMBER: Final = "#"
_ORDINAL: Final = "#th"
_DAY: Final = "#day"
_MONTH: Final = "#month"
_LETTER: Final = "#letter"
_SINCE: Final = 6


def _kinds(**words: str) -> Mapping[str, str]:
    kinds = {"number": _NUMBER, "ordinal": _ORDINAL, "day": _DAY, "month": _MONTH}
    return MappingProxyType({word: kinds[kind] for kind, some in words.items() for word in some.split()})


_KIND: Final = _kinds(
    number=" ".join(("oh nought hundred thousand double triple", *SMALL, *TENS[2:])),
    ordinal=ORDINALS,
    day=WEEKDAYS,
    month=MONTHS,
)
_JOINTS: Final = frozenset(
    ("and", "but", "because", "so", "or", "if", "when", "that", "which", "who", "then", "with", "for", "to")
)
"""Words with which a clause begins."""

_START: Final = "^"
_SENTENCE: Final = re.compile(r"[.!]\s")


class Wording:
    """Adds up the weights of traits. `weights`: natural logarithms of odds, by trait. Thread-safe, without
    state of a call."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights

    def odds(self, text: str, asked: str) -> float:
        """Gives the odds, as a natural logarithm, that the turn is over after `text`, which is `plain` and
        not empty, as an answer to `asked`."""
        return sum(self._weights.get(trait, 0.0) for trait in traits(text, asked))


@lru_cache(maxsize=1)
def wording() -> Wording:
    """Gives the weights of this process; the first call reads a file of 0.4 MB, in 15 ms."""
    lines = WEIGHTS.read_text(encoding="ascii").splitlines()
    split = (line.partition(" ") for line in lines)
    return Wording({trait: float(weight) for weight, _, trait in split})


def traits(text: str, asked: str) -> frozenset[str]:
    """Gives the traits of `text`, which is `plain` and not empty, as an answer to `asked`."""
    words = [_class(word) for word in text.split()]
    return frozenset(
        (
            *_of_the_length(words, asked),
            *_of_the_end(words),
            *_of_the_rest(words),
            *_of_the_clause(words),
            *_of_the_question(asked),
        )
    )


def _class(word: str) -> str:
    if word.isdecimal():
        return _NUMBER
    return _LETTER if len(word) == 1 and word not in "ai" else _KIND.get(word, word)


def _of_the_length(words: list[str], asked: str) -> Iterator[str]:
    length = max(each for each in _LENGTHS if each <= len(words))
    kind = asked_for(asked).name.lower()
    yield f"length {length}"
    yield f"asked {kind}"
    yield f"asked {kind}, length {length}"
    yield f"asked {kind}, last {words[-1]}"
    yield f"first {words[0]}, length {length}"


def _of_the_end(words: list[str]) -> Iterator[str]:
    third, second, last = (_START, _START, *words)[-3:]
    yield f"last {last}"
    yield f"last {second} {last}"
    yield f"last {third} {second} {last}"
    yield f"last {third} ... {last}"
    yield f"second to last {second}"
    yield f"third to last {third}"
    yield f"ending {last[-3:]}"
    yield f"ending {last[-2:]}"
    yield f"ending {second} {last[-3:]}"
    yield f"ending {second[-3:]} {last[-3:]}"


def _of_the_rest(words: list[str]) -> Iterator[str]:
    yield f"first {words[0]}"
    yield f"first {' '.join(words[:2])}"
    if len(words) <= _WHOLE_WORDS:
        yield f"whole {' '.join(words)}"
    for word in words[-_LATE_WORDS:]:
        yield f"has {word}"


def _of_the_clause(words: list[str]) -> Iterator[str]:
    """The word that begins the last clause, and the number of words since."""
    since = next((number for number, word in enumerate(reversed(words)) if word in _JOINTS), len(words))
    joint = words[-since - 1] if since < len(words) else _START
    yield f"joint {joint}, {min(since, _SINCE)} ago"


@lru_cache(maxsize=256)
def _of_the_question(asked: str) -> tuple[str, ...]:
    words = plain(asked).split()
    last = plain(_SENTENCE.split(asked.strip())[-1]).split()
    return (
        *(f"asked has {word}" for word in words[-_ASKED_WORDS:]),
        f"asked ends {' '.join(words[-3:])}",
        f"asked begins {' '.join(last[:2])}",
    )
