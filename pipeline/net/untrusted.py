"""JSON and text that somebody else wrote (a model, a tool, an engine's server, a visitor), fit to be used.

Python's reader takes more than JSON: NaN and Infinity pass every comparison and end in timers; a half of a
surrogate pair is no text for a database or a socket (RFC 8259, 8.2), nor is NUL for PostgreSQL.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

MAX_CHARACTERS: Final = 1_000_000
MAX_DEPTH: Final = 64
"""Objects and lists inside one another."""
MAX_DIGITS: Final = 100
"""Of an integer; far beyond any identity, and still a number that arithmetic takes."""

_NESTING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[{\]}]', re.DOTALL)
_UNFIT: Final = re.compile("[\0\ud800-\udfff]")
_NOT_FINITE: Final = "a number that is not finite"
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class NotJson(ValueError):
    """The text is no JSON, or more than we take; the message says which, and nothing of the text."""


def read_json(text: str | bytes, *, longest: int = MAX_CHARACTERS, deepest: int = MAX_DEPTH) -> Any:
    """The value that `text` holds: every number finite, every string clean (see `clean_text`). Raises
    `NotJson`."""
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
    """As `read_json`, for a list of things of which one may be bad: what is unfit stands there as the
    `NotJson` that `cleaned` raises for whatever holds it, or null where it is nested too deep. Nothing of it
    is clean. Raises `NotJson` for what is no JSON at all."""
    if len(text) > MAX_CHARACTERS:
        raise NotJson("too long")
    try:
        return json.loads(
            shallow(text), parse_constant=_noted, parse_float=_part(_finite), parse_int=_part(_integer)
        )
    except ValueError:
        raise NotJson("not JSON") from None


def shallow(text: str, *, deepest: int = MAX_DEPTH) -> str:
    """JSON `text` with null in the place of what is nested deeper: for a list of things of which one may be
    bad."""
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
    """A value made of JSON's types, with every string in it clean, keys too. Raises `NotJson` where it is
    nested deeper, or one stands in it (see `read_parts`)."""
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
    """`text` as every store and socket takes it: U+FFFD in the place of NUL and of half a surrogate pair."""
    return _UNFIT.sub(_REPLACEMENT, text)


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
