"""Text for voices that make whole pieces only: the caller waits for the first one, so it is short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pipeline.tts.espeak_text import sentences

_CLAUSE: Final = re.compile(r"(?<=[,;:،])\s+")

_ALONE_WORDS: Final = 4
"""A text of so few words is not cut: all of it is ready as soon as its first clause would be."""


def pieces(text: str, *, longest: int, opening_words: int = 0) -> list[str]:
    """`text` in pieces of at most `longest` characters: the first clause by itself, then sentences, long ones
    cut at a clause or a space. `opening_words`: the first piece has no more words than that; 0: it ends at
    its comma only."""
    found: list[str] = []
    for sentence in sentences(text):
        found += [sentence] if found else _opened(sentence, opening_words)
    return [short for piece in found for short in shortened(piece, longest)]


def _opened(sentence: str, opening_words: int) -> list[str]:
    words = sentence.split()
    if len(words) <= max(_ALONE_WORDS, 2 * opening_words):
        return [sentence]
    clauses = _CLAUSE.split(sentence)
    first = len(clauses[0].split())
    if first < 2 and len(clauses) > 1:  # "Well," alone is over before the rest is ready
        first += len(clauses[1].split())
    if opening_words and not 2 <= first <= opening_words:
        first = opening_words
    return [part for part in (" ".join(words[:first]), " ".join(words[first:])) if part]


def shortened(piece: str, longest: int) -> Iterator[str]:
    """`piece` in parts of at most `longest` characters, cut at a clause, else at a space, else anywhere."""
    rest = piece
    while len(rest) > longest:
        head = rest[:longest]
        cut = max(head.rfind(mark) + 1 for mark in (", ", "; ", ": ")) or head.rfind(" ")
        cut = cut if cut > 0 else longest
        yield rest[:cut].strip()
        rest = rest[cut:].strip()
    if rest:
        yield rest
