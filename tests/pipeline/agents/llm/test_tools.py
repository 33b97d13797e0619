"""Tools over the network: an MCP server of the protocol's own SDK, servers that misbehave, addresses that may
not be reached."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest
from aiohttp import web

from mediaserver.engine_pool.running import START_TIMEOUT_S
from pipeline.agent import CallOpened, Say
from pipeline.agents.llm.agent import Llm
from pipeline.agents.llm.settings import read_settings
from pipeline.agents.llm.table import LlmMcp, LlmTool
from pipeline.agents.llm.tools.http import HttpTool
from pipeline.agents.llm.tools.mcp import McpServer
from pipeline.agents.llm.tools.schema import Schema
from pipeline.agents.llm.tools.tool import ToolFailed, ToolSpec
from pipeline.errors import EngineError
from pipeline.net.http import ANSWER_LIMIT, GuardedHttpClient, HttpAnswer, IsWhole
from pipeline.net.untrusted import MAX_DEPTH
from tests.support.hostile.wild import SSE, Piece, wild_server
from tests.support.http.chat import FakeChat, acts_of, context
from tests.support.http.llm import BASE
from tests.support.paths import SUPPORT
from tests.support.webrtc.web import served

SERVER = SUPPORT / "http" / "mcp_server.py"


@pytest.fixture
async def client(at_home: None) -> AsyncIterator[GuardedHttpClient]:
    made = GuardedHttpClient()
    yield made
    await made.close()


# The protocol's own SDK -------------------------------------------------------------------------------------


@pytest.fixture
async def mcp_url() -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SERVER), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        port = int(await process.stdout.readline())
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    await process.wait()


@pytest.mark.peer
async def test_tools_of_an_mcp_server_are_listed_and_called(client: GuardedHttpClient, mcp_url: str) -> None:
    settings = LlmMcp(url=mcp_url, tools=("find_order", "cancel_order", "gone"), reads=("find_order",))
    server = McpServer(settings, client)
    await server.open()
    assert set(server.tools) == {"find_order", "cancel_order"}, "only those of the configuration"
    find = server.tools["find_order"]
    assert (find.spec.description, find.spec.acts) == ("Where an order is.", False)
    assert server.tools["cancel_order"].spec.acts
    assert find.spec.schema.read('{"number": 3}') == {"number": 3}
    assert await find.call({"number": 3}, {}) == "order 3 comes on monday"
    with pytest.raises(ToolFailed):
        await server.tools["cancel_order"].call({"number": 3}, {})
    server._session = "forgotten"
    assert await find.call({"number": 4}, {}) == "order 4 comes on monday"


# Servers that misbehave -------------------------------------------------------------------------------------


class Answers:
    """A `HttpClient` that answers initialize, then what the test says."""

    def __init__(self, *answers: HttpAnswer | EngineError) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None,
        timeout_s: float | None = None,
        is_whole: IsWhole | None = None, is_read: bool = True,
    ) -> HttpAnswer:  # fmt: skip
        self.asked += 1
        message = json.loads(body or b"")
        if message["method"] == "initialize":
            return reply(message["id"], {"protocolVersion": "2025-06-18"})
        if "id" not in message:
            return HttpAnswer(202, {}, b"")
        answer = self.answers.pop(0)
        if isinstance(answer, EngineError):
            raise answer
        return answer

    async def close(self) -> None: ...


def reply(identity: int, result: object) -> HttpAnswer:
    body = json.dumps({"jsonrpc": "2.0", "id": identity, "result": result}).encode()
    return HttpAnswer(200, {"content-type": "application/json"}, body)


@pytest.mark.parametrize(
    "answer",
    [
        HttpAnswer(500, {}, b""),
        HttpAnswer(200, {}, b"<html>"),
        HttpAnswer(200, {}, b"[1]"),
        HttpAnswer(200, {"content-type": "text/event-stream"}, b"data: {}\n\n"),
        HttpAnswer(200, {}, b'{"jsonrpc": "2.0", "id": 2, "error": {"message": "no"}}'),
        EngineError("cannot connect", retryable=True),
    ],
)
async def test_a_server_that_does_not_say_what_it_has(answer: HttpAnswer | EngineError) -> None:
    away = Answers(answer)
    server = McpServer(LlmMcp(url="https://m.example", tools=("a",)), away)
    with pytest.raises(EngineError):
        await server.open()
    assert not server.is_open
    before = away.asked
    await server.open()
    assert away.asked == before, "asked again no sooner than a while later"


class Hanging:
    """A server that takes every connection and answers nothing, until it is mended: then it has tools."""

    hangs = True

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None,
        timeout_s: float | None = None,
        is_whole: IsWhole | None = None, is_read: bool = True,
    ) -> HttpAnswer:  # fmt: skip
        if self.hangs:
            await asyncio.sleep(timeout_s or 0.0)
            raise EngineError("no answer in time", retryable=True)
        tools = [{"name": f"t{n}", "inputSchema": {}} for n in range(3)]
        return reply(json.loads(body or b"").get("id", 0), {"tools": tools})

    async def close(self) -> None: ...


@pytest.mark.virtual_clock
async def test_servers_that_hang_do_not_keep_the_agent_from_talking() -> None:
    servers = [{"url": f"https://m{n}.example", "tools": [f"t{n}"], "timeout_s": 40.0} for n in range(3)]
    web, chat = Hanging(), FakeChat(["Hello."], ["Hello."])
    made = Llm(read_settings({**BASE, "builtin": [], "mcp": servers}), [chat], web)
    async with asyncio.timeout(START_TIMEOUT_S / 2):
        await made.start()
    assert await acts_of(made.join(context()), CallOpened()) == [Say("Hello.")]
    assert "tools" not in chat.requests[-1]
    await asyncio.sleep(60)
    web.hangs = False
    made.join(context())
    await asyncio.sleep(1)
    await acts_of(made.join(context()), CallOpened())
    offered = [tool["function"]["name"] for tool in chat.requests[-1]["tools"]]
    assert sorted(offered) == ["t0", "t1", "t2"]
    await made.close()


class Forgetful:
    """A server that knows the sessions which began since it was started, and answers `status` to others."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.known: list[str] = []
        self.begun = 0
        self.revisions: set[str] = set()

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None,
        timeout_s: float | None = None,
        is_whole: IsWhole | None = None, is_read: bool = True,
    ) -> HttpAnswer:  # fmt: skip
        message = json.loads(body or b"")
        await asyncio.sleep(0.01)
        if message["method"] == "initialize":
            self.begun += 1
            self.known.append(f"session-{self.begun}")
            answer = reply(message["id"], {"protocolVersion": "2025-03-26"})
            return replace(answer, headers={**answer.headers, "mcp-session-id": self.known[-1]})
        self.revisions.add(headers["MCP-Protocol-Version"])
        if headers.get("Mcp-Session-Id") not in self.known:
            return HttpAnswer(self.status, {}, b"{}")
        if "id" not in message:
            return HttpAnswer(202, {}, b"")
        if message["method"] == "tools/list":
            return reply(message["id"], {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]})
        return reply(message["id"], {"content": [{"type": "text", "text": "done"}]})

    async def close(self) -> None: ...


