"""What clients and proxies expect of any API: request ids, the standing of a key, compressed answers."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mediaserver.telemetry.logging import JsonLines
from tests.support.http.api_site import ADMIN_KEY, write_api_site
from tests.support.node.node import (
    KEY,
    NUMBER,
    OTHER_KEY,
    OUTBOUND,
    Client,
    bearer,
    clients_of_module,
    running,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

client = clients_of_module(write_api_site)

CALLS = "/api/v1/calls"
BATCH = {
    "agentId": OUTBOUND,
    "calls": [{"phoneNumber": f"+1415555010{last}", "promptVariables": {"name": "Bo"}} for last in range(3)],
}


class Kept(logging.Handler):
    """Keeps the log's lines as they are written, at once: the request is still being handled."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def log() -> Iterator[Kept]:
    kept = Kept()
    logging.getLogger().addHandler(kept)
    yield kept
    logging.getLogger().removeHandler(kept)


@pytest.mark.parametrize(("path", "status"), [(CALLS, 200), (f"{CALLS}/none", 404), ("/nowhere", 404)])
async def test_a_request_id_comes_back_on_whatever_is_answered(
    client: Client, path: str, status: int
) -> None:
    headers = bearer(KEY) | {"X-Request-Id": "from-the-proxy/7"}
    async with client.get(path, headers=headers) as answer:
        assert (answer.status, answer.headers["X-Request-Id"]) == (status, "from-the-proxy/7")


@pytest.mark.parametrize("given", [None, "", "two words", "x" * 129, "naïve"])
async def test_without_a_usable_request_id_each_request_gets_its_own(
    client: Client, given: str | None
) -> None:
    headers = bearer(KEY) | ({} if given is None else {"X-Request-Id": given})
    seen = set()
    for _ in range(2):
        async with client.get(CALLS, headers=headers) as answer:
            seen.add(answer.headers["X-Request-Id"])
    assert len(seen) == 2
    assert given not in seen


async def test_a_failure_is_found_in_the_log_by_its_request_id(
    client: Client, log: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("api.calls.listed", broken)
    await _placed(client, OUTBOUND)
    async with client.get(CALLS, headers=bearer(KEY)) as answer:
        assert answer.status == 500
        body = await answer.json()
    assert body == {"error": "Internal server error", "requestId": answer.headers["X-Request-Id"]}
    assert [line["request_id"] for line in log.lines if line["message"] == "request failed"] == [
        body["requestId"]
    ]


async def test_a_key_is_told_how_much_it_may_ask(client: Client) -> None:
    async with client.get(CALLS, headers=bearer(OTHER_KEY)) as answer:
        first = answer.headers
    async with client.get(CALLS, headers=bearer(OTHER_KEY)) as answer:
        second = answer.headers
    assert (first["RateLimit-Limit"], first["RateLimit-Policy"]) == ("200", "200;w=10")
    assert int(first["RateLimit-Remaining"]) == 199
    assert int(second["RateLimit-Remaining"]) in (198, 199)  # what time gives back
    assert 0 < int(second["RateLimit-Reset"]) <= 10


async def test_a_key_that_asked_too_much_is_told_when_it_may_again(tmp_path: Path) -> None:
    site = write_api_site(tmp_path, more="requests_per_minute = 6\n")
    async with running(site) as (_, client):
        async with client.get(CALLS, headers=bearer(KEY)) as answer:
            assert (answer.status, answer.headers["RateLimit-Remaining"]) == (200, "0")
        async with client.get(CALLS, headers=bearer(KEY)) as answer:
            assert (answer.status, answer.headers["RateLimit-Remaining"]) == (429, "0")
            assert abs(int(answer.headers["RateLimit-Reset"]) - int(answer.headers["Retry-After"])) <= 1


async def test_without_a_key_there_is_no_standing_to_tell(client: Client) -> None:
    async with client.get("/healthz") as answer:
        assert not [name for name in answer.headers if name.startswith("RateLimit")]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, deflate, br", "gzip"), ("identity", None), ("gzip;q=0", None), ("gzip;q=0.0, br", None)],
)
async def test_long_texts_are_sent_as_gzip_to_who_takes_it(
    client: Client, accepted: str, encoding: str | None
) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as plain:
        url, headers = client.make_url("/openapi.json"), {"Accept-Encoding": accepted}
        async with plain.get(url, headers=headers) as answer:
            body = await answer.read()
    assert answer.headers.get("Content-Encoding") == encoding
    assert answer.headers["Vary"] == "Accept-Encoding"
    document = json.loads(gzip.decompress(body) if encoding else body)
    assert document["openapi"].startswith("3.1")
    assert (len(body) < 40_000) is (encoding is not None)


async def test_short_answers_and_audio_are_not_compressed(client: Client) -> None:
    async with client.get("/healthz") as answer:
        assert "Content-Encoding" not in answer.headers
    body = {"text": "Hello there.", "format": "wav", "chunk_size": 100}
    async with client.post("/v1/text-to-speech/generate", json=body) as answer:
        assert (answer.status, "Content-Encoding" in answer.headers) == (200, False)


async def test_the_calls_of_a_batch_are_listed_by_its_id(client: Client) -> None:
    await _placed(client, OUTBOUND)
    async with client.post(f"{CALLS}/outbound", json=BATCH, headers=bearer(KEY)) as answer:
        batch = (await answer.json())["data"]
    seen: list[str] = []
    cursor = ""
    while True:  # two to a page
        query = {"batchId": batch["batchId"], "limit": "2", "cursor": cursor}
        async with client.get(CALLS, params=query, headers=bearer(KEY)) as answer:
            page = await answer.json()
        seen += [each["callTaskId"] for each in page["calls"]]
        assert {each["batchId"] for each in page["calls"]} == {batch["batchId"]}
        if not (cursor := page["cursor"]):
            break
    assert seen == [each["callTaskId"] for each in reversed(batch["items"])]
    async with client.get(CALLS, params={"batchId": batch["batchId"]}, headers=bearer(OTHER_KEY)) as answer:
        assert (await answer.json())["calls"] == []
    async with client.get(
        CALLS, params={"batchId": "none", "company": "acme"}, headers=bearer(ADMIN_KEY)
    ) as answer:
        assert (await answer.json())["calls"] == []


async def _placed(client: Client, agent: str) -> None:
    body = {"agentId": agent, "phoneNumber": NUMBER, "promptVariables": {"name": "Bo"}}
    async with client.post(f"{CALLS}/outbound", json=body, headers=bearer(KEY)) as answer:
        assert answer.status == 200, await answer.text()
