"""The called person of the demo: what they know, what they say to what they hear, and when they butt in.

Pure logic on words and times: the process around it (`mediaserver.demo.callee`) owns the voice, the ears and
the telephone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mediaserver.demo.speech import Speech

_DIGITS = dict(
    zip(
        "0123456789",
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
        strict=True,
    )
)


def words_of(text: str) -> list[str]:
    """Returns the lower-case words of `text` without punctuation, each digit as the word for it."""
    spoken = re.sub(r"\d", lambda digit: f" {_DIGITS[digit[0]]} ", text.lower())
    return re.findall(r"[\w']+", spoken)


def word_errors(said: str, understood: str) -> tuple[int, int]:
    """Returns (errors, words said): substitutions, deletions and insertions, and the words of `said`; their
    quotient is the word error rate."""
    reference, hypothesis = words_of(said), words_of(understood)
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(hypothesis, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1], len(reference)


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of the person: said after an utterance that holds all the words of `to`, or, where
    `butt_in_after_ms` is set, over the agent's voice, that long after the voice began."""

    say: str
    to: tuple[str, ...] = ()
    butt_in_after_ms: int = 0


PATIENTS: Final[Mapping[Speech, tuple[Line, ...]]] = {
    Speech.LOCAL: (
        Line("Yes, that's me.", to=("williams",)),
        Line("No, I can't. I'm travelling on Monday.", to=("appointment", "monday")),
        Line("How about next Friday morning?", to=("suit", "better")),
        Line("five five five, zero one, four two.", to=("patient", "number")),
        Line("My left knee has been hurting since I moved house.", to=("anything", "else")),
        Line("Sorry, can you repeat that please?", butt_in_after_ms=2200),
        Line("Yes, that's right, thank you.", to=("five", "four", "two", "right")),
    ),
    Speech.EMBEDDED: (
        Line("yes that is me", to=("williams",)),
        Line("no i can not come", to=("appointment", "monday")),
        Line("next friday morning", to=("what", "day")),
        Line("five five five zero one four two", to=("patient", "number")),
        Line("i need help with my bill", to=("anything", "else")),
        Line("sorry can you repeat that please", butt_in_after_ms=2200),
        Line("yes that is right", to=("five", "four", "two", "right")),
    ),
}
"""Mary Williams, who cannot come on Monday and does not listen to opening hours. Without local speech she
uses words that micro-Whisper knows."""

FACTS: Final = {"day": "next friday morning", "number": "5550142"}
"""What the agent must have understood when it is done."""

WISHES: Final[Mapping[Speech, str]] = {
    speech: next(line.say for line in lines if "anything" in line.to) for speech, lines in PATIENTS.items()
}
"""The answer that no question of the agent's expects: the agent must have understood most of it."""


AGAIN_AFTER_MS: Final = 6000
"""A person who has interrupted a voice interrupts it again after so many milliseconds of it."""


class Persona:
    """Says its lines in order: each waits for its words or its moment. A line is said again where the agent
    asks for it again."""

    def __init__(self, lines: tuple[Line, ...]) -> None:
        self._lines = list(lines)
        self._said: Line | None = None
        self._interrupted = False  # whether the voice that is speaking was interrupted
        self.misheard: list[str] = []

    @property
    def finished(self) -> bool:
        """Whether every line has been said."""
        return not self._lines

    def hears(self, text: str) -> str | None:
        """Returns the answer to a whole utterance of the agent, None for no answer."""
        words = set(words_of(text))
        if self._lines and not self._lines[0].butt_in_after_ms and words.issuperset(self._lines[0].to):
            return self._next()
        if self._said is not None and self._said.to and words.issuperset(self._said.to):
            return self._said.say
        if self._lines and not self._lines[0].butt_in_after_ms:
            self.misheard.append(text)
        return None

    def hears_voice(self, speaking_ms: int) -> str | None:
        """Returns what to say over a voice that has been speaking for `speaking_ms`, None to let the voice go
        on."""
        if not speaking_ms:
            self._interrupted = False
        if self._interrupted or not self._lines:
            return None
        if 0 < self._lines[0].butt_in_after_ms <= speaking_ms:
            self._interrupted = True
            return self._next()
        if self._said is not None and self._said.butt_in_after_ms and speaking_ms >= AGAIN_AFTER_MS:
            self._interrupted = True
            return self._said.say
        return None

    def _next(self) -> str:
        self._said = self._lines.pop(0)
        return self._said.say