@pytest.mark.parametrize("status", [400, 404])
async def test_a_server_that_was_started_anew_is_greeted_anew_once(status: int) -> None:
    """400 is what the SDKs' servers answer to a session that they do not know."""
    forgetful = Forgetful(status)
    server = McpServer(LlmMcp(url="https://m.example", tools=("a",)), forgetful)
    await server.open()
    forgetful.known.clear()
    results = await asyncio.gather(*(server.tools["a"].call({}, {}) for _ in range(3)))
    assert results == ["done"] * 3
    assert forgetful.begun == 2
    assert forgetful.revisions == {"2025-03-26"}, "what was agreed on"


async def test_tools_whose_schemas_would_do_harm_are_left_out() -> None:
    deep: dict[str, object] = {"type": "string"}
    for _ in range(90):
        deep = {"type": "object", "properties": {"a": deep}}
    tools = [
        {"name": "a", "inputSchema": {"type": "object", "properties": {"x": {"$ref": "http://evil/"}}}},
        {"name": "b", "inputSchema": {"type": "object"}},
        {"name": "c", "inputSchema": {"type": "object"}},
        "d",
        {"name": "e", "inputSchema": deep},
        {"name": "f", "inputSchema": {"properties": {"x": {"type": "string", "pattern": "(?=x)x"}}}},
        {"name": "g", "inputSchema": [1]},
        {"name": ["h"]},
    ]
    server = McpServer(
        LlmMcp(url="https://m.example", tools=tuple("abdefgh")), Answers(reply(2, {"tools": tools}))
    )
    await server.open()
    assert set(server.tools) == {"b"}


async def test_a_result_that_is_no_text_is_made_one() -> None:
    tools = [{"name": "a", "inputSchema": {}}]
    content = [{"type": "text", "text": "half a smile \ud83d, nothing \0"}]
    server = McpServer(
        LlmMcp(url="https://m.example", tools=("a",)),
        Answers(reply(2, {"tools": tools}), reply(3, {"content": content})),
    )
    await server.open()
    text = await server.call_tool("a", {}, key="k-1")
    assert text == "half a smile \ufffd, nothing \ufffd"
    assert text.encode()


def sent(message: object) -> bytes:
    return f"event: message\ndata: {json.dumps(message)}\n\n".encode()


