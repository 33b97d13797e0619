"""A stream of words cut where a voice can begin: the first piece early, the others at the ends of sentences.

The first piece decides how long the caller waits, so a clause is enough for it; the others decide how it
sounds, so they are whole sentences. No cut falls inside a number, an abbreviation or an e-mail address: a
place where the text may go on either way is decided only when the next character is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

FIRST_WORDS: Final = 3
"""Of a clause that may be said before its sentence is known."""

SHORTEST: Final = 20  # characters of a later piece: every piece costs a request
LONGEST_WORD: Final = 40  # characters of an abbreviation and what is before it
LONGEST: Final = 400  # characters: a model that never ends a sentence is cut between words

_END: Final = re.compile(r"[.!?…؟。]+[\"'”’)\]]*(?=\s)|\n+")
_CLAUSE: Final = re.compile(r"[,;:،؛](?=\s)|\s[—–](?=\s)")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:dr|mr|mrs|ms|prof|st|no|vs|etc|approx|dept|ext|tel|jan|feb|mar|apr|jun|jul|aug|sep|sept"
    r"|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun|(?:[a-z]\.)*[a-z]|\d{1,2})\.$",
    re.IGNORECASE,
)
_DIGIT_AFTER: Final = re.compile(r"\s*\d")


class Segmenter:
    """Text in as it comes, pieces to be said out as soon as they are certain."""

    __slots__ = ("_first", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._first = True

    def feed(self, text: str) -> list[str]:
        """More of the stream; the pieces that are complete now, in order."""
        self._text += text
        return list(self._pieces())

    def finish(self) -> list[str]:
        """The stream is over; what is left."""
        rest, self._text, self._first = self._text.strip(), "", True
        return [rest] if rest else []

    def _pieces(self) -> Iterator[str]:
        while (cut := self._cut()) > 0:
            piece, self._text = self._text[:cut].strip(), self._text[cut:]
            if piece:
                self._first = False
                yield piece

    def _cut(self) -> int:
        """Where the next piece ends, 0 for not yet. What lies beyond the longest piece is not looked at."""
        text = self._text[: LONGEST + 1]
        sentence = self._sentence_end(text)
        if self._first:
            clause = _clause_end(text, sentence or len(text))
            if clause:
                return clause
        if sentence:
            return sentence
        if len(text) > LONGEST:
            return text.rfind(" ", 0, LONGEST) + 1 or LONGEST
        return 0

    def _sentence_end(self, text: str) -> int:
        for match in _END.finditer(text):
            end = match.end()
            if match[0][0] == "\n":
                if text[:end].strip():
                    return end
                continue
            if not text[end:].strip():  # what comes next decides
                return 0
            if _ABBREVIATION.search(text, max(0, end - LONGEST_WORD), end):
                continue
            if _between_digits(text, match.start(), end):
                continue
            if self._first or len(text[:end].strip()) >= SHORTEST:
                return end
        return 0


def _clause_end(text: str, limit: int) -> int:
    for match in _CLAUSE.finditer(text, 0, limit):
        end = match.end()
        if not text[end:].strip():
            return 0
        if len(text[:end].split()) >= FIRST_WORDS and not _between_digits(text, match.start(), end):
            return end
    return 0


def _between_digits(text: str, start: int, end: int) -> bool:
    """Whether a mark stands between figures: "3, 2026" and "555, 0123" are one thing."""
    before = text[:start].rstrip()
    return bool(before) and before[-1].isdigit() and _DIGIT_AFTER.match(text, end) is not None
