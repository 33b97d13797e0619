"""Builds the API's description, an OpenAPI 3.1 document, from routes and models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from types import UnionType
from typing import Any, get_args

from aiohttp import web
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from api.http.catalogue import TAGS, names_of
from api.http.operation import Operation, operation_of
from api.schemas.base import ErrorResponse
from api.schemas.events import DATA, ENVELOPES
from api.schemas.examples import EXAMPLES

_REF = "#/components/schemas/{model}"

_ERRORS: Mapping[int, str] = {
    400: "The request is wrong",
    401: "No key, or an unknown one",
    403: "The key may not do this",
    404: "Nothing like it in the key's company",
    409: "It is in a state in which this cannot be done",
    413: "The body is longer than is taken",
    422: "The request lacks what it must have",
    429: "Too many; see Retry-After",
    500: "This server was not set up for it, or failed",
    503: "Not now; see Retry-After",
}

_ALWAYS = (400, 401, 403, 413, 429, 503)
"""The error statuses of every operation that needs a key."""

_COMPANY = {
    "name": "company",
    "in": "query",
    "required": False,
    "description": "The company that the server's own admin key speaks for",
    "schema": {"type": "string"},
}

_OCTETS = {"type": "string", "format": "binary"}
"""The schema of audio for client generators: OpenAPI 3.1 itself has an empty schema, which generators read as
any type, text included."""

_HEADERS: Mapping[str, Any] = {
    "X-Request-Id": ("The request's own, or the server's where it had none", "string"),
    "RateLimit-Limit": ("Requests that the key may send at once", "integer"),
    "RateLimit-Remaining": ("Requests that the key may send now", "integer"),
    "RateLimit-Reset": ("Seconds until the key may send as many as at first", "integer"),
}
"""Headers of answers: description and type."""

# As text: client generators make wrong code of parameters of webhooks.
_SIGNED = (
    "Headers, by https://www.standardwebhooks.com: `webhook-id`, the same in every attempt;"
    " `webhook-timestamp`, seconds since 1970 of this attempt; `webhook-signature`, HMAC-SHA-256 by the"
    " webhook's secret."
)

Described = tuple[str, str, Operation]
"""Path, HTTP method and operation."""


def operations(app: web.Application) -> list[Described]:
    """Returns every route of `app` that has an `Operation`."""
    found: list[Described] = []
    for route in app.router.routes():
        operation = operation_of(route.handler)
        if operation is not None and route.resource is not None and route.method != "HEAD":
            path = re.sub(r"\{(\w+):[^/]*\}", r"{\1}", route.resource.canonical)
            found.append((path, route.method.lower(), operation))
    return found


def document(app: web.Application, public_url: str) -> dict[str, Any]:
    """Returns the OpenAPI document of `app`, reached at `public_url`."""
    found = operations(app)
    names, schemas = _schemas([operation for _, _, operation in found])
    paths: dict[str, Any] = {}
    for path, method, operation in found:
        paths.setdefault(path, {})[method] = _operation(method, path, operation, names)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Voice agents", "version": version("openline-mediaserver")},
        "servers": [{"url": public_url}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "webhooks": {kind: {"post": _webhook(kind, names)} for kind in DATA},
        "components": {
            "schemas": schemas,
            "headers": {
                name: {"description": text, "schema": {"type": kind}}
                for name, (text, kind) in _HEADERS.items()
            },
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


Names = Mapping[tuple[Any, JsonSchemaMode], dict[str, Any]]


def _schemas(found: list[Operation]) -> tuple[Names, dict[str, Any]]:
    """Returns a reference to every model of the bodies and answers, and the schemas of these models."""
    wanted: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {(ErrorResponse, "serialization"): None}
    for operation in found:
        if operation.body is not None:
            wanted[(operation.body, "validation")] = None
        for model in _models(operation.answer):
            wanted[(model, "serialization")] = None
    wanted |= {(model, "validation"): None for model in ENVELOPES.values()}
    names, top = models_json_schema(list(wanted), ref_template=_REF)
    return names, {name: _readable(schema) for name, schema in top["$defs"].items()}


def _readable(schema: Any) -> Any:
    """Returns a pydantic schema as clients read it. Secrets are answered masked, so `writeOnly` (which says
    that they are never answered) is dropped; so is a default of null, which TypeScript generators read as
    "always present"."""
    if isinstance(schema, dict):
        return {
            name: _readable(inner)
            for name, inner in schema.items()
            if name != "writeOnly" and (name, inner) != ("default", None)
        }
    return [_readable(inner) for inner in schema] if isinstance(schema, list) else schema


def _models(answer: type[BaseModel] | UnionType | None) -> tuple[type[BaseModel], ...]:
    if answer is None:
        return ()
    return get_args(answer) if isinstance(answer, UnionType) else (answer,)


def _operation(method: str, path: str, operation: Operation, names: Names) -> dict[str, Any]:
    name, tag = names_of(method, path)
    said: dict[str, Any] = {
        "operationId": name,
        "tags": [tag],
        "summary": operation.summary,
        "security": _security(operation),
        "responses": dict(_responses(operation, names)),
    }
    if operation.scopes:
        said["description"] = "Scope: " + " or ".join(scope.value for scope in operation.scopes)
    if operation.body is not None:
        shape = {"schema": names[(operation.body, "validation")]} | _example((operation.body,))
        said["requestBody"] = {
            "required": operation.body_required,
            "content": {operation.body_type: shape},
        }
    parameters = [*_path_parameters(path), *_query_parameters(operation), *_header_parameters(operation)]
    if parameters:
        said["parameters"] = parameters
    return said


def _security(operation: Operation) -> list[dict[str, Any]]:
    if operation.key_optional:
        return [{}, {"key": []}]
    return [{"key": []}] if operation.scopes else []


def _responses(operation: Operation, names: Names) -> Iterator[tuple[str, Any]]:
    content: dict[str, Any] = {
        media: {"schema": _OCTETS} if media.startswith("audio/") else {} for media in operation.media
    }
    models = _models(operation.answer)
    schemas = [names[(model, "serialization")] for model in models]
    if schemas:
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        kind = "text/event-stream" if operation.streams else "application/json"
        content[kind] = {"schema": schema} | _example(models)
    success: dict[str, Any] = {"description": "Success", "headers": _headers(operation)}
    yield str(operation.status), success | ({"content": content} if content else {})
    if operation.ranges:
        yield "206", success | {"content": content}
        yield "416", {"description": "The range lies outside", "content": _error_content(names)}
    errors = set(operation.errors) | set(_ALWAYS if operation.scopes else ())
    if operation.takes_company:
        errors.add(404)
    for status in sorted(errors):
        failed = {"description": _ERRORS[status], "content": _error_content(names)}
        yield str(status), failed | {"headers": _headers(operation)}


def _headers(operation: Operation) -> dict[str, Any]:
    names = list(_HEADERS) if operation.scopes else ["X-Request-Id"]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _example(models: tuple[type[BaseModel], ...]) -> dict[str, Any]:
    """Returns the example of a model, or those of several by name, as a media type has them."""
    known = {model.__name__: EXAMPLES[model] for model in models if model in EXAMPLES}
    if len(known) == 1:
        return {"example": next(iter(known.values()))}
    return {"examples": {name: {"value": value} for name, value in known.items()}} if known else {}


def _webhook(kind: str, names: Names) -> dict[str, Any]:
    """Returns an event as OpenAPI describes it: a request that the server sends."""
    model = ENVELOPES[kind]
    schema = names[(model, "validation")]
    return {
        "operationId": f"on{model.__name__.removesuffix('Event')}",
        "tags": ["Events"],
        "summary": DATA[kind][1],
        "description": _SIGNED,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema} | _example((model,))},
        },
        "responses": {"2XX": {"description": "Taken; anything else is sent again for a day"}},
    }


def _error_content(names: Names) -> dict[str, Any]:
    return {"application/json": {"schema": names[(ErrorResponse, "serialization")]}}


def _path_parameters(path: str) -> Iterator[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    if operation.takes_company:
        yield _COMPANY
    if operation.query is None:
        return
    schema = operation.query.model_json_schema()
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        yield {"name": name, "in": "query", "required": name in required, "schema": field}


def _header_parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    for name, text in operation.headers.items():
        schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"}
        yield {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
