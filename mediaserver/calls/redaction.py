"""Finds personal numbers and addresses in what was said, and puts `[card]` and its like in their place.

Digits count as figures and as words ("four one double five"), and a number that was dictated in pieces is one
number. A card is one by its check digit (Luhn), an IBAN and a national id by theirs (python-stdnum), a
telephone number by its country's numbering plan (phonenumbers)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Final

from stdnum import iban, luhn

from mediaserver.numbers.e164 import in_use
from pipeline.text.fold import folded, plain_words
from pipeline.text.lexicon import lexicon
from pipeline.text.spoken_numbers import spoken_digits
from pipeline.transcript import Role, TranscriptEntry

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

LONGEST: Final = 24
"""The most groups of digits, or words for them, that make one number."""

FURTHEST: Final = 12
"""The most characters between two groups of digits of one number: a word such as "then"."""

_EMAIL: Final = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\b[\w+-]+(?: (?:dot|dash|underscore) [\w+-]+)* at [\w-]+(?: dot [\w-]+)+",
    re.IGNORECASE,
)
_ESCAPE: Final = re.compile(r"\\+(?:[bfnrt]|u[0-9a-fA-F]{4})")
"""A character that JSON spells with a backslash: its letter belongs to no number behind it."""
_IBAN: Final = re.compile(r"\b[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]{1,4}){3,8}\b")
_TOKEN: Final = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_ID_TEXT: Final = re.compile(r"\b(?=[A-Za-z.-]*\d)[A-Za-z0-9](?:[.-]?[A-Za-z0-9]){7,19}\b")

NATIONAL_IDS: Final[Mapping[str, tuple[str, ...]]] = {
    "AT": ("stdnum.at.vnr",),
    "BE": ("stdnum.be.nn",),
    "BR": ("stdnum.br.cpf",),
    "CN": ("stdnum.cn.ric",),
    "DE": ("stdnum.de.idnr",),
    "ES": ("stdnum.es.dni", "stdnum.es.nie"),
    "FI": ("stdnum.fi.hetu",),
    "FR": ("stdnum.fr.nir",),
    "GB": ("stdnum.gb.nhs",),
    "IN": ("stdnum.in_.aadhaar",),
    "IT": ("stdnum.it.codicefiscale",),
    "NL": ("stdnum.nl.bsn",),
    "PL": ("stdnum.pl.pesel",),
    "PT": ("stdnum.pt.cc",),
    "SE": ("stdnum.se.personnummer",),
    "TR": ("stdnum.tr.tckimlik",),
    "US": ("stdnum.us.ssn",),
    "ZA": ("stdnum.za.idnr",),
}
"""The national ids of countries, as modules of python-stdnum."""

_BY_LUHN: Final[Mapping[str, re.Pattern[str]]] = {
    "AE": re.compile(r"784\d{12}"),
    "SA": re.compile(r"[12]\d{9}"),
}
"""Countries whose ids have a Luhn digit and no module of their own."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A part of a text, by its first character and the one after its last, and what stands there."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class MutedSpan:
    """A part of the recording that is to be silent: the caller's channel or the agent's, in milliseconds."""

    role: Role
    start_ms: int
    end_ms: int


