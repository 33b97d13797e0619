"""Leaves out words in a script that the voice of a language cannot read.

An English voice spells Arabic out letter by letter, or says nothing. Latin letters stay in every language:
names and brands are written in them, and voices of other scripts read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_SCRIPTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "arabic": r"\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
        "cyrillic": r"\u0400-\u052f",
        "greek": r"\u0370-\u03ff\u1f00-\u1fff",
        "hebrew": r"\u0590-\u05ff\ufb1d-\ufb4f",
        "indic": r"\u0900-\u0dff",
        "thai": r"\u0e00-\u0e7f",
        "georgian": r"\u10a0-\u10ff",
        "armenian": r"\u0530-\u058f",
        "east_asian": r"\u1100-\u11ff\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f",
    }
)
_LATIN: Final = (
    "en de fr es it pt nl sv da nb no fi is pl cs sk sl hr hu ro tr vi id ms sw tl ca eu gl lv lt et"
)
_OF: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(_LATIN.split(), "")
    | dict.fromkeys(("ar", "fa", "ur", "ps", "ckb"), "arabic")
    | dict.fromkeys(("ru", "uk", "bg", "mk", "be"), "cyrillic")
    | dict.fromkeys(("hi", "bn", "ta", "te", "mr", "gu", "kn", "ml", "pa", "ne", "si"), "indic")
    | dict.fromkeys(("zh", "ja", "ko", "yue"), "east_asian")
    | {"el": "greek", "he": "hebrew", "th": "thai", "ka": "georgian", "hy": "armenian"}
)


def _foreign(own: str) -> re.Pattern[str]:
    others = "".join(letters for name, letters in _SCRIPTS.items() if name != own)
    run = rf"[{others}][{others}\u200c-\u200f]*"
    return re.compile(rf"[(\[\"“«]?{run}(?:[\s\-،؛,]+{run})*[.!?؟،؛]*[)\]\"”»]?")


_FOREIGN: Final = {own: _foreign(own) for own in ("", *_SCRIPTS)}
_LOOSE: Final = re.compile(r"\s+(?=[.,;:!?])|([,;:])\s*(?=[.,;:!?])|[(\[]\s*[)\]]")


def readable(text: str, language: str) -> str:
    """`text` without the words that are not in the script of `language` ("en", "ar-SA"), and not in Latin
    letters; unchanged for a language whose script is not known."""
    own = _OF.get(language.lower().replace("_", "-").split("-")[0])
    if own is None or text.isascii():
        return text
    left = _FOREIGN[own].sub(" ", text)
    if left == text:
        return text
    left = " ".join(_LOOSE.sub("", left).split()).lstrip(" ,;:")
    return left if any(character.isalnum() for character in left) else ""