async def test_a_server_that_leaves_its_stream_open_behind_the_answer_is_not_waited_for(
    client: GuardedHttpClient,
) -> None:
    """It should close it, and may go on with pings instead."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    listed = sent({"jsonrpc": "2.0", "id": 2, "result": {"tools": [{"name": "a", "inputSchema": {}}]}})
    asks = sent({"jsonrpc": "2.0", "id": 3, "method": "ping"})
    tells = sent({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
    done = sent({"jsonrpc": "2.0", "id": 3, "result": {"content": [{"type": "text", "text": "done"}]}})
    pings: list[Piece] = [b": ping\n\n", 0.2] * 100
    async with wild_server(
        [head, reply(1, {"protocolVersion": "2025-06-18"}).body],
        [b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"],
        [SSE, listed, *pings],
        [SSE, b": ping\n\n", asks, tells, done[:30], 0.01, done[30:-1], 0.01, done[-1:], *pings],
    ) as wild:
        server = McpServer(LlmMcp(url=wild.base_url, tools=("a",), timeout_s=4.0), client)
        await server.open()
        assert await server.tools["a"].call({}, {}) == "done"
        assert len(wild.requests) == 4


def nested(depth: int) -> str:
    return '{"a": ' * depth + "1" + "}" * depth


@pytest.mark.parametrize("depth", [60, 201, 5_000])
async def test_what_is_nested_too_deep_costs_no_other_tool(depth: int) -> None:
    """Neither one tool's schema nor one tool's answer."""
    tools = [{"name": "a", "inputSchema": "deep"}, {"name": "b", "inputSchema": {}}]
    deep = reply(3, {"content": [{"type": "text", "text": "fine"}], "structuredContent": "deep"})
    good = reply(4, {"content": [{"type": "text", "text": "fine"}]})
    answers = [
        replace(each, body=each.body.replace(b'"deep"', nested(depth).encode()))
        for each in (reply(2, {"tools": tools}), deep)
    ]
    server = McpServer(LlmMcp(url="https://m.example", tools=("a", "b")), Answers(*answers, good))
    await server.open()
    assert set(server.tools) == {"b"}
    if depth > MAX_DEPTH:
        with pytest.raises(ToolFailed):
            await server.call_tool("b", {})
    else:
        assert await server.call_tool("b", {}) == "fine"
    assert await server.call_tool("b", {}) == "fine"


@pytest.mark.parametrize(
    "broken",
    [
        b'{"type": "object", "properties": {"x": {"type": "number", "maximum": NaN}}}',
        b'{"type": "object", "properties": {"x": {"type": "number", "maximum": Infinity}}}',
        b'{"type": "object", "properties": {"x": {"type": "number", "minimum": -1e999}}}',
        b'{"type": "object", "properties": {"x": {"type": "integer", "maximum": ' + b"9" * 200 + b"}}}",
        b'{"type": "object", "properties": [1]}',
        b"NaN",
        b'"a schema"',
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_schema_that_is_broken_costs_the_tool_that_it_belongs_to(
    broken: bytes, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [
        {"name": "a", "description": "First.", "inputSchema": {}},
        {"name": "b", "inputSchema": "broken"},
        {"name": "c", "description": "Last, half a smile \ud83d.", "inputSchema": {}},
        {"name": "d", "annotations": "broken", "inputSchema": {}},
    ]
    answer = reply(2, {"tools": tools})
    body = answer.body.replace(b'"broken"', broken)
    if streamed:
        answer = replace(answer, headers={"content-type": "text/event-stream"})
        body = b"data: {not JSON}\n\ndata: " + body + b"\n\n"
    server = McpServer(
        LlmMcp(url="https://m.example", tools=tuple("abcd")), Answers(replace(answer, body=body))
    )
    await server.open()
    assert [tool.spec.description for tool in server.tools.values()] == [
        "First.", "Last, half a smile \ufffd.", "",
    ]  # fmt: skip
    assert json.dumps([tool.spec.message for tool in server.tools.values()])
    (warning,) = [each for each in caplog.records if each.message == "MCP tool cannot be used"]
    assert warning.tool == "b"  # type: ignore[attr-defined]


# Addresses --------------------------------------------------------------------------------------------------


@pytest.fixture
async def door() -> AsyncIterator[str]:
    """A server that has everything wrong with it, by path."""

    async def endless(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * (ANSWER_LIMIT + 1))

    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async def moved(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/secret")

    async def secret(request: web.Request) -> web.StreamResponse:
        return web.Response(text="secret")

    async def packed(request: web.Request) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b"fine"), headers={"Content-Encoding": "gzip"})

    app = web.Application()
    doors = {"endless": endless, "slow": slow, "moved": moved, "secret": secret, "packed": packed}
    for path, handler in ((f"/{name}", handler) for name, handler in doors.items()):
        app.router.add_get(path, handler)
    async with served(app) as url:
        yield url


def tool(url: str, client: GuardedHttpClient) -> HttpTool:
    spec = ToolSpec(name="t", description="d", schema=Schema({}), timeout_s=0.5)
    return HttpTool(spec, LlmTool(name="t", description="d", method="GET", url=url), client)


@pytest.mark.parametrize("path", ["/endless", "/slow", "/moved", "/nowhere", "/packed"])
async def test_a_tool_that_is_no_use_fails(client: GuardedHttpClient, door: str, path: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        await tool(door + path, client).call({}, {})
    assert "secret" not in str(caught.value)


async def test_a_tool_behind_the_wall_is_not_reached(door: str) -> None:
    client = GuardedHttpClient()
    with pytest.raises(ToolFailed, match="not one that this server connects to"):
        await tool(f"{door}/secret", client).call({}, {})
    await client.close()
