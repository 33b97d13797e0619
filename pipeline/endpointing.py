"""How long a silence must be before it is the caller's full stop: a policy, without a clock of its own.

One fixed delay is wrong twice: too long after "yes", too short after "my number is" or between the groups
of a dictated number (people pause 0.4 to 1 s there). What was asked and the words so far tell most of these
apart at no cost; a model of turn-taking could stand behind the same method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pipeline.settings import SessionSettings
from pipeline.speech import Expected


@dataclass(frozen=True, slots=True)
class _Language:
    """`digits`: word to digit; `homophones`: more of them, which are digits only where digits are expected.
    `dangling`: last words after which more comes. `openers`: beginnings of an answer that are not one yet."""

    digits: Mapping[str, str]
    homophones: Mapping[str, str]
    dangling: frozenset[str]
    openers: tuple[str, ...]
    yes_no: frozenset[str]


def _numbered(words: str) -> Mapping[str, str]:
    """Digit words in the order 0 to 9; spellings of one digit are joined by "/"."""
    return MappingProxyType(
        {word: str(digit) for digit, spellings in enumerate(words.split()) for word in spellings.split("/")}
    )


def _set(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


_ENGLISH: Final = _Language(
    digits=_numbered("zero/oh/nought one two three four five six seven eight nine"),
    homophones=MappingProxyType({"o": "0", "to": "2", "too": "2", "for": "4"}),
    dangling=_set(
        "a an the and or but so because if of to for from in on at with by my your his her our their its",
        "is are was were will would can could i we that which um uh er erm hmm like about double triple",
    ),
    openers=(
        "my number is", "my name is", "it is", "it's", "let me see", "let me think", "hold on", "wait",
        "one moment", "just a second", "i think", "i would like", "i want", "yes but", "no but", "well",
    ),
    yes_no=_set("yes yeah yep yup sure correct right no nope okay ok"),
)  # fmt: skip
_ARABIC: Final = _Language(
    digits=_numbered(
        "صفر واحد/واحدة اثنان/اثنين/اتنين ثلاثة/تلاتة/ثلاث اربعة/أربعة/اربع "
        "خمسة/خمس ستة/ست سبعة/سبع ثمانية/تمانية/ثمان تسعة/تسع"
    ),
    homophones=MappingProxyType({}),
    dangling=_set(
        "و او أو ثم لكن بس لان لأن اذا إذا من في على الى إلى عن مع ان أن",
        "انا أنا هو هي يعني اه آه امم هذا هذه الذي التي",
    ),
    openers=(
        "رقمي", "رقمي هو", "اسمي", "اسمي هو", "انا اسمي", "لحظة", "دقيقة", "انتظر", "اريد", "أريد",
        "نعم لكن", "لا لكن",
    ),
    yes_no=_set("نعم ايوه أيوه اي أجل لا كلا طيب صحيح تمام"),
)  # fmt: skip
_LANGUAGES: Final[Mapping[str, _Language]] = MappingProxyType({"en": _ENGLISH, "ar": _ARABIC})
_NO_DIGITS: Final[Mapping[str, str]] = MappingProxyType({})
_NONE: Final = _Language(_NO_DIGITS, _NO_DIGITS, dangling=frozenset(), openers=(), yes_no=frozenset())


class Endpointing:
    """The delays of one conversation in one language (`ar`, `en`, also as `en-GB`; others get the base delay
    unless the answer is complete or made of figures)."""

    __slots__ = ("_language", "_settings")

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self._language = _LANGUAGES.get(settings.language.replace("_", "-").split("-")[0].lower(), _NONE)

    @property
    def base_ms(self) -> int:
        """The delay before anything is known about the words."""
        return self._settings.endpoint_ms

    def delay_ms(self, text: str, expected: Expected | None) -> int:
        """Silence after the caller's last voiced sample that ends the turn, given the words so far."""
        settings = self._settings
        words = text.split()
        if not words:
            return settings.endpoint_ms
        awaited = self._awaits_digits(expected)
        digits = self._digits(words, self._language.homophones if awaited else _NO_DIGITS)
        if expected is not None and self._complete(text, digits, expected):
            return settings.endpoint_complete_ms
        if digits and (awaited or len(digits) > 1):
            return max(settings.endpoint_ms, settings.endpoint_digits_ms)
        if words[-1] in self._language.dangling or text in self._language.openers:
            return max(settings.endpoint_ms, settings.endpoint_unfinished_ms)
        return settings.endpoint_ms

    def _complete(self, text: str, digits: str, expected: Expected) -> bool:
        if expected.digits:
            return len(digits) >= expected.digits
        if text in expected.phrases:
            # Not while another answer goes on from it: "monday" may become "monday morning".
            return not any(phrase.startswith(text + " ") for phrase in expected.phrases)
        return "yes_no" in expected.kinds and text in self._language.yes_no

    @staticmethod
    def _awaits_digits(expected: Expected | None) -> bool:
        return expected is not None and (
            expected.digits > 0 or bool({"digits", "number"} & set(expected.kinds))
        )

    def _digits(self, words: list[str], homophones: Mapping[str, str]) -> str:
        """The digits that end the text: "it is five five" gives "55", "one moment" gives ""."""
        digits = ""
        for word in reversed(words):
            figure = word if word.isdecimal() else self._language.digits.get(word) or homophones.get(word)
            if not figure:
                break
            digits = figure + digits
        return digits
