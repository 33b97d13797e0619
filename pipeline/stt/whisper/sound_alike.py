"""Finds the expected answer that sounds like a recognised text: "limit" is "minute" where that is expected.

Texts are compared by the phones of their words in pocketsphinx's dictionary (English only), or by letters
where a word is not in the dictionary. A text that contains an expected answer is kept, and so is a text that
sounds like none or like two. A number is never taken for another number, a day for another day, or a text for
its opposite: "I can't come" is not "I can come".
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
"""Largest share of the longer text's phones that may differ."""

FAR_LETTERS: Final = 0.25

APART: Final = 0.45
"""Least distance between the best and the second answer, where 1 is the largest distance of an answer."""

MOST_WORDS: Final = 8
"""Most words of a text that may be a misheard answer."""

_OPPOSING: Final = (
    "un", "dis", "de", "in", "im", "ir", "il", "non", "mis", "ex", "up", "down", "over", "under", "out",
)  # fmt: skip
"""Prefixes that change the meaning of a word ("unlock", "decrease")."""

_SIDES: Final = frozenset({
    "on", "off", "in", "out", "up", "down", "with", "without", "before", "after", "more", "less", "may",
})  # fmt: skip
"""Words that are never taken for each other; "may" is not in the lexicon's months, as it is a verb too."""

_ALIKE: Final = tuple(
    frozenset(group.split())
    for group in (
        "P B", "T D", "K G", "F V TH DH", "S Z SH ZH", "CH JH SH ZH", "M N NG", "L R W Y", "F TH S",
        "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW",
    )
)  # fmt: skip
"""Groups of phones; a phone of the same group counts as half an error."""

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
    """Gives the one of `phrases` (in the form of `plain_words`) that sounds like `text`; "" for none.
    `within`: largest share of phones that may differ; 0: only another spelling ("1 4 me" of "one for me")."""
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
    """Whether one text denies the other, or names another day or number."""
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
    """Whether `word` is a number or a word of a date or a time, which must not be replaced by another."""
    return word.isdecimal() or word in _FIXED


def _opposite(one: str, other: str) -> bool:
    """Whether two words differ by a prefix: "unlock" and "lock"."""
    for rest, stem in itertools.product(_stems(one), _stems(other)):
        if (rest, stem) != (one, other) and _distance(rest, stem) <= 1:
            return True
    return False


def _stems(word: str) -> list[str]:
    """`word` with its prefix and without it."""
    rests = [word.removeprefix(prefix) for prefix in _OPPOSING if word.startswith(prefix)]
    return [word, *(rest for rest in rests if len(rest) > 2)]


def _number(text: str) -> str:
    """The figures of a cardinal or ordinal number; "" for other texts."""
    words = lexicon("en")
    ordinals = {said: written[:-2] for written, said in words.ordinals.items()}
    figures = ordinals.get(words.ordinals.get(text, text)) or in_figures(text, words)
    return figures if figures.isdecimal() else ""


@lru_cache(maxsize=2048)
def phones_of(text: str) -> Phones:
    """Gives the phones of all words of `text` in order; () if a word is not in the dictionary."""
    found: list[str] = []
    for word in plain_words(verbalize(text, "en")).split():
        known = dictionary().pronunciations(word)
        if not known:
            return ()
        found += known[0][1].split()
    return tuple(found)


def _distance(text: str, phrase: str) -> float:
    """The distance of two texts: 0 for another spelling, at most 1 for a possible answer."""
    if text.replace(" ", "") == phrase.replace(" ", ""):
        return 0.0
    heard, wanted = phones_of(text), phones_of(phrase)
    if heard and wanted:
        return _changed(heard, wanted) / FAR
    return _changed(text.replace(" ", ""), phrase.replace(" ", "")) / FAR_LETTERS


def _changed(one: Sequence[str], other: Sequence[str]) -> float:
    """The edit distance relative to the longer sequence, 0 to 1."""
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
