"""Splits text into sentences: whole texts, and a stream of text as it arrives.

A number, an abbreviation or an e-mail address is never split. The first piece of a stream decides how long
the caller waits, so it may be a clause; the other pieces are whole sentences, which sound better. An
ambiguous end is decided when the next character has arrived.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pipeline.text.english import MONTHS, WEEKDAYS, English

FIRST_WORDS: Final = 3
"""Fewest words of a clause that is given before the end of its sentence."""

SHORTEST: Final = 20  # fewest characters of a later piece, since every piece costs a request
LONGEST: Final = 400  # most characters of a piece; a longer sentence is split at a clause or between words

_END: Final = re.compile(r"(?<![.!?…؟۔。])[.!?…؟۔。]++[\"'”’)\]]*+(?=\s)|\n+")
_CLAUSE: Final = re.compile(r"[,;:،؛](?=\s)|\s[—–](?=\s)")
_SHORT: Final = "|".join(
    re.escape(name.lower().removesuffix("."))
    for name in (
        *English.abbreviations, *(month[:3] for month in MONTHS if len(month) > 3), *WEEKDAYS,
        "st", "no", "dept", "tel", "sept",
    )
)  # fmt: skip
_ABBREVIATION: Final = re.compile(rf"(?:^|[\s(])(?:{_SHORT}|(?:[a-z]\.)*[a-z]|\d{{1,2}})\.$", re.IGNORECASE)
_LONGEST_SHORT: Final = 40  # characters searched for an abbreviation before a dot
_DIGIT_AFTER: Final = re.compile(r"\s*\d")


def sentences(text: str, *, shortest: int = 0) -> Iterator[str]:
    """Splits `text`, after reducing white space to single spaces, into sentences; a sentence of fewer than
    `shortest` characters is joined with the next."""
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
    """Splits `text` into parts of at most `longest` characters, at a clause, else at a space, else
    anywhere."""
    rest = text
    while len(rest) > longest:
        cut = _cut_within(rest, longest)
        yield rest[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest


def clause_end(text: str, *, words: int, limit: int | None = None) -> int:
    """Gives the end of the first clause of at least `words` words before `limit`; 0 where there is none or
    more text is needed."""
    for match in _CLAUSE.finditer(text, 0, len(text) if limit is None else limit):
        end = match.end()
        if not text[end:].strip():
            return 0
        if len(text[:end].split()) >= words and not _between_digits(text, match.start(), end):
            return end
    return 0


class Segmenter:
    """Splits a stream of text into pieces for a voice, each as soon as its end is certain."""

    __slots__ = ("_first", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._first = True

    def feed(self, text: str) -> list[str]:
        """Takes more of the stream; returns the pieces that are complete now, in order."""
        self._text += text
        return list(self._pieces())

    def finish(self) -> list[str]:
        """Ends the stream; returns the rest as a list of at most one piece."""
        rest, self._text, self._first = self._text.strip(), "", True
        return [rest] if rest else []

    def _pieces(self) -> Iterator[str]:
        while (cut := self._cut()) > 0:
            piece, self._text = self._text[:cut].strip(), self._text[cut:]
            if piece:
                self._first = False
                yield piece

    def _cut(self) -> int:
        """The end of the next piece, 0 if more text is needed. Looks at most `LONGEST` characters ahead."""
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
            if not text[end:].strip():  # the next characters decide
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
    """Whether a mark that may end a sentence belongs to an abbreviation or a number."""
    start, end = match.span()
    short = _ABBREVIATION.search(text, max(0, end - _LONGEST_SHORT), end)
    return short is not None or _between_digits(text, start, end)


def _between_digits(text: str, start: int, end: int) -> bool:
    """Whether a mark is between figures, as in "3, 2026" and "555, 0123", which are not split."""
    before = text[:start].rstrip()
    return bool(before) and before[-1].isdigit() and _DIGIT_AFTER.match(text, end) is not None
