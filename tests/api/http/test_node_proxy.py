"""A recording that another node has, when that node breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from api.http.auth import SERVER
from api.http.errors import answer_errors
from api.http.node_proxy import connections, fetched
from mediaserver.server import Server

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: audio/wav\r\nContent-Length: 1000000\r\n\r\n"


@asynccontextmanager
async def node(answer: bytes) -> AsyncIterator[str]:
    """Another node: sends `answer` to whoever asks, and dies."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def asked(node_url: str) -> AsyncIterator[TestClient[Any, Any]]:
    """A client of a node that asks the one at `node_url`."""

    async def recording(request: web.Request) -> web.StreamResponse:
        return await fetched(request, node_url)

    app = web.Application(middlewares=[answer_errors])
    settings = SimpleNamespace(server=SimpleNamespace(node_url="http://127.0.0.1:9"))
    app[SERVER] = cast(Server, SimpleNamespace(settings=settings))
    app.cleanup_ctx.append(connections)
    app.router.add_get("/recording", recording)
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_a_node_that_dies_before_it_answers_is_not_there() -> None:
    async with node(b"") as url, asked(url) as client, client.get("/recording") as answer:
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "5"
        assert await answer.json() == {"error": "The node that has this recording does not answer"}


async def test_half_a_recording_never_looks_like_a_whole_one() -> None:
    async with node(HEAD + bytes(200_000)) as url, asked(url) as client, client.get("/recording") as answer:
        assert (answer.status, answer.headers["Content-Length"]) == (200, "1000000")
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
