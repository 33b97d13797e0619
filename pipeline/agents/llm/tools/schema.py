"""Checks arguments and answers against a JSON schema, without the ways in which schemas do harm.

A schema may come from a customer or from a tool's server: it fetches nothing, its patterns are matched in
linear time (Rust's `regex`, by way of pydantic), and checking a value ends after `MAX_STEPS` steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.exceptions import SchemaError, UndefinedTypeCheck, UnknownType, best_match
from jsonschema.validators import extend
from pydantic import StringConstraints, TypeAdapter
from pydantic import ValidationError as PatternMissed
from pydantic_core import SchemaError as PatternRefused
from referencing import Registry
from referencing.exceptions import CannotDetermineSpecification, Unresolvable

from pipeline.errors import kind_of
from pipeline.net.untrusted import NotJson, cleaned, read_json

MAX_SCHEMA: Final = 20_000  # characters
MAX_NODES: Final = 1_000
MAX_NESTING: Final = 48
MAX_PATTERN: Final = 200
MAX_STEPS: Final = 2_000
"""Rules checked for one value, a tenth of a second at most: references that double at every turn would go on
for ever."""

_FORMATS: Final = FormatChecker(("date", "email", "uuid", "ipv4"))

_Pattern = Callable[[str], bool]


class Misfit(ValueError):
    """A value does not fit; the message names the place and the rule, not the value."""


class _TooManySteps(Exception):
    pass


UNCHECKABLE: Final = (
    _TooManySteps,
    Unresolvable,  # a reference to nothing
    RecursionError,  # a reference to itself
    UnknownType,  # and the rest: a reference to what is no schema
    UndefinedTypeCheck,
    CannotDetermineSpecification,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    ArithmeticError,
)
"""What jsonschema raises where a schema that is valid in form cannot be applied."""


class Schema:
    """A JSON schema of an object, without further properties unless it allows them. Raises ValueError for a
    schema that is refused."""

    __slots__ = ("_steps", "_validator", "document")

    def __init__(self, document: Mapping[str, Any]) -> None:
        if not isinstance(document, Mapping):
            raise ValueError("must be the schema of an object")
        document = cleaned(document, deepest=MAX_NESTING)
        document = {"type": "object", "additionalProperties": False, **document}
        if document["type"] != "object":
            raise ValueError("must be the schema of an object")
        if len(json.dumps(document)) > MAX_SCHEMA or sum(1 for _ in _nodes(document)) > MAX_NODES:
            raise ValueError(f"must be no longer than {MAX_SCHEMA} characters and {MAX_NODES} parts")
        try:
            Draft202012Validator.check_schema(document)
        except SchemaError as error:
            raise ValueError(f"is not a JSON schema: {error.message[:200]}") from None
        except (RecursionError, ArithmeticError):
            raise ValueError("is not a JSON schema that can be checked") from None
        for reason in _dangers(document):
            raise ValueError(reason)
        self.document: Mapping[str, Any] = document
        self._steps = 0
        patterns = {text: _compiled(text) for text in _patterns(document)}
        rules = Draft202012Validator.VALIDATORS | {"pattern": _pattern_rule(patterns)}
        counted = {name: self._counted(name, rule) for name, rule in rules.items()}
        kind: type[Draft202012Validator] = extend(Draft202012Validator, counted)  # type: ignore[no-untyped-call]
        self._validator = kind(document, registry=Registry(), format_checker=_FORMATS)

    @property
    def properties(self) -> Mapping[str, Any]:
        """The schemas of the named properties."""
        found = self.document.get("properties", {})
        return found if isinstance(found, Mapping) else {}

    def read(self, text: str) -> dict[str, Any]:
        """Returns the object in the JSON `text`: numbers finite, strings clean. Raises `Misfit`."""
        try:
            value = read_json(text or "{}")
        except NotJson as reason:
            raise Misfit(f"not taken as JSON: {reason}") from None
        if value is None:  # some models write null where there are no arguments
            value = {}
        if not isinstance(value, dict):
            raise Misfit("not an object")
        self._steps = 0
        try:
            error = best_match(self._validator.iter_errors(value))
        except UNCHECKABLE as error:
            raise Misfit(f"cannot be checked ({kind_of(error)})") from None
        if error is not None:
            place = ".".join(str(part) for part in error.absolute_path)[:200] or "the object"
            raise Misfit(f"{place}: breaks the rule {error.validator!r} ({_rule(error.validator_value)})")
        return value

    def _counted(self, name: str, rule: Any) -> Any:
        def count(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
            compared = len(instance) ** 2 if name == "uniqueItems" and isinstance(instance, list) else 0
            self._steps += 1 + compared // 20
            if self._steps > MAX_STEPS:
                raise _TooManySteps
            return rule(validator, wanted, instance, schema)

        return count


def _rule(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:200]


def _nodes(node: object) -> Iterator[object]:
    """Yields every object and list of a schema, and every value in them."""
    yield node
    inner = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    for each in inner:
        yield from _nodes(each)


def _dangers(document: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a schema holds and may not hold."""
    for node in _nodes(document):
        if not isinstance(node, Mapping):
            continue
        for key in ("$ref", "$dynamicRef"):
            if isinstance(node.get(key), str) and not node[key].startswith("#"):
                yield f"{key}: only places of the schema itself may be referred to"
        if "patternProperties" in node:
            yield "patternProperties: not supported"


def _patterns(document: Mapping[str, Any]) -> Iterator[str]:
    for node in _nodes(document):
        if isinstance(node, Mapping) and isinstance(node.get("pattern"), str):
            yield node["pattern"]


def _compiled(pattern: str) -> _Pattern:
    """Compiles a pattern. Raises ValueError for one that cannot be matched in linear time (backreferences,
    lookaround)."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"pattern: at most {MAX_PATTERN} characters")
    try:
        adapter = TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except PatternRefused:
        raise ValueError("pattern: must be a regular expression without looking around or back") from None

    def fits(text: str) -> bool:
        try:
            adapter.validate_python(text)
        except PatternMissed:
            return False
        return True

    return fits


def _pattern_rule(patterns: Mapping[str, _Pattern]) -> Any:
    def rule(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
        if isinstance(instance, str) and not patterns[pattern](instance):
            yield ValidationError("does not match")

    return rule
