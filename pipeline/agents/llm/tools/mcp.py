"""Tools of an MCP server over streamable HTTP (Model Context Protocol, revision 2025-06-18), as a client.

Implements what a call needs: initialize, tools/list, tools/call. The server is not trusted: a tool that the
configuration does not name is not offered, schemas are checked before use, a tool's hints about itself are
ignored, and its results are data."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.agents.llm.table import LlmMcp
from pipeline.agents.llm.tools.schema import Schema
from pipeline.agents.llm.tools.tool import Tool, ToolFailed, ToolSpec
from pipeline.engines.tables import revealed
from pipeline.errors import EngineError
from pipeline.net.http import HttpAnswer, HttpClient, IsWhole
from pipeline.net.sse import EventReader
from pipeline.net.trace_context import request_fields
from pipeline.net.untrusted import NotJson, clean_text, cleaned, read_json, read_parts

log = logging.getLogger(__name__)

PROTOCOL: Final = "2025-06-18"
RETRY_S: Final = 15.0
"""Shortest time between attempts to open an MCP server that is away, in seconds."""
MAX_PAGES: Final = 20
_LIST: Final = "tools/list"
_FORGOTTEN: Final = frozenset({400, 404})
"""Statuses for an unknown session: 404 by the specification, 400 from many servers."""
_REVISION: Final = re.compile(r"\d{4}-\d\d-\d\d")
_CLIENT: Final = {"name": "openline-mediaserver", "version": "1"}


class McpServer:
    """One MCP server, whose session is shared by all calls. `tools`: those that the server offers and the
    settings name."""

    def __init__(self, settings: LlmMcp, web: HttpClient) -> None:
        self.settings = settings
        self.tools: Mapping[str, Tool] = {}
        self._web = web
        self._session = ""
        self._protocol = PROTOCOL
        self._ids = 0
        self._opening = asyncio.Lock()
        self._opened = False
        self._tried_at = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether the server's tools are known."""
        return self._opened

    async def open(self) -> None:
        """Lists the server's tools, unless they are known or were requested within `RETRY_S`. Raises
        `EngineError`."""
        now = asyncio.get_running_loop().time()
        async with self._opening:
            if self._opened or now - self._tried_at < RETRY_S:
                return
            self._tried_at = now
            await self._initialize()
            self.tools = await self._list()
            self._opened = True
            missing = set(self.settings.tools) - set(self.tools)
            if missing:
                log.warning("MCP server lacks tools", extra={"tools": ", ".join(sorted(missing))})

    async def call_tool(self, name: str, arguments: Mapping[str, Any], *, key: str = "") -> str:
        """Calls the tool, with `key` as `Idempotency-Key` of the request and of its repetition; returns the
        text of its result. Raises `ToolFailed`."""
        params = {"name": name, "arguments": dict(arguments)}
        session = self._session
        try:
            try:
                result = await self._ask("tools/call", params, key=key)
            except _SessionOver:  # the server forgot the session before it did anything
                async with self._opening:
                    if self._session == session:  # unless another call has begun a new session meanwhile
                        await self._initialize()
                result = await self._ask("tools/call", params, key=key)
        except EngineError as error:
            raise ToolFailed(str(error)) from error
        text = "\n".join(_texts(result))
        if result.get("isError"):
            raise ToolFailed(text or "the tool failed")
        return text

    async def _initialize(self) -> None:
        result = await self._ask(
            "initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": _CLIENT}
        )
        spoken = result.get("protocolVersion")
        self._protocol = spoken if isinstance(spoken, str) and _REVISION.fullmatch(spoken) else PROTOCOL
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _list(self) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        cursor: object = None
        for _ in range(MAX_PAGES):
            page = await self._ask(_LIST, {"cursor": cursor} if cursor else {})
            entries = page.get("tools")
            for entry in entries if isinstance(entries, list) else ():
                name = _name(entry)
                if name in self.settings.tools and name not in found:
                    tool = await self._tool(name, entry)
                    if tool is not None:
                        found[name] = tool
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                break
        return found

    async def _tool(self, name: str, entry: Mapping[str, Any]) -> Tool | None:
        settings = self.settings
        try:  # in a thread: a large schema takes a while to check
            schema = await asyncio.to_thread(Schema, entry.get("inputSchema") or {})
            description = str(cleaned(entry.get("description")) or "")[:2000]
        except (ValueError, TypeError) as error:
            log.warning("MCP tool cannot be used", extra={"tool": name, "reason": str(error)})
            return None
        spec = ToolSpec(
            name=name,
            description=description,
            schema=schema,
            acts=name not in settings.reads,
            asks=settings.confirm.get(name, ""),
            timeout_s=settings.timeout_s,
            max_calls=settings.max_calls,
        )
        return McpTool(spec, self)

    # JSON-RPC over HTTP -------------------------------------------------------------------------------------

    async def _ask(self, method: str, params: Mapping[str, Any], *, key: str = "") -> Mapping[str, Any]:
        self._ids += 1
        identity = self._ids
        answer = await self._post(
            {"jsonrpc": "2.0", "id": identity, "method": method, "params": params},
            _Awaited(identity).has_come,
            key=key,
        )
        for message in _messages(answer, is_list=method == _LIST):
            if message.get("id") != identity:
                continue
            if "error" in message:
                raise EngineError(
                    f"MCP server refused {method}: {_reason(message['error'])}", retryable=False
                )
            result = message.get("result")
            if isinstance(result, Mapping):
                return result
        raise EngineError(f"MCP server did not answer {method}", retryable=True)

    async def _post(
        self, message: Mapping[str, Any], is_whole: IsWhole | None = None, *, key: str = ""
    ) -> HttpAnswer:
        begins = message["method"] == "initialize"
        session = "" if begins else self._session
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL if begins else self._protocol,
            **request_fields(key),
            **revealed(self.settings.headers),
        }
        if session:
            headers["Mcp-Session-Id"] = session
        answer = await self._web.request(
            "POST",
            self.settings.url,
            headers=headers,
            body=json.dumps(message).encode(),
            timeout_s=self.settings.timeout_s,
            is_whole=is_whole,
        )
        if answer.status in _FORGOTTEN and session:
            raise _SessionOver(f"MCP server answered {answer.status}", retryable=True)
        if not 200 <= answer.status < 300:
            raise EngineError(f"MCP server answered {answer.status}", retryable=answer.status >= 500)
        if begins:
            self._session = answer.headers.get("mcp-session-id", "")
        return answer


