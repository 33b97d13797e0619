"""Text cut where a voice can begin: whole texts into sentences, and a stream of words as it comes.

No cut falls inside a number, an abbreviation or an e-mail address. Of a stream the first piece decides how
long the caller waits, so a clause is enough for it; the others decide how it sounds, so they are whole
sentences. A place where a stream may go on either way is decided only when the next character is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pipeline.text.english import MONTHS, WEEKDAYS, English

FIRST_WORDS: Final = 3
"""Of a clause that may be said before its sentence is known."""

SHORTEST: Final = 20  # characters of a later piece: every piece costs a request
LONGEST: Final = 400  # characters: a model that never ends a sentence is cut at a clause or between words

_END: Final = re.compile(r"[.!?…؟۔。]+[\"'”’)\]]*(?=\s)|\n+")
_CLAUSE: Final = re.compile(r"[,;:،؛](?=\s)|\s[—–](?=\s)")
_SHORT: Final = "|".join(
    re.escape(name.lower().removesuffix("."))
    for name in (
        *English.abbreviations, *(month[:3] for month in MONTHS if len(month) > 3), *WEEKDAYS,
        "st", "no", "dept", "tel", "sept",
    )
)  # fmt: skip
_ABBREVIATION: Final = re.compile(rf"(?:^|[\s(])(?:{_SHORT}|(?:[a-z]\.)*[a-z]|\d{{1,2}})\.$", re.IGNORECASE)
_LONGEST_SHORT: Final = 40  # characters of an abbreviation and what is before it
_DIGIT_AFTER: Final = re.compile(r"\s*\d")


def sentences(text: str, *, shortest: int = 0) -> Iterator[str]:
    """`text`, with single spaces, in its sentences; one of fewer than `shortest` characters is joined with
    the next. Only the spaces between them are lost."""
    text = " ".join(text.split())
    begin = 0
    for match in _END.finditer(text):
        end = match.end()
        if end - begin >= shortest and not _goes_on(text, match):
            yield text[begin:end]
            begin = end + 1
    if text[begin:]:
        yield text[begin:]


def shortened(text: str, longest: int) -> Iterator[str]:
    """`text` in parts of at most `longest` characters, cut at a clause, else at a space, else anywhere."""
    rest = text
    while len(rest) > longest:
        cut = _cut_within(rest, longest)
        yield rest[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest


def clause_end(text: str, *, words: int, limit: int | None = None) -> int:
    """Where the first clause of at least so many words ends, before `limit`; 0 for not yet, or nowhere."""
    for match in _CLAUSE.finditer(text, 0, len(text) if limit is None else limit):
        end = match.end()
        if not text[end:].strip():
            return 0
        if len(text[:end].split()) >= words and not _between_digits(text, match.start(), end):
            return end
    return 0


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
            clause = clause_end(text, words=FIRST_WORDS, limit=sentence or len(text))
            if clause:
                return clause
        if sentence:
            return sentence
        if len(text) > LONGEST:
            return _cut_within(text, LONGEST)
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
            if _goes_on(text, match):
                continue
            if self._first or len(text[:end].strip()) >= SHORTEST:
                return end
        return 0


def _cut_within(text: str, longest: int) -> int:
    head = text[:longest]
    clause = max(head.rfind(mark) + 1 for mark in (", ", "; ", ": ", "، ", "؛ "))
    return clause or head.rfind(" ") + 1 or longest


def _goes_on(text: str, match: re.Match[str]) -> bool:
    """Whether what looks like the end of a sentence is the dot of an abbreviation, or stands in a number."""
    start, end = match.span()
    short = _ABBREVIATION.search(text, max(0, end - _LONGEST_SHORT), end)
    return short is not None or _between_digits(text, start, end)


def _between_digits(text: str, start: int, end: int) -> bool:
    """Whether a mark stands between figures: "3, 2026" and "555, 0123" are one thing."""
    before = text[:start].rstrip()
    return bool(before) and before[-1].isdigit() and _DIGIT_AFTER.match(text, end) is not None
