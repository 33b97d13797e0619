"""The words of prompts that the server says by itself, where nobody configured others."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Phrase(StrEnum):
    """Which one; the names are those of `SessionSettings`."""

    FILLER = "filler"
    APOLOGY = "apology"
    GOODBYE = "goodbye"


STANDARD: Final[Mapping[str, Mapping[Phrase, str]]] = MappingProxyType(
    {
        "en": {
            Phrase.FILLER: "One moment, please.",
            Phrase.APOLOGY: "I am sorry, there is a technical problem. Please call again later.",
            Phrase.GOODBYE: "Goodbye.",
        },
        "ar": {
            Phrase.FILLER: "لحظة من فضلك.",
            Phrase.APOLOGY: "عذراً، حدثت مشكلة فنية. يرجى الاتصال بنا لاحقاً.",
            Phrase.GOODBYE: "مع السلامة.",
        },
    }
)
"""What is said where nobody configured anything, by language."""


def standard(phrase: Phrase, language: str) -> str:
    """`phrase` in `language` ("en-GB", "ar"), in English where there is none."""
    return STANDARD.get(language.lower().split("-")[0], STANDARD["en"])[phrase]
