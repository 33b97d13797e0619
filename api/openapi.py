"""The API's description: an OpenAPI 3.1 document made from the models, and a page made from that."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api import models

_REF = "#/components/schemas/{model}"

_MODELS: tuple[type[BaseModel], ...] = (
    models.OutboundRequest,
    models.OutboundResponse,
    models.CallReport,
    models.CallPage,
    models.HangupResponse,
    models.ErrorResponse,
    models.Readiness,
)

_ERRORS: Mapping[int, str] = {
    400: "The request is wrong",
    401: "No key, or an unknown one",
    403: "The key lacks the scope",
    404: "Nothing like it in the key's company",
    413: "The body is longer than 1 MiB",
    429: "Too many; see Retry-After",
    503: "Not now; see Retry-After",
}

_CALL_ID = {
    "name": "callTaskId",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}


@cache
def schemas() -> dict[str, Any]:
    """The components of every model."""
    _, top = models_json_schema([(model, "serialization") for model in _MODELS], ref_template=_REF)
    return dict(top["$defs"])


def document(public_url: str) -> dict[str, Any]:
    """The OpenAPI document of a server reached at `public_url`."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Voice agents", "version": version("openline-mediaserver")},
        "servers": [{"url": public_url}],
        "paths": _paths(),
        "components": {
            "schemas": schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def page(public_url: str) -> str:
    """The document as one page without scripts: every operation, then every schema."""
    described = document(public_url)
    rows = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
        + "".join(
            f"<li><code>{code}</code> {escape(answer['description'])}</li>"
            for code, answer in operation["responses"].items()
        )
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    ]
    shapes = [
        f"<h3>{escape(name)}</h3><p>{escape(schema.get('description', ''))}</p>{_fields(schema)}"
        for name, schema in described["components"]["schemas"].items()
    ]
    return _PAGE.format(title=escape(described["info"]["title"]), rows="".join(rows), shapes="".join(shapes))


def _fields(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    return "".join(
        f"<li><code>{escape(name)}</code>{'' if name in required else ' (optional)'} "
        f"{escape(field.get('description', ''))}</li>"
        for name, field in schema.get("properties", {}).items()
    )


def _paths() -> dict[str, Any]:
    calls = "/api/v1/calls"
    return {
        f"{calls}/outbound": {
            "post": _operation("Queues a call", "OutboundResponse", body="OutboundRequest"),
        },
        calls: {"get": _operation("Lists calls, newest first", "CallPage", parameters=_list_parameters())},
        f"{calls}/{{callTaskId}}": {
            "get": _operation("Tells everything about a call", "CallReport", parameters=[_CALL_ID]),
        },
        f"{calls}/{{callTaskId}}/hangup": {
            "post": _operation("Ends a call in whatever state", "HangupResponse", parameters=[_CALL_ID]),
        },
        f"{calls}/{{callTaskId}}/recording": {"get": _recording()},
        "/healthz": {"get": _open("The process lives")},
        "/readyz": {"get": _open("Calls can be taken; else 503 with what is missing")},
        "/metrics": {"get": _open("Figures for Prometheus")},
    }


def _operation(
    summary: str,
    answer: str,
    *,
    body: str | None = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "security": [{"key": []}],
        "responses": {"200": _json("Success", answer)} | _error_responses(),
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _json("", body)["content"]}
    if parameters:
        operation["parameters"] = parameters
    return operation


def _recording() -> dict[str, Any]:
    return {
        "summary": "The stereo recording: caller left, agent right",
        "security": [{"key": []}],
        "parameters": [_CALL_ID],
        "responses": {"200": {"description": "Success", "content": {"audio/wav": {}}}} | _error_responses(),
    }


def _list_parameters() -> list[dict[str, Any]]:
    text = {"type": "string"}
    return [{"name": name, "in": "query", "schema": text} for name in ("status", "cursor", "limit")]


def _open(summary: str) -> dict[str, Any]:
    return {"summary": summary, "security": [], "responses": {"200": {"description": "Success"}}}


def _error_responses() -> dict[str, Any]:
    return {str(status): _json(text, "ErrorResponse") for status, text in _ERRORS.items()}


def _json(description: str, model: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=model)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}}
code{{background:#eee;padding:.1em .3em}}h2{{margin-top:2em}}</style>
<h1>{title}</h1>
<p>Every request carries <code>Authorization: Bearer KEY</code> except health and metrics.
The machine-readable form of this page is <a href="/openapi.json">/openapi.json</a>.</p>
{rows}
<h2>Shapes</h2>
{shapes}
</html>
"""
