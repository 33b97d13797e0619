"""Converts espeak-ng's IPA of English to the phoneme letters of Kokoro.

The table is that of misaki (`EspeakFallback` of misaki 0.9.4, Apache-2.0), which made the phonemes of the
model's training data."""

from __future__ import annotations

import re
from typing import Final

_LETTERS: Final = {
    "ʔˌn\u0329": "ʔn", "ʔn\u0329": "ʔn", "a^ɪ": "I", "a^ʊ": "W", "d^ʒ": "ʤ", "e^ɪ": "A", "e": "A", "t^ʃ": "ʧ",
    "ɔ^ɪ": "Y", "ə^l": "ᵊl", "ʲo": "jo", "ʲə": "jə", "ʲ": "", "ɚ": "əɹ", "r": "ɹ", "x": "k", "ç": "k",
    "ɐ": "ə", "ɬ": "l", "\u0303": "",
}  # fmt: skip
_AMERICAN: Final = {"o^ʊ": "O", "ɜːɹ": "ɜɹ", "ɜː": "ɜɹ", "ɪə": "iə", "ː": ""}
_BRITISH: Final = {"e^ə": "ɛː", "iə": "ɪə", "ə^ʊ": "Q"}
_LAST: Final = {"o": "ɔ", "ɾ": "T", "ʔ": "t", "^": ""}

_SYLLABIC: Final = re.compile("(\\S)\u0329")


def kokoro_letters(ipa: str, *, british: bool) -> str:
    """Converts `ipa`, in which "^" joins the letters of one sound, to Kokoro's letters; `british`: with the
    British table."""
    for old in sorted(_LETTERS, key=len, reverse=True):
        ipa = ipa.replace(old, _LETTERS[old])
    ipa = _SYLLABIC.sub(r"ᵊ\1", ipa).replace("\u0329", "")
    for table in (_BRITISH if british else _AMERICAN, _LAST):
        for old, new in table.items():
            ipa = ipa.replace(old, new)
    return ipa
