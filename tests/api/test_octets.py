"""Octets that are no text, and NULs, wherever a client can put them: a clear answer, no fault of ours."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from api.http.openapi import operations
from tests.support.http.api_site import SERVER_KEY, write_api_site
from tests.support.node.node import (
    KEY,
    SPEECH_KEY,
    Client,
    bearer,
    clients_of_module,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


client = clients_of_module(write_api_site)


async def raw(client: Client, head: bytes) -> int:
    """The status of an answer to a request that no HTTP client would write."""
    reader, writer = await asyncio.open_connection(client.host, client.port)
    writer.write(head + b"\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
    async with asyncio.timeout(30):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize("octets", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc3\xa9", b"?" * 500])
@pytest.mark.parametrize(
    "start",
    [
        b"GET /api/v1/calls HTTP/1.1",
        b"POST /api/v1/calls/outbound HTTP/1.1",
        b"POST /v1/text-to-speech/generate HTTP/1.1",
        b"POST /transcribe HTTP/1.1",
        b"POST /rtc/whip HTTP/1.1\r\nContent-Type: application/sdp",
        b"GET /rtc/validate HTTP/1.1",
    ],
)
async def test_a_key_that_is_no_text_is_nobodys(client: Client, start: bytes, octets: bytes) -> None:
    assert await raw(client, start + b"\r\nAuthorization: Bearer " + octets) == 401


@pytest.mark.parametrize("text", ["%00", "a%00b", "%FF", "%ED%A0%80", "%F0%9F%98%80"])
async def test_an_id_that_is_no_text_is_nothings(client: Client, text: str) -> None:
    app = client.app
    assert isinstance(app, web.Application)
    asked = 0
    for path, method, operation in operations(app):
        if "{" not in path:
            continue
        head, _, tail = path.partition("{")
        key = SERVER_KEY if "admin" in operation.scopes else KEY
        filled = f"{head}{text}{tail.partition('}')[2].replace('{identity}', text)}"
        query = "?company=acme" if operation.takes_company and key == SERVER_KEY else ""
        status = await raw(
            client, f"{method} {filled}{query} HTTP/1.1\r\nAuthorization: Bearer {key}".encode()
        )
        assert 400 <= status < 500, (method, path, status)
        asked += 1
    assert asked > 20


async def test_a_job_id_with_nul_is_refused(client: Client) -> None:
    form = aiohttp.FormData({"job_id": "a\0b"})
    form.add_field("file", b"RIFF", filename="speech.wav")
    async with client.post("/transcribe", data=form, headers=bearer(SPEECH_KEY)) as answer:
        assert answer.status == 400
        assert await answer.json() == {"error": "job_id: must not contain NUL characters"}