class Redactor:
    """Redacts `kinds` of `card`, `iban`, `email`, `phone`, `national_id`. `country`: of telephone numbers
    without a country and of national ids, "" for none; `language`: of the words for digits."""

    def __init__(self, kinds: Iterable[str], *, country: str = "", language: str = "en") -> None:
        self._kinds = frozenset(kinds)
        self._country = country
        self._lexicon = lexicon(language)

    def text(self, text: str) -> str:
        """Returns `text` with a mark in place of each thing found."""
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Returns texts that one party said one after the other, each with marks; a number may go on from one
        to the next, and its mark stands where it began."""
        return [_marked(text, spans) for text, spans in zip(texts, self.spans(texts), strict=True)]

    def value(self, value: Any, known: Mapping[str, str] = _NOTHING, *, integers: bool = False) -> Any:
        """Returns a JSON value with marks in all of its texts, also for what is `known` to be found elsewhere
        (`known_of`): an answer has lost the signs by which an address is one. `integers`: also in place of
        integers, since a model may write a card's digits as one."""
        if isinstance(value, dict):
            return {name: self.value(inner, known, integers=integers) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, known, integers=integers) for inner in value]
        if integers and isinstance(value, int) and not isinstance(value, bool):
            marked = self.text(str(value))
            return value if marked == str(value) else marked
        if not isinstance(value, str):
            return value
        text = _marked(value, self._found(_ESCAPE.sub(lambda escape: " " * len(escape[0]), value)))
        for words, kind in known.items():
            text = re.sub(rf"\b{re.escape(words)}\b", f"[{kind}]", text, flags=re.IGNORECASE)
        return text

    def known_of(self, entries: Sequence[TranscriptEntry]) -> Mapping[str, str]:
        """Returns what is found in the lines of a transcript, in plain words, with its kind."""
        known: dict[str, str] = {}
        for entry in entries:
            [spans] = self.spans([entry.text])
            known |= {plain_words(entry.text[span.start : span.end]): span.kind for span in spans}
        return known

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Returns what is found in texts that one party said one after the other, for each text."""
        whole = "\n".join(texts)
        starts = [0, *accumulate(len(text) + 1 for text in texts)]
        found: list[list[Span]] = [[] for _ in texts]
        for span in self._found(whole):
            first = bisect_right(starts, span.start) - 1
            for place in range(first, len(texts)):
                begin, end = (
                    max(span.start - starts[place], 0),
                    min(span.end - starts[place], len(texts[place])),
                )
                if starts[place] >= span.end:
                    break
                if begin < end:
                    found[place].append(Span(begin, end, span.kind if place == first else ""))
        return found

    def _found(self, text: str) -> list[Span]:
        spans: list[Span] = []
        for span in self._candidates(text):
            if all(span.end <= other.start or span.start >= other.end for other in spans):
                spans.append(span)
        return sorted(spans)

    def _candidates(self, text: str) -> Iterator[Span]:
        """Yields what is found, the most certain first; of those that overlap only the first counts."""
        if "email" in self._kinds:
            yield from (Span(*each.span(), "email") for each in _EMAIL.finditer(text))
        if "iban" in self._kinds:
            yield from _ibans(text)
        if "national_id" in self._kinds:
            for found in _ID_TEXT.finditer(text):
                if any(character.isalpha() for character in found[0]) and self._is_national_id(found[0]):
                    yield Span(*found.span(), "national_id")
        checks = {kind: check for kind, check in self._checks().items() if kind in self._kinds}
        for run in self._runs(text):
            for span in self._numbers(run, checks):
                yield Span(len(text[: span.start].rstrip("+(")), span.end, span.kind)

    def _checks(self) -> Mapping[str, Callable[[str], bool]]:
        return {"card": _is_card, "national_id": self._is_national_id, "phone": self._is_phone}

    def _is_national_id(self, number: str) -> bool:
        plain = re.sub(r"[ .-]", "", number)
        pattern = _BY_LUHN.get(self._country)
        if pattern is not None:
            return pattern.fullmatch(plain) is not None and bool(luhn.is_valid(plain))
        return any(module.is_valid(text) for module in _modules(self._country) for text in {plain, number})

    def _is_phone(self, digits: str) -> bool:
        if not 7 <= len(digits) <= 17:
            return False
        readings = [(digits, self._country)] if self._country else []
        readings.append((f"+{digits.removeprefix('00')}", ""))
        return any(in_use(text, region or None) for text, region in readings)

    def _runs(self, text: str) -> Iterator[list[tuple[int, int, str]]]:
        """Yields runs of digits, each as first character, end and figures of its groups."""
        run: list[tuple[int, int, str]] = []
        end = 0
        words = self._lexicon
        for token in _TOKEN.finditer(text):
            word = folded(plain_words(token[0]))
            digits = spoken_digits(word, words)
            if not digits and word not in words.repeats and word not in words.again:
                if not (run and word in words.digit_glue | words.joins):
                    yield run
                    run = []
                continue
            if run and ("+" in text[end : token.start()] or token.start() - end > FURTHEST):
                yield run
                run = []
            run.append((token.start(), token.end(), token[0]))
            end = token.end()
        yield run

    def _numbers(
        self, run: Sequence[tuple[int, int, str]], checks: Mapping[str, Callable[[str], bool]]
    ) -> Iterator[Span]:
        """Yields the parts of a run of digits that pass a check, the longest from each place."""
        first = 0
        while first < len(run):
            for last in range(min(len(run), first + LONGEST), first, -1):
                part = run[first:last]
                words = plain_words(" ".join(text for _, _, text in part))
                digits = spoken_digits(words, self._lexicon)
                kind = next((kind for kind, check in checks.items() if check(digits)), "")
                if kind:
                    yield Span(part[0][0], part[-1][1], kind)
                    first = last - 1
                    break
            first += 1

    # Lines of a transcript, and the words in it ------------------------------------------------------------

    def silences(self, entries: Sequence[TranscriptEntry]) -> list[MutedSpan]:
        """Returns when what is found was said: the times of its words, or of the whole line where the engine
        gave no times."""
        silences = []
        for role in Role:
            theirs = [entry for entry in entries if entry.role is role]
            for entry, spans in zip(theirs, self.spans([entry.text for entry in theirs]), strict=True):
                if not spans:
                    continue
                marked = [entry.words[place] for place in self._marked_words(entry, spans)]
                if marked:
                    silences += [MutedSpan(role, word.start_ms, word.end_ms) for word in marked]
                else:
                    silences.append(MutedSpan(role, entry.start_ms, entry.end_ms))
        return silences

    def entries(self, entries: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
        """Returns the entries of a transcript with marks in their texts and their words."""
        redacted: dict[int, TranscriptEntry] = {}
        for role in Role:
            places = [place for place, entry in enumerate(entries) if entry.role is role]
            found = self.spans([entries[place].text for place in places])
            for place, spans in zip(places, found, strict=True):
                redacted[place] = self._redacted(entries[place], spans)
        return [redacted[place] for place in range(len(entries))]

    def _redacted(self, entry: TranscriptEntry, spans: Sequence[Span]) -> TranscriptEntry:
        if not spans:
            # A number may begin in what was heard and go on in what was not.
            return entry if not entry.unheard else replace(entry, unheard="")
        hidden = frozenset(self._marked_words(entry, spans))
        words = tuple(
            replace(word, text="[…]") if place in hidden else word for place, word in enumerate(entry.words)
        )
        return replace(entry, text=_marked(entry.text, spans), words=words if hidden else (), unheard="")

    def _marked_words(self, entry: TranscriptEntry, spans: Sequence[Span]) -> list[int]:
        """Returns the places of the words in `spans`; of words that are spelt otherwise than the text ("four
        one" for "41"), those that are found in them alone."""
        at, places = 0, []
        for place, word in enumerate(entry.words):
            start = entry.text.find(word.text, at)
            if start < 0:
                return self._marked_of_words([word.text for word in entry.words])
            at = start + len(word.text)
            if any(span.start < at and start < span.end for span in spans):
                places.append(place)
        return places

    def _marked_of_words(self, words: Sequence[str]) -> list[int]:
        found = self._found(" ".join(words))
        starts = [0, *accumulate(len(word) + 1 for word in words)]
        return [
            place
            for place in range(len(words))
            if any(span.start < starts[place + 1] - 1 and starts[place] < span.end for span in found)
        ]


def _marked(text: str, spans: Sequence[Span]) -> str:
    pieces, at = [], 0
    for span in sorted(spans):
        pieces += [text[at : span.start], f"[{span.kind}]" if span.kind else ""]
        at = span.end
    return "".join([*pieces, text[at:]]).strip() if spans else text


def _ibans(text: str) -> Iterator[Span]:
    """Yields every IBAN; words that follow one may look like a part of it."""
    for found in _IBAN.finditer(text):
        end = found.end()
        while end - found.start() >= 15:
            if iban.is_valid(text[found.start() : end]):
                yield Span(found.start(), found.start() + len(text[found.start() : end].rstrip(" -")), "iban")
                break
            end -= 1


@cache
def _modules(country: str) -> tuple[Any, ...]:
    return tuple(resolve_name(name) for name in NATIONAL_IDS.get(country, ()))


def _is_card(digits: str) -> bool:
    return 13 <= len(digits) <= 19 and digits[0] in "23456" and bool(luhn.is_valid(digits))
