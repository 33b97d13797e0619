"""Builds the API's description: an OpenAPI 3.1 document from routes and models, and an HTML page from it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib.metadata import version
from types import UnionType
from typing import Any, get_args

from aiohttp import web
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from api.http.operation import Operation, operation_of
from api.schemas.base import ErrorResponse

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
        paths.setdefault(path, {})[method] = _operation(path, operation, names)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Voice agents", "version": version("openline-mediaserver")},
        "servers": [{"url": public_url}],
        "paths": paths,
        "components": {
            "schemas": schemas,
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


def _operation(path: str, operation: Operation, names: Names) -> dict[str, Any]:
    said: dict[str, Any] = {
        "summary": operation.summary,
        "security": _security(operation),
        "responses": dict(_responses(operation, names)),
    }
    if operation.scopes:
        said["description"] = "Scope: " + " or ".join(scope.value for scope in operation.scopes)
    if operation.body is not None:
        schema = names[(operation.body, "validation")]
        said["requestBody"] = {
            "required": operation.body_required,
            "content": {operation.body_type: {"schema": schema}},
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
    schemas = [names[(model, "serialization")] for model in _models(operation.answer)]
    if schemas:
        content["application/json"] = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    success: dict[str, Any] = {"description": "Success"}
    yield str(operation.status), success | ({"content": content} if content else {})
    if operation.ranges:
        yield "206", success | {"content": content}
        yield "416", {"description": "The range lies outside", "content": _error_content(names)}
    errors = set(operation.errors) | set(_ALWAYS if operation.scopes else ())
    if operation.takes_company:
        errors.add(404)
    for status in sorted(errors):
        yield str(status), {"description": _ERRORS[status], "content": _error_content(names)}


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


# The page --------------------------------------------------------------------------------------------------


def page(described: Mapping[str, Any]) -> str:
    """Returns the document as one HTML page without scripts: every operation, then every schema."""
    rows = [
        _row(path, method, operation)
        for path, said in described["paths"].items()
        for method, operation in said.items()
    ]
    shapes = [
        f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p>'
        f"<ul>{_fields(schema)}</ul>"
        for name, schema in described["components"]["schemas"].items()
    ]
    return _PAGE.format(title=escape(described["info"]["title"]), rows="".join(rows), shapes="".join(shapes))


def _row(path: str, method: str, operation: Mapping[str, Any]) -> str:
    takes = "".join(
        f"<li><code>{escape(each['name'])}</code> in {each['in']} {escape(each.get('description', ''))}</li>"
        for each in operation.get("parameters", ())
    )
    body = _links(operation.get("requestBody", {}).get("content", {}))
    answers = "".join(
        f"<li><code>{code}</code> {escape(said['description'])} {_links(said.get('content', {}))}</li>"
        for code, said in operation["responses"].items()
    )
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}. "
        f"{escape(operation.get('description', ''))}</p>"
        f"<p>{'Takes ' + body if body else ''}</p><ul>{takes}</ul><ul>{answers}</ul>"
    )


def _links(content: Mapping[str, Any]) -> str:
    schema = content.get("application/json", {}).get("schema", {})
    references = [each["$ref"] for each in schema.get("anyOf", [schema]) if "$ref" in each]
    names = [reference.rpartition("/")[2] for reference in references]
    return " or ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names)


def _fields(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    return "".join(
        f"<li><code>{escape(name)}</code>{'' if name in required else ' (optional)'} "
        f"{escape(field.get('description', ''))}</li>"
        for name, field in schema.get("properties", {}).items()
    )


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}}
code{{background:#eee;padding:.1em .3em}}h2{{margin-top:2em}}</style>
<h1>{title}</h1>
<p>Requests carry <code>Authorization: Bearer KEY</code>. Errors are <code>{{"error": "..."}}</code>. The
machine-readable form of this page is <a href="/openapi.json">/openapi.json</a>.</p>
{rows}
<h2>Shapes</h2>
{shapes}
</html>
"""
