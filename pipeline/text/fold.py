"""Normalises words to one spelling for recognisers, scripts and grammars."""

from __future__ import annotations

import re
import unicodedata

_KEEP = re.compile(r"[^\w\s']|_")
_MARKS = dict.fromkeys([0x0640, 0x0670, *range(0x064B, 0x0660)])
_LETTERS = str.maketrans("أإآٱىةؤئ", "اااايهوي")
_FIGURES = re.compile(r"(?<=\d),(?=\d{3}\b)")


def plain_words(text: str) -> str:
    """Gives `text` in the form of a recogniser: lower case, single spaces, no punctuation but apostrophes.

    Thousands commas and the vowel signs of Arabic are removed; other punctuation becomes a space, so that
    "3:30" is "3 30".
    """
    folded = unicodedata.normalize("NFKC", text).lower().replace("’", "'").translate(_MARKS)
    words = _KEEP.sub(" ", _FIGURES.sub("", folded)).split()
    return " ".join(word for word in (word.strip("'") for word in words) if word)


def folded(text: str) -> str:
    """Gives `text` for comparison, without the differences of Arabic spelling: vowel signs, tatweel, the
    forms of hamza, ta marbuta and alif maqsura. Other scripts and spaces are unchanged."""
    return text if text.isascii() else text.translate(_MARKS).translate(_LETTERS)
