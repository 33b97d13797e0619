"""Converts spoken digits and numbers to figures: "double five oh", "four hundred and five", "خمسة وعشرون".

Words are looked up in the form of `pipeline.text.fold.folded`. Dictation is ambiguous where a digit follows
hundreds: "four hundred five" is 405, but "one eight hundred five five five" goes on digit by digit, so a
single digit belongs to the hundreds only if no other digit follows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import NamedTuple, TypeAlias

from pipeline.text.fold import folded
from pipeline.text.lexicon import Lexicon


class _Kind(Enum):
    FIGURES = auto()  # written as figures
    UNIT = auto()  # 0 to 9
    TEEN = auto()  # 10 to 19
    TEN = auto()  # 20 to 90
    HUNDREDS = auto()  # a single word for hundreds ("ثلاثمئة")
    SCALE = auto()  # a hundred, a thousand: multiplies
    JOIN = auto()
    TIMES = auto()  # "double"
    AGAIN = auto()  # "twice", after the digit
    OTHER = auto()


class _Atom(NamedTuple):
    kind: _Kind
    value: int
    text: str


_DIGIT_LIKE = frozenset((_Kind.FIGURES, _Kind.UNIT, _Kind.TEEN, _Kind.TEN, _Kind.HUNDREDS))
_Read: TypeAlias = Callable[[int], tuple[str, int]]
_END = _Atom(_Kind.OTHER, 0, "")


def spoken_digits(text: str, lexicon: Lexicon) -> str:
    """Gives all digits in `text` (in the form of `plain_words`), in order, as figures."""
    return "".join(piece for piece, _ in _Reader(text, lexicon).pieces())


def first_number(text: str, lexicon: Lexicon) -> str:
    """Gives the first number in `text`, in figures, below 10**9; "" for none."""
    reader = _Reader(text, lexicon)
    for place, atom in enumerate(reader.atoms):
        if atom.kind in _DIGIT_LIKE or atom.kind is _Kind.SCALE:
            return reader.number(place)
    return ""


def in_figures(text: str, lexicon: Lexicon) -> str:
    """Gives `text` (in the form of `plain_words`) for comparison, with numbers in one spelling: "three
    thirty", "3 30" and "330" are the same, and so are "23rd" and "twenty third"."""
    spelt = " ".join(lexicon.ordinals.get(word, word) for word in text.split())
    written: list[str] = []
    for word, is_number in _Reader(spelt, lexicon).words():
        if is_number and written and written[-1].isdecimal():
            written[-1] += word
        else:
            written.append(word)
    return " ".join(written)


def gathered(text: str, lexicon: Lexicon, *, before: str = "", wanted: int = 0) -> str:
    """Adds the digits in `text` to those known `before` and gives the result; "" where `text` has no usable
    digits.

    "no, nine six" replaces the last two digits by 96. A whole answer of `wanted` digits replaces all digits.
    A single digit among words that belong to no dictation ("one moment") does not count.
    """
    known, fresh = before, ""
    for corrects, words in _stretches(text, lexicon):
        digits = spoken_digits(words, lexicon)
        if corrects and digits and len(digits) <= len(known):
            known = known[: len(known) - len(digits)] + digits
        else:
            known += digits
        fresh += digits
    if not fresh or (len(fresh) == 1 and _idle(text, lexicon)):
        return ""
    if wanted and len(known) > wanted:
        return fresh if len(fresh) == wanted else ""
    return known


def keyed_onto(known: str, keys: str, wanted: int = 0) -> str:
    """Adds `keys` to the digits `known` and gives the result; "" for keys that are no digits, or more digits
    than `wanted`. `wanted` keys at once replace all digits."""
    if not keys.isdecimal():
        return ""
    together = keys if not wanted or len(keys) == wanted else known + keys
    return together if not wanted or len(together) <= wanted else ""


def _stretches(text: str, lexicon: Lexicon) -> Iterator[tuple[bool, str]]:
    """Splits `text` at words of correction; each piece with whether it is one."""
    corrects, piece = False, list[str]()
    for word in text.split():
        if folded(word) in lexicon.corrections:
            if piece:
                yield corrects, " ".join(piece)
            corrects, piece = True, []
        else:
            piece.append(word)
    if piece:
        yield corrects, " ".join(piece)


def _idle(text: str, lexicon: Lexicon) -> bool:
    known = lexicon.digit_glue | lexicon.corrections
    return any(
        atom.kind is _Kind.OTHER and folded(atom.text) not in known for atom in _Reader(text, lexicon).atoms
    )


