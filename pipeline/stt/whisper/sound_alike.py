"""Which of the expected answers sounds like what was understood: "limit" is "minute" where that is expected.

A recogniser that writes freely spells what it hears as it likes. Two texts are compared by the sounds of
their words, as pocketsphinx's dictionary has them (English only), and by their letters where it lacks one. A
text that holds an expected answer is left alone, and so is one that sounds like none, or like two. A number
is no other number, a day no other day, and nothing is the opposite of what was understood: "I can't come" is
not "I can come".
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from pipeline.stt.pocketsphinx import dictionary
from pipeline.text.fold import folded, plain_words
from pipeline.text.lexicon import lexicon
from pipeline.text.normalise import verbalize
from pipeline.text.spoken_numbers import in_figures

FAR: Final = 0.34
"""Of the sounds of the longer one, so many may differ."""

FAR_LETTERS: Final = 0.25

APART: Final = 0.45
"""So much farther must the next answer be, where 1 is the farthest."""

MOST_WORDS: Final = 8
"""A longer text is no answer that was misheard."""

_OPPOSING: Final = (
    "un", "dis", "de", "in", "im", "ir", "il", "non", "mis", "ex", "up", "down", "over", "under", "out",
)  # fmt: skip
"""What makes another meaning of a word where it stands before it ("unlock", "decrease")."""

_SIDES: Final = frozenset({
    "on", "off", "in", "out", "up", "down", "with", "without", "before", "after", "more", "less", "may",
})  # fmt: skip
"""One of them is never another; May is in no list of months because it is a verb too."""

_ALIKE: Final = tuple(
    frozenset(group.split())
    for group in (
        "P B", "T D", "K G", "F V TH DH", "S Z SH ZH", "CH JH SH ZH", "M N NG", "L R W Y", "F TH S",
        "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW",
    )
)  # fmt: skip
"""Sounds of which one is half an error for another."""

_ENGLISH: Final = lexicon("en")

_DENYING: Final = _ENGLISH.no | {
    "didnt", "doesnt", "havent", "hasnt", "hadnt", "wasnt", "werent", "arent", "aint", "couldnt",
    "wouldnt", "shouldnt", "nothing", "nobody", "none", "neither", "nor", "without",
}  # fmt: skip

_FIXED: Final = (
    _ENGLISH.date
    | _ENGLISH.time
    | _SIDES
    | frozenset(" ".join(_ENGLISH.ordinals.values()).split())
    | frozenset(_ENGLISH.tens)
    | frozenset(_ENGLISH.scales)
    | frozenset(_ENGLISH.units)
)

Phones = tuple[str, ...]


def sounding_like(text: str, phrases: Sequence[str], language: str, *, within: float = FAR) -> str:
    """The one of `phrases` (see `plain_words`) that `text` is, by its sound; "" for none. `within`: the share
    of the sounds that may differ; 0, only another spelling ("1 4 me" of "one for me", "12" of "twelfth")."""
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
    apart, nearest = ranked[0]
    if not clear or (apart and _contrary(text, nearest)):
        return ""
    same = not apart or (number and number == _number(nearest))
    return nearest if same or apart * FAR <= within else ""


def _holds(text: str, phrase: str, language: str) -> bool:
    words = lexicon(language)
    return f" {in_figures(folded(phrase), words)} " in f" {in_figures(folded(text), words)} "


def _contrary(text: str, phrase: str) -> bool:
    """Whether one denies what the other says, or names another day or number."""
    if _denies(text) is not _denies(phrase):
        return True
    if _number(text) and _number(text) == _number(phrase):
        return False
    words = lexicon("en")
    heard, wanted = (frozenset(in_figures(each, words).split()) for each in (text, phrase))
    here, there = heard - wanted, wanted - heard
    joined = text.replace(" ", "")
    if any(map(_fixed, (*here, joined))) and any(map(_fixed, there)):
        return True
    return any(_opposite(one, other) for one in here for other in there)


def _denies(text: str) -> bool:
    return any(word in _DENYING or word.endswith("n't") for word in text.split())


def _fixed(word: str) -> bool:
    """Whether `word` is a number or belongs to a date or a time, where the next best is another one."""
    return word.isdecimal() or word in _FIXED


def _opposite(one: str, other: str) -> bool:
    """Whether two words differ in what stands before the same word: "unlock" and "lock"."""
    for rest, stem in itertools.product(_stems(one), _stems(other)):
        if (rest, stem) != (one, other) and _distance(rest, stem) <= 1:
            return True
    return False


def _stems(word: str) -> list[str]:
    """`word` with its prefix and without it."""
    rests = [word.removeprefix(prefix) for prefix in _OPPOSING if word.startswith(prefix)]
    return [word, *(rest for rest in rests if len(rest) > 2)]


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
    for word in plain_words(verbalize(text, "en")).split():
        known = dictionary().pronunciations(word)
        if not known:
            return ()
        found += known[0][1].split()
    return tuple(found)


def _distance(text: str, phrase: str) -> float:
    """0: the same in another spelling; at most 1: near enough."""
    if text.replace(" ", "") == phrase.replace(" ", ""):
        return 0.0
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