class _Awaited:
    """Looks for the answer to a request among the events of a stream, which not every server closes after
    it."""

    def __init__(self, identity: int) -> None:
        self._identity = identity
        self._events = EventReader()

    def has_come(self, piece: bytes) -> bool:
        """Whether the answer is complete with `piece`."""
        return any(map(self._is_it, self._events.feed(piece)))

    def _is_it(self, data: str) -> bool:
        try:
            message = read_parts(data)
        except NotJson:
            return False
        if not isinstance(message, Mapping) or message.get("id") != self._identity:
            return False
        return "result" in message or "error" in message


class _SessionOver(EngineError):
    """The server no longer knows the session (2025-06-18, Session Management)."""


class McpTool:
    """A `pipeline.agents.llm.tools.tool.Tool` that an MCP server offers."""

    def __init__(self, spec: ToolSpec, server: McpServer) -> None:
        self.spec = spec
        self._server = server

    async def call(self, arguments: Mapping[str, Any], variables: Mapping[str, str], *, key: str = "") -> str:
        """Calls the tool on the server; returns its text. Raises `ToolFailed`."""
        return await self._server.call_tool(self.spec.name, arguments, key=key)


def _name(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else ""
    return name if isinstance(name, str) else ""


def _messages(answer: HttpAnswer, *, is_list: bool) -> Iterator[Mapping[str, Any]]:
    """Yields the JSON-RPC messages of an answer: one as JSON, or several as server-sent events. In a list of
    tools a number or a nesting that cannot be used costs only the tool that has it. Raises `EngineError`
    after the last message where one was not JSON."""
    text = answer.body.decode("utf-8", "replace")
    documents = [text]
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        events = EventReader()
        documents = [*events.feed(answer.body), *events.finish()]
    broken = False
    for document in documents:
        if not document.strip():
            continue
        try:
            message = read_parts(document) if is_list else read_json(document)
        except NotJson:
            broken = True
            continue
        if isinstance(message, Mapping):
            yield message
    if broken:
        raise EngineError("MCP server's answer is not JSON", retryable=False)


def _texts(result: Mapping[str, Any]) -> Iterator[str]:
    content = result.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type") == "text":
            yield str(part.get("text", ""))
    if not content and "structuredContent" in result:
        yield json.dumps(result["structuredContent"], ensure_ascii=False)


def _reason(error: object) -> str:
    return clean_text(str(error.get("message", "")))[:300] if isinstance(error, Mapping) else ""
