"""Tools that are HTTP endpoints: a request made of configuration and of the model's arguments.

Method, host, headers and fixed fields are the configuration's. The model's arguments fit the tool's schema
and go into the places of the path that name them, percent-encoded, or into the query (GET, DELETE) or the
JSON body.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from pipeline.agents.llm.table import LlmTool
from pipeline.agents.llm.tools.tool import ToolFailed, ToolSpec
from pipeline.engines.tables import revealed
from pipeline.errors import EngineError
from pipeline.net.http import HttpAnswer, HttpClient
from pipeline.net.trace_context import request_fields
from pipeline.text.templates import fill

IN_QUERY: Final = frozenset(("GET", "DELETE"))

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_APART: Final = re.compile(r"[/\\;%?#\0]")
_SCALARS: Final = frozenset(("string", "integer", "number", "boolean"))


def metadata_values(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of `{{metadata.name}}` in `fixed`: each field of the call's metadata, as text."""
    return {f"metadata.{name}": _text(value) for name, value in metadata.items()}


def url_problems(url: str, spec: ToolSpec) -> list[str]:
    """Returns the problems of a URL template for `spec`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        return ["must be a URL that begins with http:// or https://, without a user name"]
    if "{" in f"{parts.scheme}{parts.netloc}{parts.query}{parts.fragment}":
        return ["arguments may stand in the path only"]
    problems = []
    required = spec.schema.document.get("required", ())
    for name in _PLACE.findall(parts.path):
        schema = spec.schema.properties.get(name)
        if not isinstance(schema, Mapping) or schema.get("type") not in _SCALARS:
            problems.append(f"{{{name}}} is no parameter with a type of its own")
        elif name not in required:
            problems.append(f"{{{name}}} stands in the path and is not required")
    return problems


class HttpTool:
    """A `Tool` of `pipeline.agents.llm.tools.tool` that sends one HTTP request for each call. Its `fixed`
    fields, which the call's variables (`"{{customer_id}}"`) and its metadata (`"{{metadata.order}}"`) fill,
    go where the arguments go, and no argument may have their name."""

    def __init__(self, spec: ToolSpec, settings: LlmTool, web: HttpClient) -> None:
        self.spec = spec
        self._settings = settings
        self._web = web

    async def call(self, arguments: Mapping[str, Any], variables: Mapping[str, str], *, key: str = "") -> str:
        """Sends the request, with `key` as its `Idempotency-Key`; returns the body of a 2xx answer. Raises
        `ToolFailed`."""
        settings = self._settings
        url, rest = self._url(arguments)
        rest |= {name: fill(text, variables) for name, text in settings.fixed.items()}
        headers = {"Accept": "application/json", **request_fields(key), **revealed(settings.headers)}
        body = None
        if settings.method in IN_QUERY:
            query = urlencode({name: _text(value) for name, value in rest.items()})
            url = f"{url}{'&' if urlsplit(url).query else '?'}{query}" if query else url
        else:
            body = json.dumps(rest, ensure_ascii=False).encode()
            headers["Content-Type"] = "application/json"
        try:
            answer = await self._web.request(
                settings.method, url, headers=headers, body=body, timeout_s=self.spec.timeout_s
            )
        except EngineError as error:
            raise ToolFailed(str(error)) from error
        return _result(answer)

    def _url(self, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Returns the URL, and the arguments that are not in it."""
        parts = urlsplit(self._settings.url)
        placed = set(_PLACE.findall(parts.path))
        path = _PLACE.sub(lambda mark: _segment(arguments[mark[1]]), parts.path)
        rest = {name: value for name, value in arguments.items() if name not in placed}
        return parts._replace(path=path).geturl(), rest


def _segment(value: object) -> str:
    """Returns an argument as exactly one segment of a path. Raises `ToolFailed`, also for text that another
    server might take for a parent directory: proxies decode slashes, and Java's servers drop what follows a
    semicolon."""
    text = _text(value)
    parts = [part.strip() for part in _APART.split(unquote(unicodedata.normalize("NFKC", text)))]
    if not text.strip() or len(text) > 200 or "." in parts or ".." in parts:
        raise ToolFailed("an argument cannot stand in the address")
    return quote(text, safe="")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _result(answer: HttpAnswer) -> str:
    text = answer.body.decode("utf-8", "replace")  # cut after masking: not in the middle of a number
    if not 200 <= answer.status < 300:
        raise ToolFailed(f"answered {answer.status}: {text}")
    return text