class _Reader:
    """Reads numbers from the atoms of one answer."""

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self._lexicon = lexicon
        self.atoms = [atom for word in text.split() for atom in self._atoms(word)]

    def pieces(self) -> Iterator[tuple[str, int]]:
        """All groups of digits, each with the place after it."""
        place, times = 0, 1
        while place < len(self.atoms):
            atom = self.atoms[place]
            if atom.kind is _Kind.TIMES:
                place, times = place + 1, atom.value
                continue
            if atom.kind not in _DIGIT_LIKE and atom.kind is not _Kind.SCALE:
                place, times = place + 1, 1
                continue
            figures, place = self._group(place)
            if not figures:  # a scale such as a million alone, which is no dictation
                place += 1
            after = self._at(place)
            if after.kind is _Kind.AGAIN:
                times, place = after.value, place + 1
            yield figures * times, place
            times = 1

    def words(self) -> Iterator[tuple[str, bool]]:
        """All words, numbers in figures, each with whether it is a number."""
        place = 0
        while place < len(self.atoms):
            figures, after = self._group(place) if self._at(place).kind in _DIGIT_LIKE else ("", place)
            yield (figures, True) if figures else (self._at(place).text, False)
            place = after if figures else place + 1

    def number(self, place: int) -> str:
        """The value of the number that begins at `place`."""
        total = 0
        while True:
            figures, place = self._below_thousand(place, dictated=False)
            scale = self._at(place)
            if scale.kind is not _Kind.SCALE or scale.value < 1000:
                return str(total + int(figures or 0))
            total += int(figures or 1) * scale.value
            place += 1 + (self._at(place + 1).kind is _Kind.JOIN)
            if self._at(place).kind not in _DIGIT_LIKE:
                return str(total)

    def _group(self, place: int) -> tuple[str, int]:
        figures, place = self._below_thousand(place, dictated=True)
        scale = self._at(place)
        if scale.kind is _Kind.SCALE and scale.value == 1000 and len(figures) <= 3:
            value, place = int(figures or 1) * 1000, place + 1
            rest, after = self._tail(place, self._below_thousand)
            return str(value + int(rest or 0)), after
        return figures, place

    def _below_thousand(self, place: int, dictated: bool = True) -> tuple[str, int]:
        atom = self._at(place)
        if atom.kind is _Kind.HUNDREDS or (atom.kind is _Kind.SCALE and atom.value == 100):
            value, place = atom.value, place + 1
        else:
            figures, place = self._below_hundred(place)
            scale = self._at(place)
            if scale.kind is not _Kind.SCALE or scale.value != 100 or len(figures) > 2:
                return figures, place
            value, place = int(figures or 1) * 100, place + 1
        rest, after = self._tail(place, self._below_hundred, dictated=dictated)
        return str(value + int(rest or 0)), after

    def _tail(self, place: int, read: _Read, *, dictated: bool = True) -> tuple[str, int]:
        """The figures that belong to the hundreds or thousands before `place`, and the place after them."""
        joined = self._at(place).kind is _Kind.JOIN
        first = self._at(place + joined)
        if first.kind not in _DIGIT_LIKE or (first.kind is _Kind.FIGURES and dictated):
            return "", place
        rest, after = read(place + joined)
        alone = self._at(after).kind not in _DIGIT_LIKE
        if dictated and not joined and len(rest) == 1 and (not alone or rest == "0"):
            return "", place
        return rest, after

    def _below_hundred(self, place: int) -> tuple[str, int]:
        atom, after = self._at(place), self._at(place + 1)
        if atom.kind is _Kind.FIGURES:
            return atom.text, place + 1
        if atom.kind is _Kind.TEN and after.kind is _Kind.UNIT and after.value:
            return str(atom.value + after.value), place + 2
        if atom.kind is _Kind.UNIT and after.text in self._lexicon.teen_marks:
            return str(10 + atom.value), place + 2
        if atom.kind is _Kind.UNIT and after.kind is _Kind.JOIN:
            ten = self._at(place + 2)
            if ten.kind is _Kind.TEN and self._lexicon.units_first:
                return str(ten.value + atom.value), place + 3
        return (str(atom.value), place + 1) if atom.kind in _DIGIT_LIKE else ("", place)

    def _at(self, place: int) -> _Atom:
        return self.atoms[place] if place < len(self.atoms) else _END

    def _atoms(self, word: str) -> list[_Atom]:
        plain = folded(word)
        atom = self._atom(plain)
        prefix = self._lexicon.joining_prefix
        if atom.kind is _Kind.OTHER and prefix and plain.startswith(prefix):
            rest = self._atom(plain[len(prefix) :])
            if rest.kind is not _Kind.OTHER:
                return [_Atom(_Kind.JOIN, 0, prefix), rest]
        return [atom]

    def _atom(self, word: str) -> _Atom:
        if word.isdecimal():
            figures = "".join(str(unicodedata.decimal(letter)) for letter in word)
            return _Atom(_Kind.FIGURES, int(figures[:18]), figures)
        kind, value = self._meaning(word)
        return _Atom(kind, value, word)

    def _meaning(self, word: str) -> tuple[_Kind, int]:
        words = self._lexicon
        if word in words.units:
            value = words.units[word]
            return (_Kind.UNIT if value < 10 else _Kind.TEEN), value
        for kind, values in (
            (_Kind.TEN, words.tens),
            (_Kind.HUNDREDS, words.hundreds),
            (_Kind.SCALE, words.scales),
            (_Kind.TIMES, words.repeats),
            (_Kind.AGAIN, words.again),
        ):
            if word in values:
                return kind, values[word]
        return (_Kind.JOIN if word in words.joins else _Kind.OTHER), 0
