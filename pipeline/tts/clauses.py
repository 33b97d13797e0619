"""Text for voices that make whole pieces only: the caller waits for the first one, so it is short."""

from __future__ import annotations

from typing import Final

from pipeline.text.sentences import clause_end, sentences, shortened

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
    end = clause_end(sentence, words=2)  # "Well," alone is over before the rest is ready
    first = len(sentence[:end].split()) or len(words)
    if opening_words and first > opening_words:
        first = opening_words
    return [part for part in (" ".join(words[:first]), " ".join(words[first:])) if part]
