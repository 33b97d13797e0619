"""The standard words of the server's own phrases, by language."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Phrase(StrEnum):
    """A phrase of the server's own; its value is the field's name in `SessionSettings`."""

    FILLER = "filler"
    RETRY = "retry"
    APOLOGY = "apology"
    GOODBYE = "goodbye"


STANDARD: Final[Mapping[str, Mapping[Phrase, str]]] = MappingProxyType(
    {
        "en": {
            Phrase.FILLER: "One moment, please.",
            Phrase.RETRY: "I am sorry, there was a problem. Could you say that again, please?",
            Phrase.APOLOGY: "I am sorry, there is a technical problem. Please call again later.",
            Phrase.GOODBYE: "Goodbye.",
        },
        "ar": {
            Phrase.FILLER: "لحظة من فضلك.",
            Phrase.RETRY: "عذراً، حدثت مشكلة. هل يمكنك إعادة ما قلته من فضلك؟",
            Phrase.APOLOGY: "عذراً، حدثت مشكلة فنية. يرجى الاتصال بنا لاحقاً.",
            Phrase.GOODBYE: "مع السلامة.",
        },
    }
)
"""The phrases for agents without phrases of their own, by language."""


def standard(phrase: Phrase, language: str) -> str:
    """Gives `phrase` in `language` ("en-GB", "ar"), in English for other languages."""
    return STANDARD.get(language.lower().split("-")[0], STANDARD["en"])[phrase]
