"""Comparing what was said with what was understood."""

from __future__ import annotations

import re

_DIGITS = dict(
    zip(
        "0123456789",
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
        strict=True,
    )
)


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation; digits as the words they are spoken as."""
    spoken = re.sub(r"\d", lambda digit: f" {_DIGITS[digit[0]]} ", text.lower())
    return re.findall(r"[\w']+", spoken)


def word_errors(said: str, understood: str) -> tuple[int, int]:
    """(errors, words said): substitutions, deletions and insertions, the numerator and denominator of the
    word error rate."""
    reference, hypothesis = words_of(said), words_of(understood)
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(hypothesis, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1], len(reference)
