"""Tells whether a dictated telephone number is whole, by the numbering plan of the caller's region."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import phonenumbers

from pipeline.text.word_lists import plain

_NUMBER: Final = frozenset(["number", "digits", "رقم"])
_TELEPHONE: Final = frozenset(
    [
        "phone",
        "telephone",
        "mobile",
        "cell",
        "callback",
        "reach",
        "contact",
        "call",
        "هاتفك",
        "جوالك",
        "الجوال",
        "الهاتف",
    ]
)
_OTHERS: Final = frozenset(["card", "order", "account", "reference", "pin"])
_REGIONS: Final = {"en": "US"}
"""The region of a language that names none."""

_SHORT: Final = (
    phonenumbers.ValidationResult.TOO_SHORT,
    phonenumbers.ValidationResult.IS_POSSIBLE_LOCAL_ONLY,
)
_PARSED: Final = 3  # digits of the shortest number that phonenumbers parses


@lru_cache(maxsize=256)
def asks_for_number(asked: str) -> bool:
    """Whether the last sentence of `asked` asks for a telephone number: "what's your phone number"."""
    words = set(plain(re.split(r"[.!?؟]\s", asked.strip())[-1]).split())
    return bool(words & _NUMBER and words & _TELEPHONE) and not words & _OTHERS


def is_whole(digits: str, language: str) -> bool | None:
    """Whether `digits` are a number by the plan of the region of `language` ("en-GB"), and no more digits
    would be one too; False for too few. None where the plan does not say, or is not known."""
    name, _, territory = language.partition("-")
    region = territory.upper() or _REGIONS.get(name, "")
    number = _parsed(digits, region)
    if number is None:
        return False if region in phonenumbers.SUPPORTED_REGIONS and len(digits) < _PARSED else None
    if phonenumbers.is_valid_number(number):
        return None if any(_is_valid(f"{digits}{more}", region) for more in range(10)) else True
    reason = phonenumbers.is_possible_number_with_reason(number)
    if territory and reason != phonenumbers.ValidationResult.TOO_LONG:
        return False  # some plans have short numbers too, of which this is none
    return False if reason in _SHORT else None


def _is_valid(digits: str, region: str) -> bool:
    number = _parsed(digits, region)
    return number is not None and phonenumbers.is_valid_number(number)


def _parsed(digits: str, region: str) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(digits, region or None)
    except phonenumbers.NumberParseException:
        return None
