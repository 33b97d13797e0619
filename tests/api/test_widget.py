"""What the widget is made of, as pages of other origins get it, and on whose pages a talk is opened."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient

from tests.support.node.node import Node, running
from tests.support.webrtc.rooms import AGENT, write_web_site

SHOP = "https://www.example.com"
MOST_OCTETS = 30_000
SESSION = f"/talk/{AGENT}/session"


@pytest.fixture
async def shops(tmp_path: Path) -> AsyncIterator[Node]:
    """Its company lets visitors of one other origin talk, and nobody else."""
    there = write_web_site(tmp_path, talk_origins=[f"{SHOP}:443"])
    there.change("[rooms]\n", "[rooms]\npublic_talk_per_minute_each = 600\n")  # a refusal counts, too
    async with running(there) as site:
        yield site


async def opened(client: TestClient[Any, Any], url: str = SESSION, **headers: str) -> ClientResponse:
    """The answer to a page that asks for a talk."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.post(url, headers=named) as answer:
        await answer.read()
        return answer


async def test_a_page_loads_no_more_than_thirty_kilobytes(shops: Node) -> None:
    _, client = shops
    waiting, octets = ["widget.js"], dict[str, int]()
    while waiting:
        name = waiting.pop()
        url = "/widget.js" if name == "widget.js" else f"/static/talk/{name}"
        async with client.get(url, headers={"Accept-Encoding": "gzip", "Origin": SHOP}) as answer:
            assert answer.status == 200, name
            assert answer.headers["Content-Encoding"] == "gzip"
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
            assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
            text = await answer.text()
        octets[name] = len(gzip.compress(text.encode(), 6))
        named = re.findall(r'["`/]([a-z]+[.](?:js|css))["`]', text)
        waiting += [each for each in {*named} - octets.keys() if each not in waiting]
    assert {"widget.js", "panel.js", "conversation.js", "whip.js", "parts.css", "widget.css"} <= octets.keys()
    assert sum(octets.values()) <= MOST_OCTETS, octets


async def test_a_page_that_has_the_script_is_told_that_it_has(shops: Node) -> None:
    _, client = shops
    async with client.get("/widget.js") as answer:
        told = {"If-None-Match": answer.headers["ETag"], "Accept-Encoding": "gzip"}
    async with client.get("/widget.js", headers=told) as answer:
        assert (answer.status, await answer.read()) == (304, b"")
    async with client.get("/widget.js", headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
        assert "currentScript" in await answer.text()


async def test_what_is_asked_without_its_body_has_none(shops: Node) -> None:
    _, client = shops
    stale = "Wed, 21 Oct 2015 07:28:00 GMT"
    asks = (
        ("HEAD", "Accept: */*", 200),
        ("GET", 'If-Match: "another"', 412),
        ("GET", f"If-Unmodified-Since: {stale}", 412),
        ("GET", "Accept: */*", 200),
    )
    reader, writer = await asyncio.open_connection(client.host, client.port)
    for method, header, status in asks:  # each begins where the one before ended
        asked = f"{method} /widget.js HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n{header}\r\n\r\n"
        writer.write(asked.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(f"HTTP/1.1 {status} ".encode()), (method, header, head)
        if status == 412:
            assert b"Content-Length: 0" in head
    writer.close()
    await writer.wait_closed()


async def test_pages_of_listed_origins_alone_open_talks(shops: Node) -> None:
    server, client = shops
    own = str(client.make_url("/")).rstrip("/")
    for origin in (
        "https://evil.example",
        "https://www.example.com.evil.example",
        "null",
        f"{SHOP}:8443",
        "http://[",
    ):
        answer = await opened(client, Origin=origin)
        assert answer.status == 403, origin
        assert answer.headers["Access-Control-Allow-Origin"] == "*"  # it may read why
    for headers in ({}, {"Origin": own}, {"Origin": server.settings.server.public_url}):
        assert (await opened(client, **headers)).status == 401
    assert server.room_registry.rooms == 0
    answer = await opened(client, Origin=SHOP)
    assert answer.status == 200
    assert (await answer.json())["agentName"] == "Web desk"
    unknown = "/talk/2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11/session"
    assert (await opened(client, unknown, Origin=SHOP)).status == 401


async def test_the_talk_page_is_no_door_for_other_pages(tmp_path: Path) -> None:
    async with running(write_web_site(tmp_path, public=True)) as (_, client):
        own = str(client.make_url("/")).rstrip("/")
        assert (await opened(client, Origin=SHOP)).status == 403
        assert (await opened(client, Origin=own)).status == 200
        behind_a_proxy = {"Origin": "https://voice.example.com", "Sec_Fetch_Site": "same-origin"}
        assert (await opened(client, **behind_a_proxy)).status == 200
        assert {(await opened(client, Origin=SHOP)).status for _ in range(9)} == {403, 429}


async def test_any_page_where_the_list_says_so(tmp_path: Path) -> None:
    async with running(write_web_site(tmp_path, talk_origins=["*"])) as (_, client):
        assert (await opened(client, Origin="https://anybody.example")).status == 200


async def test_a_page_of_another_origin_may_give_a_talk_back(shops: Node) -> None:
    server, client = shops
    token = (await (await opened(client, Origin=SHOP)).json())["participantToken"]
    asks = {"Origin": SHOP, "Access-Control-Request-Method": "DELETE"}
    async with client.options(SESSION, headers=asks) as answer:
        assert answer.status == 204
        assert "DELETE" in answer.headers["Access-Control-Allow-Methods"]
        assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
    async with client.delete(SESSION, headers={"Authorization": f"Bearer {token}"}) as answer:
        assert answer.status == 204
    assert server.room_registry.rooms == 0
