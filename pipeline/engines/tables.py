"""Base classes and types for tables of settings, declared with pydantic once for the configuration file and
for the engine or agent, and their problems as pairs of key and reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from pipeline.errors import SettingsRefused

_ENV = "env:"

RESOLVED: Final[Mapping[str, Any]] = {"resolved": True}
"""The validation context of a table whose `env:` values are resolved already."""


class Table(BaseModel):
    """A table of the file: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=False,
        defer_build=True,  # a table in another is built with that one, others when first read
    )


class EngineTable(Table):
    """The options of an engine. A number is written as a number, a text as a text, a tuple as a list."""

    model_config = ConfigDict(strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _as_written(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[info.field_name or ""].annotation
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        is_tuple = isinstance(value, list) and any(get_origin(each) is tuple for each in kinds)
        return tuple(value) if is_tuple else value


AnyTable = TypeVar("AnyTable", bound=Table)


def resolve_env(value: Any, info: ValidationInfo) -> Any:
    """Replaces `"env:NAME"` by the value of that environment variable; gives other values, and all values in
    the context `RESOLVED`, as they are. Raises ValueError for a variable that is not set or empty."""
    context = info.context or {}
    if not isinstance(value, str) or not value.startswith(_ENV) or context is RESOLVED:
        return value
    name = value.removeprefix(_ENV)
    environment: Mapping[str, str] = context.get("environment", {})
    if name not in environment:
        raise ValueError(f"the environment variable {name} is not set")
    if not environment[name]:
        raise ValueError(f"the environment variable {name} is empty")
    return environment[name]


def reveal(secret: SecretStr | None) -> str:
    """Gives the text of a secret, "" for None; the only function that reveals one."""
    return secret.get_secret_value() if secret is not None else ""


def revealed(value: Any) -> Any:
    """Gives a copy of a dumped table in which every secret is plain text."""
    if isinstance(value, SecretStr):
        return reveal(value)
    if isinstance(value, Mapping):
        return {name: revealed(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [revealed(inner) for inner in value]
    return value


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL that begins with http:// or https://")
    if parts.username is not None:
        raise ValueError("must not carry a user name or password")
    if parts.port == 0:
        raise ValueError("the port must not be 0")
    return value.rstrip("/")


def _plain(value: Any, key: str) -> Any:
    """Gives `value` with JSON's types. Raises ValueError for TOML's dates and times."""
    if isinstance(value, datetime | date | time):
        raise ValueError(f"{key}: dates and times must be written as strings")
    if isinstance(value, Mapping):
        return {name: _plain(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, f"{key}[{place}]") for place, inner in enumerate(value)]
    return value


def _options(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, Mapping):
        return value
    plain: dict[str, Any] = {}
    for key, inner in value.items():
        try:
            plain[key] = _plain(resolve_env(inner, info), key)
        except ValueError as error:
            raise ValueError(f"{key}: {error}" if inner.__class__ is str else str(error)) from error
    return plain


_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_RESERVED = frozenset(
    {"accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding"}
)
"""Header fields that the server itself sets, such as those of message framing."""


def _header_name(value: str) -> str:
    if _HEADER.fullmatch(value) is None or value.lower() in _RESERVED:
        raise ValueError(f"{value!r} is not a header that can be set")
    return value


def _header_text(value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise ValueError("must be printable ASCII")
    return value


OWN_FIELDS: Final = frozenset(
    {"messages", "stream", "tools", "tool_choice", "model", "input", "voice", "file"}
)
"""Fields of requests to models that the server itself fills."""


def _extra_body(value: dict[str, Any]) -> dict[str, Any]:
    for name in sorted(OWN_FIELDS & value.keys()):
        raise ValueError(f"{name!r} is not for extra_body: the server fills it")
    return value


HeaderName = Annotated[str, AfterValidator(_header_name)]
HeaderText = Annotated[str, AfterValidator(_header_text)]
"""The value of a header field."""

HttpUrl = Annotated[str, AfterValidator(_http_url)]
Secret = Annotated[SecretStr, BeforeValidator(resolve_env)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
Options = Annotated[dict[str, Any], BeforeValidator(_options)]
"""A mapping that the engine checks itself; `env:` values in the mapping are resolved."""

ExtraBody = Annotated[dict[str, Any], BeforeValidator(_options), AfterValidator(_extra_body)]
"""Further fields of a request to a model."""

_NUMBERS: Final[Mapping[Any, str]] = {int: "a whole number", float: "a number"}

_PLAINLY: Final = {"string_type": "must be a string", "bool_type": "must be true or false"}
_REASONS = {
    "extra_forbidden": "unknown key",
    "missing": "missing",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "tuple_type": "must be a list",
}


def read_table(subject: str, table: type[AnyTable], settings: Mapping[str, Any]) -> AnyTable:
    """Validates the `settings` of an engine or an agent, with `env:` values resolved already, as `table`; the
    key that chose the engine may be among them. Raises `SettingsRefused` with every problem."""
    options = {name: value for name, value in settings.items() if name != "engine"}
    try:
        return table.model_validate(options, context=RESOLVED)
    except ValidationError as error:
        raise SettingsRefused(subject, [_refusal(table, detail) for detail in error.errors()]) from None


def _refusal(table: type[BaseModel], detail: ErrorDetails) -> tuple[str, str]:
    """Gives the problem with an engine's option, with the bounds of a number or the known options."""
    key, reason = problem_of(detail)
    if not issubclass(table, EngineTable):
        return key, reason
    fields = _table_at(table, detail["loc"][:-1]).model_fields
    field = fields.get(str(detail["loc"][-1]))
    if detail["type"] == "extra_forbidden":
        known = sorted(each.alias or name for name, each in fields.items())
        return key, f"unknown key; known are {', '.join(known)}"
    if detail["type"] == "literal_error" and field is not None:
        return key, f"{detail['input']!r} is not one of {detail['ctx']['expected']}"
    if field is not None and isinstance(field.annotation, type) and detail["type"] != "value_error":
        number = _NUMBERS.get(field.annotation)
        low = next((each.ge for each in field.metadata if hasattr(each, "ge")), None)
        high = next((each.le for each in field.metadata if hasattr(each, "le")), None)
        if number and low is not None and high is not None:
            return key, f"must be {number} from {low:g} to {high:g}"
    return key, _PLAINLY.get(detail["type"], reason)


def _table_at(table: type[BaseModel], location: Iterable[str | int]) -> type[BaseModel]:
    """Gives the table at `location` in `table`."""
    for name in location:
        if isinstance(name, str) and name in table.model_fields:
            table = next(_tables_in(table.model_fields[name].annotation), table)
    return table


def _tables_in(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for each in get_args(kind):
        yield from _tables_in(each)


def problem_of(detail: ErrorDetails) -> tuple[str, str]:
    """Gives the key path of an error and its reason. A validator of several keys puts the key and a colon
    before its text."""
    key = _key_path(detail["loc"])
    reason = _REASONS.get(detail["type"], detail["msg"])
    if detail["type"] == "value_error":
        reason = str(detail["ctx"]["error"])
        own, colon, rest = reason.partition(": ")
        if colon and own.replace("_", "").replace(".", "").isalnum() and own.islower():
            return f"{key}.{own}" if key else own, rest
    return key, reason[:1].lower() + reason[1:]


def _key_path(location: Iterable[str | int]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path
