"""Splits text for voices that synthesise whole pieces only; the caller waits for the first piece, which is
therefore short."""

from __future__ import annotations

from typing import Final

from pipeline.text.sentences import clause_end, sentences, shortened

_ALONE_WORDS: Final = 4
"""Most words of a text that is not split, since all of it takes no longer than its first clause."""


def pieces(text: str, *, longest: int, opening_words: int = 0) -> list[str]:
    """Splits `text` into pieces of at most `longest` characters: the first clause, then sentences, long ones
    split at a clause or a space. `opening_words`: most words of the first piece; 0: no limit."""
    found: list[str] = []
    for sentence in sentences(text):
        found += [sentence] if found else _opened(sentence, opening_words)
    return [short for piece in found for short in shortened(piece, longest)]


def _opened(sentence: str, opening_words: int) -> list[str]:
    words = sentence.split()
    if len(words) <= max(_ALONE_WORDS, 2 * opening_words):
        return [sentence]
    end = clause_end(sentence, words=2)  # "Well," alone ends before the rest is ready
    first = len(sentence[:end].split()) or len(words)
    if opening_words and first > opening_words:
        first = opening_words
    return [part for part in (" ".join(words[:first]), " ".join(words[first:])) if part]
