"""The one spelling that words have between recognisers, scripts and grammars."""

from __future__ import annotations

import re
import unicodedata

_KEEP = re.compile(r"[^\w\s']|_")
_FIGURES = re.compile(r"(?<=\d),(?=\d{3}\b)")


def plain_words(text: str) -> str:
    """`text` as a recogniser would write it: lower case, single spaces, no punctuation but apostrophes.

    A thousands comma is dropped, other punctuation becomes a space ("3:30" is "3 30"), so that figures
    stay figures.
    """
    folded = unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    words = _KEEP.sub(" ", _FIGURES.sub("", folded)).split()
    return " ".join(word for word in (word.strip("'") for word in words) if word)
