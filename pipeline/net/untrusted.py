"""Reads and cleans JSON and text from third parties (a model, a tool, an engine's server, a visitor).

Python's `json` accepts more than JSON: NaN and Infinity, which pass comparisons and reach timers. It also
accepts half a surrogate pair, which databases and sockets refuse (RFC 8259, 8.2), and NUL, which PostgreSQL
refuses.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

MAX_CHARACTERS: Final = 1_000_000
MAX_DEPTH: Final = 64
"""Most levels of nested objects and lists."""
MAX_DIGITS: Final = 100
"""Most digits of an integer: more than any identifier has, and few enough for arithmetic."""

_NESTING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[{\]}]', re.DOTALL)
_UNFIT: Final = re.compile("[\0\ud800-\udfff]")
_NOT_FINITE: Final = "a number that is not finite"
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class NotJson(ValueError):
    """The text is no JSON or beyond a limit; the message names which, and contains no part of the text."""


def read_json(text: str | bytes, *, longest: int = MAX_CHARACTERS, deepest: int = MAX_DEPTH) -> Any:
    """Parses `text`: gives its value with finite numbers and clean strings (`clean_text`). `longest`: most
    characters or bytes; `deepest`: most levels. Raises `NotJson`."""
    if len(text) > longest:
        raise NotJson("too long")
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
        return cleaned(value, deepest=deepest)
    except NotJson:
        raise
    except RecursionError:
        raise NotJson("nested too deep") from None
    except ValueError:
        raise NotJson("not JSON") from None


def read_parts(text: str) -> Any:
    """Parses `text` whose parts may be invalid one by one. An invalid number becomes a `NotJson` object,
    which `cleaned` raises for the part that has the number; values nested too deep become null. Strings are
    not cleaned. Raises `NotJson` for a text that is no JSON at all."""
    if len(text) > MAX_CHARACTERS:
        raise NotJson("too long")
    try:
        return json.loads(
            shallow(text), parse_constant=_noted, parse_float=_part(_finite), parse_int=_part(_integer)
        )
    except ValueError:
        raise NotJson("not JSON") from None


def shallow(text: str, *, deepest: int = MAX_DEPTH) -> str:
    """Replaces values of JSON `text` that are nested deeper than `deepest` by null."""
    kept: list[str] = []
    depth = begin = 0
    for match in _NESTING.finditer(text):
        if match[0] in "[{":
            depth += 1
            if depth == deepest + 1:
                kept += (text[begin : match.start()], "null")
        elif match[0] in "]}":
            if depth == deepest + 1:
                begin = match.end()
            depth -= 1
    return "".join((*kept, text[begin:] if depth <= deepest else ""))


def cleaned(value: Any, *, deepest: int = MAX_DEPTH) -> Any:
    """Gives a copy of a JSON value with clean strings and keys. Raises `NotJson` for a value nested deeper
    than `deepest`, and one from `read_parts` that the value contains."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, NotJson):
        raise value
    if not isinstance(value, Mapping | Sequence):
        return value
    if deepest <= 0:
        raise NotJson("nested too deep")
    if isinstance(value, Mapping):
        return {
            clean_text(name) if isinstance(name, str) else name: cleaned(inner, deepest=deepest - 1)
            for name, inner in value.items()
        }
    return [cleaned(inner, deepest=deepest - 1) for inner in value]


def clean_text(text: str) -> str:
    """Replaces NUL and halves of surrogate pairs in `text` by U+FFFD, so that databases and sockets accept
    it."""
    fits = text.isascii() and "\0" not in text
    return text if fits else _UNFIT.sub(_REPLACEMENT, text)


def _refuse(_: str) -> NoReturn:
    raise NotJson(_NOT_FINITE)


def _noted(_: str) -> NotJson:
    return NotJson(_NOT_FINITE)


def _part(read: Callable[[str], float]) -> Callable[[str], float | NotJson]:
    def noted(digits: str) -> float | NotJson:
        try:
            return read(digits)
        except NotJson as reason:
            return reason

    return noted


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotJson(_NOT_FINITE)
    return number


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise NotJson("a number that is too long")
    return int(digits)
