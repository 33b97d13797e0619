"""Converts text to phoneme letters, with the place of each written word among them.

espeak-ng drops punctuation and counts words differently ("of the" is one, "2026" four), while a model needs
the punctuation and the transcript the words. This module therefore splits the text into clauses and maps the
written words to espeak-ng's phonemes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import accumulate

MARKS = ".!?;:,…"
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Letters:
    """Phoneme letters of a text. `text`: letters and punctuation, clause by clause. `words`: for each written
    word, the index of its first character in the written text and of its first letter in `text`."""

    text: str
    words: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Clause:
    words: list[tuple[int, str]]
    mark: str


def letters_of(written: str, sounds: Callable[[str], str]) -> Letters:
    """Converts `written` to letters. `sounds`: gives the letters of words without punctuation, with spaces
    between spoken words."""
    text, words = "", list[tuple[int, int]]()
    for clause in _clauses(written):
        spoken = sounds(" ".join(word for _, word in clause.words))
        text += " " if text else ""
        begins = _begins([word for _, word in clause.words], spoken, sounds)
        words += [(place, len(text) + at) for (place, _), at in zip(clause.words, begins, strict=True)]
        text += spoken + clause.mark
    return Letters(text, tuple(words))


def _clauses(written: str) -> Iterator[_Clause]:
    words: list[tuple[int, str]] = []
    for match in _WORD.finditer(written):
        word = match.group()
        bare = word.rstrip(MARKS + "\"')]»”’")
        ending = next((letter for letter in word[len(bare) :] if letter in MARKS), "")
        words.append((match.start(), bare.lstrip("\"'([«“‘")))
        if ending:
            yield _Clause(words, ending.replace("…", "."))
            words = []
    if words:
        yield _Clause(words, "")


def _begins(words: list[str], spoken: str, sounds: Callable[[str], str]) -> list[int]:
    """The index in `spoken` at which each of `words` begins. Where the numbers of words differ, the letters
    of each word alone are searched for in `spoken`."""
    starts = [match.start() for match in _WORD.finditer(spoken)]
    if len(starts) == len(words):
        return starts
    alone = [sounds(word).replace(" ", "") for word in words]
    places = [place for place, letter in enumerate(spoken) if letter != " "]
    blocks = SequenceMatcher(None, "".join(alone), spoken.replace(" ", ""), autojunk=False)
    found = _mapped(list(accumulate(map(len, alone), initial=0))[:-1], blocks.get_matching_blocks())
    return [places[at] if at < len(places) else len(spoken) for at in found]


def _mapped(places: list[int], blocks: list[Match]) -> list[int]:
    """Maps `places` of one string to the other by their matching blocks: inside a block, or to the next."""
    return [
        next(
            block.b + max(0, place - block.a)
            for block in blocks
            if not block.size or place < block.a + block.size
        )
        for place in places
    ]
