"""The Content-Type of a request body, for every path that takes one."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.http.api_site import ADMIN_KEY, SAUDI_AGENT, SAUDI_KEY, WEB_KEY, write_api_site
from tests.support.node.node import KEY, SPEECH_KEY, Client, bearer, running

pytestmark = pytest.mark.asyncio(loop_scope="module")


PATHS = {
    "/api/v1/calls/outbound": KEY,
    "/api/v1/web-calls/connect": WEB_KEY,
    "/v1/text-to-speech/generate": SPEECH_KEY,
    "/api/v1/webhooks": ADMIN_KEY,
    "/api/v1/keys": ADMIN_KEY,
    "/api/v1/do-not-call": ADMIN_KEY,
}
"""Paths that need a body, with a key that may send one."""

JSON = (
    "application/json",
    "Application/JSON; charset=UTF-8",
    'application/json;charset="utf-8"',
    "application/vnd.api+json",
)

OTHERS = (
    None,
    "",
    "text/plain",
    "text/json",
    "application/x-www-form-urlencoded",
    "application/jsonp",
    "application/+json",
    "application/json, text/plain",
    "multipart/form-data; boundary=x",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    async with running(write_api_site(tmp_path_factory.mktemp("content"))) as (_, client):
        yield client


async def sent(client: Client, path: str, content: bytes, kind: str | None, key: str) -> tuple[int, Any]:
    """The answer to a body of that type; None: no Content-Type at all."""
    headers = bearer(key) if kind is None else {**bearer(key), "Content-Type": kind}
    body = io.BytesIO(content)
    async with client.post(path, data=body, headers=headers, skip_auto_headers=["Content-Type"]) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_is_taken_if_it_says_that_it_is_json(client: Client, path: str) -> None:
    for kind in OTHERS:
        told = await sent(client, path, b"[]", kind, PATHS[path])
        assert (kind, told) == (kind, (400, {"error": "Content-Type must be application/json"}))
    for kind in JSON:
        told = await sent(client, path, b"[]", kind, PATHS[path])
        assert (kind, told) == (kind, (400, {"error": "Request body must be a JSON object"}))


@pytest.mark.parametrize(
    ("kind", "named", "status"),
    [
        (None, False, 200),
        ("application/x-www-form-urlencoded", False, 200),  # what some clients say of nothing
        ("application/json", True, 200),
        (None, True, 200),  # section 4.3: Content-Type is optional
        ("application/x-www-form-urlencoded", True, 400),
        ("text/plain", True, 400),
    ],
)
async def test_a_cancel_may_say_nothing_of_its_body(
    client: Client, kind: str | None, named: bool, status: int
) -> None:
    body = json.dumps({"agentId": SAUDI_AGENT}).encode() if named else b""
    told = await sent(client, "/api/v1/calls/queue/cancel/966500000099", body, kind, SAUDI_KEY)
    assert told[0] == status
    if status == 400:
        assert told[1] == {"error": "Content-Type must be application/json"}


@pytest.mark.parametrize("kind", [None, "application/json", "audio/wav", "multipart/mixed; boundary=x"])
async def test_a_file_to_transcribe_comes_in_a_form(client: Client, kind: str | None) -> None:
    told = await sent(client, "/transcribe", b"RIFF", kind, SPEECH_KEY)
    assert told == (400, {"error": "Content-Type must be multipart/form-data"})


@pytest.mark.parametrize("path", [*PATHS, "/rtc/whip"])
async def test_a_body_that_is_too_long_is_told_the_limit(client: Client, path: str) -> None:
    content, kind = b" " * (1024 * 1024 + 1), "application/json" if path in PATHS else "application/sdp"
    told = await sent(client, path, content, kind, PATHS.get(path, "a-token"))
    assert told == (413, {"error": "Request body is larger than 1 MiB"})
