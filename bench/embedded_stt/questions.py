"""The questions to the embedded recogniser about the corpus: an utterance, a grammar, and the right
answer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.embedded_stt.corpus import (
    DAYS,
    DIGITS,
    ESPEAK,
    FLITE_VOICES,
    NUMBERS,
    TENS,
    Spoken,
    dates,
    digit_strings,
    prompts,
    synthetic,
    variants,
)
from bench.micro_whisper.corpus import MONTHS, ORDINALS, PHRASES
from pipeline.speech import Expected
from pipeline.stt.sphinx.jsgf import yes_no

KINDS: Final = ("yes_no", "digits", "date")
PHRASE_LISTS: Final = 16
_LONG: Final = 10

_ANSWERS: Final[Mapping[str, frozenset[str]]] = {
    "yes_no": frozenset(yes_no()),
    "digits": frozenset({*DIGITS, "oh", *PHRASES[6:11]}),
    "number": frozenset({*NUMBERS, *TENS}),
    "date": frozenset({*DAYS, *ORDINALS, "today", "tomorrow", *PHRASES[11:18]}),
    "phrases": frozenset(PHRASES),
}


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `asked`: the kind of answer; `expected`: the grammar; `right`: the right answer, "" for
    none."""

    asked: str
    expected: Expected
    spoken: Spoken
    right: str

    @property
    def material(self) -> str:
        """The kind of the utterance: "recorded" (the announcer), "synthetic", or "people"."""
        voice = self.spoken.voice
        return voice if voice == "recorded" else "synthetic" if voice in (*FLITE_VOICES, ESPEAK) else "people"


def expected(asked: str) -> Expected:
    """Returns the grammar of a kind of question."""
    return Expected(PHRASES) if asked == "phrases" else Expected((), (asked,))


def questions() -> Iterator[Question]:
    """Yields all questions: each prompt as the answer to yes or no, digits and a date, each word of the
    prompts to lists of phrases with and without it; strings, dates and synthetic voices to all kinds."""
    recorded = prompts()
    yield from (_asked(asked, spoken) for spoken in recorded for asked in KINDS)
    yield from (_asked("number", spoken) for spoken in recorded if spoken.text in _ANSWERS["number"])
    yield from _among_phrases(recorded)
    for spoken in digit_strings():
        yield Question("digits", expected("digits"), spoken, spoken.text)
        yield Question("yes_no", expected("yes_no"), spoken, "")
    for spoken in dates():
        yield Question("date", expected("date"), spoken, spoken.text)
        yield Question("yes_no", expected("yes_no"), spoken, "")
    for spoken in synthetic():
        yield from (_asked(asked, spoken) for asked in (*KINDS, "phrases"))


def tuning_questions() -> Iterator[Question]:
    """Yields the half of the questions that tunes, and espeak-ng's other voices."""
    yield from (each for each in questions() if each.spoken.tunes)
    for spoken in variants():
        words = spoken.text.split()
        if set(words) <= set(DIGITS):
            yield Question("digits", expected("digits"), spoken, spoken.text)
        elif words[0] in MONTHS:
            yield Question("date", expected("date"), spoken, spoken.text)
        else:
            yield from (_asked(asked, spoken) for asked in (*KINDS, "phrases"))


def _asked(asked: str, spoken: Spoken) -> Question:
    right = spoken.text if spoken.text in _ANSWERS[asked] else ""
    return Question(asked, expected(asked), spoken, right)


def _among_phrases(recorded: Sequence[Spoken]) -> Iterator[Question]:
    dice = random.Random(11)
    known = sorted({spoken.text for spoken in recorded if spoken.text})
    lists = [tuple(dice.sample(known, _LONG)) for _ in range(PHRASE_LISTS)]
    for spoken in recorded:
        with_it = [each for each in lists if spoken.text in each]
        without = [each for each in lists if spoken.text not in each]
        for phrases in (*with_it[:2], *dice.sample(without, 2)):
            right = spoken.text if spoken.text in phrases else ""
            yield Question("a list", Expected(phrases), spoken, right)
