"""Which of the expected answers sounds like what was understood: "limit" is "minute" where that is expected.

A recogniser that writes freely spells what it hears as it likes. Two texts are compared by the sounds of
their words, as pocketsphinx's dictionary has them (English only), and by their letters where it lacks one. A
text that holds an expected answer is left alone, and so is one that sounds like none, or like two, and a
number is no other number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from pipeline.engines.pocketsphinx import dictionary
from pipeline.engines.script_digits import in_figures
from pipeline.engines.script_lexicon import lexicon
from pipeline.engines.wording import folded, plain_words
from pipeline.speakable import speakable

FAR: Final = 0.34
"""Of the sounds of the longer one, so many may differ."""

FAR_LETTERS: Final = 0.25

APART: Final = 0.45
"""So much farther must the next answer be, where 1 is the farthest."""

MOST_WORDS: Final = 8
"""A longer text is no answer that was misheard."""

_ALIKE: Final = tuple(
    frozenset(group.split())
    for group in (
        "P B", "T D", "K G", "F V TH DH", "S Z SH ZH", "CH JH SH ZH", "M N NG", "L R W Y", "F TH S",
        "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW",
    )
)  # fmt: skip
"""Sounds of which one is half an error for another."""

Phones = tuple[str, ...]


def sounding_like(text: str, phrases: Sequence[str], language: str) -> str:
    """The one of `phrases` (see `plain_words`) that `text` is, by its sound; "" for none."""
    words = text.split()
    if not words or len(words) > MOST_WORDS or language.lower().partition("-")[0] != "en":
        return ""
    if any(_holds(text, phrase, language) for phrase in phrases):
        return ""
    number = _number(text)
    known = [phrase for phrase in phrases if not number or _number(phrase) in ("", number)]
    ranked = sorted((_distance(text, phrase), phrase) for phrase in known)
    if not ranked or ranked[0][0] > 1:
        return ""
    clear = len(ranked) == 1 or ranked[1][0] - ranked[0][0] >= APART
    return ranked[0][1] if clear else ""


def _holds(text: str, phrase: str, language: str) -> bool:
    words = lexicon(language)
    return f" {in_figures(folded(phrase), words)} " in f" {in_figures(folded(text), words)} "


def _number(text: str) -> str:
    """The figures of a number, counting or ordinal; "" for anything else. Fifty is never fifteen."""
    words = lexicon("en")
    ordinals = {said: written[:-2] for written, said in words.ordinals.items()}
    figures = ordinals.get(words.ordinals.get(text, text)) or in_figures(text, words)
    return figures if figures.isdecimal() else ""


@lru_cache(maxsize=2048)
def phones_of(text: str) -> Phones:
    """The sounds of `text` in a row; () where a word has none."""
    found: list[str] = []
    for word in plain_words(speakable(text, "en")).split():
        known = dictionary().pronunciations(word)
        if not known:
            return ()
        found += known[0][1].split()
    return tuple(found)


def _distance(text: str, phrase: str) -> float:
    """At most 1: near enough."""
    heard, wanted = phones_of(text), phones_of(phrase)
    if heard and wanted:
        return _changed(heard, wanted) / FAR
    return _changed(text.replace(" ", ""), phrase.replace(" ", "")) / FAR_LETTERS


def _changed(one: Sequence[str], other: Sequence[str]) -> float:
    """Between 0 and 1: what must be changed, for each sound of the longer."""
    row = [float(place) for place in range(len(other) + 1)]
    for first, sound in enumerate(one, 1):
        diagonal, row[0] = row[0], float(first)
        for second, rival in enumerate(other, 1):
            changed = diagonal + _error(sound, rival)
            diagonal = row[second]
            row[second] = min(changed, diagonal + 1, row[second - 1] + 1)
    return row[-1] / max(len(one), len(other), 1)


def _error(one: str, other: str) -> float:
    if one == other:
        return 0.0
    return 0.5 if any(one in group and other in group for group in _ALIKE) else 1.0
