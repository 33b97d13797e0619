"""The one spelling that words have between recognisers, scripts and grammars."""

from __future__ import annotations

import re
import unicodedata

_KEEP = re.compile(r"[^\w\s']|_")
_MARKS = dict.fromkeys([0x0640, 0x0670, *range(0x064B, 0x0660)])
_LETTERS = str.maketrans("أإآٱىةؤئ", "اااايهوي")
_FIGURES = re.compile(r"(?<=\d),(?=\d{3}\b)")


def plain_words(text: str) -> str:
    """`text` as a recogniser would write it: lower case, single spaces, no punctuation but apostrophes.

    A thousands comma and the vowel signs of Arabic are dropped, other punctuation becomes a space ("3:30"
    is "3 30"), so that figures stay figures.
    """
    folded = unicodedata.normalize("NFKC", text).lower().replace("’", "'").translate(_MARKS)
    words = _KEEP.sub(" ", _FIGURES.sub("", folded)).split()
    return " ".join(word for word in (word.strip("'") for word in words) if word)


def folded(text: str) -> str:
    """`text` without what Arabic writers leave out or mix up: vowel signs, the lengthening stroke, the
    forms of hamza, ta marbuta and alif maqsura. For comparing, not for showing; other scripts stay as they
    are, and words stay apart as they were."""
    return text if text.isascii() else text.translate(_MARKS).translate(_LETTERS)
