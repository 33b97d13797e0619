"""Arguments and answers that must fit a JSON schema, without the ways in which schemas do harm.

A schema may come from a customer or from a tool's server: it fetches nothing, and its patterns cannot take
for ever over a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_SCHEMA: Final = 20_000  # characters
PATTERN_LIMIT: Final = 200
REPEATS_LIMIT: Final = 4
_FORMATS: Final = FormatChecker(("date", "email", "uuid", "ipv4"))
_REPEATS: Final = re.compile(r"[*+{]")
_NESTED: Final = re.compile(r"\)[*+?{]|\(\?(?!:)|\\[1-9]")


class Misfit(ValueError):
    """A value does not fit; the message names the place and the rule, not the value."""


class Schema:
    """A schema of an object. Raises ValueError with what is wrong with it. Unless it says otherwise, it
    allows no properties beyond its own."""

    __slots__ = ("_validator", "document")

    def __init__(self, document: Mapping[str, Any]) -> None:
        document = {"type": "object", "additionalProperties": False, **document}
        if document["type"] != "object":
            raise ValueError("must be the schema of an object")
        if len(json.dumps(document)) > MAX_SCHEMA:
            raise ValueError(f"must be no longer than {MAX_SCHEMA} characters")
        try:
            Draft202012Validator.check_schema(document)
        except SchemaError as error:
            raise ValueError(f"is not a JSON schema: {error.message[:200]}") from None
        for reason in _dangers(document):
            raise ValueError(reason)
        self.document: Mapping[str, Any] = document
        self._validator = Draft202012Validator(document, registry=Registry(), format_checker=_FORMATS)

    @property
    def properties(self) -> Mapping[str, Any]:
        """The properties that it names."""
        found = self.document.get("properties", {})
        return found if isinstance(found, Mapping) else {}

    def read(self, text: str) -> dict[str, Any]:
        """The object that the JSON `text` holds. Raises `Misfit`."""
        try:
            value = json.loads(text or "{}")
        except (ValueError, RecursionError):
            raise Misfit("not JSON") from None
        if not isinstance(value, dict):
            raise Misfit("not an object")
        try:
            error = best_match(self._validator.iter_errors(value))
        except (Unresolvable, RecursionError):
            raise Misfit("cannot be checked") from None
        if error is not None:
            place = ".".join(str(part) for part in error.absolute_path) or "the object"
            raise Misfit(f"{place}: breaks the rule {error.validator!r} ({_rule(error.validator_value)})")
        return value


def _rule(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:200]


def _dangers(node: object) -> Iterator[str]:
    """What a schema may not hold."""
    if isinstance(node, Mapping):
        for key, inner in node.items():
            if key in ("$ref", "$dynamicRef") and isinstance(inner, str) and not inner.startswith("#"):
                yield f"{key}: only places of the schema itself may be referred to"
            if key == "pattern" and isinstance(inner, str) and not _harmless(inner):
                yield (
                    f"pattern: at most {PATTERN_LIMIT} characters, {REPEATS_LIMIT} repeats, and no group"
                    " repeated"
                )
            if key == "patternProperties":
                yield "patternProperties: not supported"
            yield from _dangers(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _dangers(inner)


def _harmless(pattern: str) -> bool:
    simple = len(pattern) <= PATTERN_LIMIT and len(_REPEATS.findall(pattern)) <= REPEATS_LIMIT
    return simple and _NESTED.search(pattern) is None
