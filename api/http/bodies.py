"""Parses request bodies and queries into models; serialises models into answers."""

from __future__ import annotations

import json
import re
from datetime import datetime
from types import NoneType
from typing import Any, TypeVar, get_args

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_snake

from api.http.operation import operation_of
from mediaserver.errors import InvalidRequest
from mediaserver.queue.outbox import iso
from mediaserver.settings import problem_of

AnyModel = TypeVar("AnyModel", bound=BaseModel)

NOT_AN_OBJECT = "Request body must be a JSON object"
NOT_JSON = "Content-Type must be application/json"

_JSON = re.compile(r"application/(json|[\w.+-]+\+json)", re.ASCII)


async def json_object(request: web.Request, *, optional: bool = False) -> dict[str, Any]:
    """Returns the body as a JSON object; with `optional`, {} for an empty body, whose Content-Type may be
    absent. Raises `InvalidRequest`."""
    if not optional:
        _check_json(request)
    content = await request.read()
    if optional and not content.strip():
        return {}
    if "Content-Type" in request.headers:
        _check_json(request)
    try:
        body = json.loads(content, parse_constant=_not_json)
        # A text with half of a surrogate pair is not UTF-8 and cannot be stored.
        json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise InvalidRequest(NOT_AN_OBJECT) from None
    if not isinstance(body, dict):
        raise InvalidRequest(NOT_AN_OBJECT)
    if b"\\u0000" in content and _has_nul(body):
        raise InvalidRequest("Request body must not contain NUL characters")
    return body


def _check_json(request: web.Request) -> None:
    """Checks that Content-Type says JSON (RFC 8259, RFC 6839). Parameters are ignored: JSON is UTF-8. Raises
    `InvalidRequest`."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if _JSON.fullmatch(kind) is None:
        raise InvalidRequest(NOT_JSON)


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any("\0" in name or _has_nul(inner) for name, inner in value.items())
    if isinstance(value, list):
        return any(_has_nul(inner) for inner in value)
    return isinstance(value, str) and "\0" in value


def checked(model: type[AnyModel], body: Any, *, context: Any = None) -> AnyModel:
    """Validates `body` as a model. Raises `InvalidRequest` naming the first wrong field."""
    try:
        return model.model_validate(body, context=context)
    except ValidationError as error:
        raise InvalidRequest(complaint(error)) from None


def complaint(error: ValidationError) -> str:
    """Returns the first validation error as "field: reason"."""
    detail = error.errors(include_url=False, include_input=False)[0]
    detail["loc"] = tuple(part for part in detail["loc"] if part not in _UNION_TAGS)
    key, reason = problem_of(detail)
    return f"{key}: {_REASONS.get(detail['type'], reason)}" if key else reason


def query_of(request: web.Request, model: type[AnyModel]) -> AnyModel:
    """Validates the query as a model, without `?company=` where the operation reads it. Raises
    `InvalidRequest`."""
    operation = operation_of(request.match_info.handler)
    values = dict(request.query)
    if operation is not None and operation.takes_company:
        values.pop("company", None)
    if any("\0" in value for value in values.values()):
        raise InvalidRequest("Query must not contain NUL characters")
    try:
        return model.model_validate_strings(values)
    except ValidationError as error:
        raise InvalidRequest(complaint(error)) from None


def iso_time(at_ms: int) -> str | None:
    """Returns milliseconds since 1970 as ISO 8601 in UTC; None for 0 ("not yet")."""
    return iso(at_ms) if at_ms else None


def view_of(model: type[AnyModel], row: object, **told: Any) -> AnyModel:
    """Returns `row` as the API shows it: a field of `model` that is not `told` is the row's own of that name
    in snake case, a time the one with `_ms` behind it; where there may be null, it stands for "" and 0."""
    own = {name: field for name, field in model.model_fields.items() if name not in told}
    shown = {name: _shown(row, to_snake(name), field.annotation) for name, field in own.items()}
    return model.model_validate({**shown, **told})


def _shown(row: object, name: str, annotation: Any) -> Any:
    value = getattr(row, name) if hasattr(row, name) else iso_time(getattr(row, f"{name}_ms"))
    return None if value in ("", 0) and NoneType in get_args(annotation) else value


def moment(name: str, text: str) -> int:
    """Parses an ISO 8601 time with zone as milliseconds since 1970, 0 for "". Raises `InvalidRequest`."""
    if not text:
        return 0
    try:
        at = datetime.fromisoformat(text)
        at_ms = int(at.timestamp() * 1000) if at.tzinfo is not None else -1
    except (ValueError, OverflowError):
        at_ms = -1
    if not 0 < at_ms < 2**52:
        raise InvalidRequest(f'{name}: must be a time such as "2026-01-31T12:00:00Z"')
    return at_ms


def answer(body: BaseModel, *, status: int = 200, omit_none: bool = False) -> web.Response:
    """Serialises a model as a JSON response; with `omit_none` without the fields that are None."""
    text = body.model_dump_json(by_alias=True, exclude_none=omit_none)
    return web.Response(text=text, status=status, content_type="application/json")


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_REASONS = {
    "extra_forbidden": "unknown field",
    "missing": "required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
}

_UNION_TAGS = frozenset({"str", "int", "float", "bool"})
"""Pydantic appends the tried branch of a union to the location; no field of the API has these names."""
