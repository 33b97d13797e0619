"""Patterns of called numbers: a number, a range, numbers that begin alike, an extension, or any.

| text | matches |
|---|---|
| `+14155550101` | that number, however the carrier writes it |
| `+14155550100-+14155550199`, `+14155550100-99` | the numbers of the range |
| `+1415555*`, `+1415555????` | numbers that begin so; with four more digits |
| `1001`, `front-desk`, `10*`, `10??`, `1000-1099` | extensions: what was dialled, as it was written |
| `*` | whatever was dialled |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from mediaserver.errors import InvalidNumber
from mediaserver.numbers.e164 import normalise

EXACT: Final = 1000
"""The closeness of a number itself; patterns are less close, the more so the less they fix."""

_RANGE = re.compile(r"(\+?)([0-9]{2,15})-\+?([0-9]{1,15})")
_WILD = re.compile(r"\+?[0-9]{0,15}[0-9?]{0,15}\*?|[A-Za-z0-9._-]{1,64}\*?")
_EXTENSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SYMBOLS: Mapping[str, str] = {"*": ".*", "?": "[0-9]"}


@dataclass(frozen=True, slots=True)
class NumberPattern:
    """One pattern. `text`: as it is written, a number in E.164; `closeness`: how much it fixes."""

    text: str
    closeness: int
    first: str = ""
    last: str = ""

    @property
    def exact(self) -> bool:
        """Whether only one number matches."""
        return self.closeness == EXACT

    def matches(self, called: str, number: str) -> bool:
        """Whether the pattern matches what was `called`, or its `number` in E.164 where the pattern is one
        of such numbers."""
        candidate = number if self.text.startswith("+") else called
        if self.first:
            return len(candidate) == len(self.first) and self.first <= candidate <= self.last
        return _compiled(self.text).fullmatch(candidate) is not None


@lru_cache(maxsize=4096)
def parse_number_pattern(text: str) -> NumberPattern:
    """Parses a pattern. Raises ValueError."""
    if text == "*":
        return NumberPattern(text, 1)
    if (found := _RANGE.fullmatch(text)) is not None:
        return _range(text, *found.groups())
    if "*" not in text and "?" not in text:
        return NumberPattern(_number(text), EXACT)
    if _WILD.fullmatch(text) is None:
        raise ValueError('must be a number, a range "+14155550100-99", "+1415555*", an extension or "*"')
    fixed = len(text) - text.count("*") - text.count("?")
    return NumberPattern(text, 2 * fixed + (2 if "*" in text else 3))


def _range(text: str, plus: str, first: str, end: str) -> NumberPattern:
    last = first[: len(first) - len(end)] + end
    if len(last) != len(first) or last < first:
        raise ValueError(f"{text}: a range has numbers of one length that rise")
    fixed = len(plus + first) - len(str(int(last) - int(first)))
    return NumberPattern(text, 2 * fixed + 3, plus + first, plus + last)


def _number(text: str) -> str:
    if text.startswith("+"):
        try:
            return normalise(text)
        except InvalidNumber as error:
            raise ValueError("not a telephone number") from error
    if _EXTENSION.fullmatch(text) is None:
        raise ValueError("an extension has letters, digits, dots, dashes and underscores")
    return text


@lru_cache(maxsize=4096)
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile("".join(_SYMBOLS.get(each, re.escape(each)) for each in text), re.DOTALL)
