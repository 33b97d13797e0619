"""Where a streaming recogniser's key goes: to the servers that its configuration names, encrypted where it
says so, and nowhere else, whatever these servers answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pipeline.errors import EngineError
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.net.model_endpoint import ModelEndpoint
from pipeline.net.socket_service import address_of
from pipeline.net.web_socket import SocketEndpoint
from pipeline.stt.streaming.service import ServiceSettings
from tests.support.certificates import tls_of_localhost
from tests.support.webrtc.web import answering, served

KEYS = {"Authorization": "Bearer k-1", "xi-api-key": "k-2"}
Answer = Callable[[web.Request], web.StreamResponse]


@pytest.fixture(autouse=True)
def at_home() -> Iterator[None]:
    with egress_policy(EgressPolicy(["127.0.0.0/8", "::1/128"])):
        yield


@asynccontextmanager
async def server(answer: Answer | None = None) -> AsyncIterator[tuple[str, list[web.Request]]]:
    """A server that opens websockets, or answers as `answer` says; its URL, and what it was asked."""
    asked: list[web.Request] = []

    async def take(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        if answer is not None:
            return answer(request)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        return socket

    async with answering(take) as url:
        yield url, asked


def moved(to: str, status: int) -> Answer:
    return lambda request: web.Response(status=status, headers={"Location": to})


def as_socket(url: str) -> str:
    return url.replace("http", "ws", 1)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_socket_follows_a_redirect(status: int) -> None:
    async with server() as (other, reached), server(moved(other, status)) as (url, asked):
        endpoint = SocketEndpoint([as_socket(url)], headers=KEYS)
        with pytest.raises(EngineError, match=f"answered {status}") as refused:
            async with endpoint.opened(as_socket(url), {}):
                pass
        await endpoint.close()
        assert not refused.value.retryable
        assert (len(asked), reached) == (1, [])


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_no_request_to_a_model_follows_a_redirect(status: int) -> None:
    async with server() as (other, reached), server(moved(other, status)) as (url, asked):
        endpoint = ModelEndpoint(url, api_key="k-1")
        with pytest.raises(EngineError, match=f"answered {status}"):
            await endpoint.post_json("chat", {})
        with pytest.raises(EngineError, match=f"answered {status}"):
            async for _ in endpoint.stream_sse("chat", {}, first_s=2, stall_s=2):
                pass
        assert await endpoint.check() == ""
        socket = SocketEndpoint([url], headers=KEYS)
        with pytest.raises(EngineError, match=f"answered {status}"):
            await socket.ask(url, {})
        await endpoint.close()
        await socket.close()
        assert (len(asked), reached) == (4, [])


async def test_keys_go_to_no_server_that_only_an_answer_names() -> None:
    async with server() as (other, reached), server() as (url, asked):
        endpoint = SocketEndpoint([as_socket(url)], headers=KEYS)
        for each in (url, other):
            async with endpoint.opened(as_socket(each), {"token": "t"}):
                pass
        await endpoint.close()
    assert [asked[0].headers[name] for name in KEYS] == list(KEYS.values())
    assert not any(name in reached[0].headers for name in KEYS)
    assert reached[0].query["token"] == "t"


@pytest.mark.parametrize(("given", "taken"), [("ws://127.0.0.1:9/s", False), ("wss://127.0.0.1:9/s", True)])
async def test_an_encrypted_answer_leads_to_no_open_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, taken: bool
) -> None:
    context, certificate = await tls_of_localhost(tmp_path)
    monkeypatch.setattr(
        "aiohttp.connector._SSL_CONTEXT_VERIFIED", ssl.create_default_context(cafile=certificate)
    )
    runner = web.AppRunner(app := web.Application())

    async def names(request: web.Request) -> web.Response:
        return web.json_response({"url": given})

    app.router.add_post("/", names)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0, ssl_context=context).start()
    url = f"https://localhost:{runner.addresses[0][1]}/"
    endpoint = SocketEndpoint([url], headers=KEYS)
    try:
        asking = address_of(service(url), endpoint, {})
        if taken:
            assert await asking == (given, {})
        else:
            with pytest.raises(EngineError, match="no address"):
                await asking
    finally:
        await endpoint.close()
        await runner.cleanup()


def service(session_url: str) -> ServiceSettings:
    final: Mapping[str, Any] = {"when": {"type": "final"}, "text": "text"}
    return ServiceSettings.model_validate(
        {"url": "wss://unused/", "session_url": session_url, "session_address": "url", "final": final}
    )


async def test_an_answer_in_pieces_is_read_to_its_end() -> None:
    async def in_pieces(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for piece in (b'{"url": ', b'"ws://127.0.0.1:9', b'/socket"}'):
            await answer.write(piece)
            await asyncio.sleep(0.05)
        return answer

    app = web.Application()
    app.router.add_post("/", in_pieces)
    async with served(app) as url:
        endpoint = SocketEndpoint([url], headers=KEYS)
        assert await endpoint.ask(url, {}) == {"url": "ws://127.0.0.1:9/socket"}
        await endpoint.close()


async def test_an_answer_without_end_is_refused() -> None:
    async with server(lambda request: web.Response(text='"' + "x" * 2**18 + '"')) as (url, _):
        endpoint = SocketEndpoint([url], headers=KEYS)
        with pytest.raises(EngineError, match="without end"):
            await endpoint.ask(url, {})
        await endpoint.close()
