"""HTTP on "[::]" answers callers of both protocols, and knows one by IPv4 by that address."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from mediaserver.http.server import HttpServer
from mediaserver.settings import split_address
from mediaserver.settings.server import ServerSettings


@contextlib.asynccontextmanager
async def listening(host: str, settings: ServerSettings) -> AsyncIterator[int]:
    async def told(request: web.Request) -> web.Response:
        return web.Response(text=request.remote or "")

    app = web.Application()
    app.router.add_get("/", told)
    server = HttpServer(app, settings, ceiling=1 << 20)
    (address,) = await server.start(host, 0)
    try:
        yield split_address(address)[1]
    finally:
        await server.close()


async def got(host: str, port: int) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"http://{host}:{port}/") as answer:
        return answer.status, await answer.text()


async def test_any_address_is_any_address_of_both_protocols() -> None:
    async with listening("::", ServerSettings()) as port:
        assert await got("127.0.0.1", port) == (200, "::ffff:127.0.0.1")
        assert await got("[::1]", port) == (200, "::1")


async def test_an_address_of_one_protocol_is_of_that_alone() -> None:
    async with listening("::1", ServerSettings()) as port:
        assert await got("[::1]", port) == (200, "::1")
        with pytest.raises(aiohttp.ClientConnectorError):
            await got("127.0.0.1", port)


async def test_connections_by_ipv4_are_counted_for_their_own_address() -> None:
    """The limit is per IPv4 address, and per /64 of IPv6: all of IPv4 would be one /64."""
    settings = ServerSettings(http_connections_per_address=1)
    async with listening("::", settings) as port:
        with contextlib.ExitStack() as held:
            for source in ("127.0.0.1", "127.0.0.2"):
                held.enter_context(socket.create_connection(("127.0.0.1", port), source_address=(source, 0)))
            assert (await got("127.0.0.1", port))[0] == 503
            assert (await got("[::1]", port))[0] == 200
