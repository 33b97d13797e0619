"""Who guesses at API keys, and who opens one public talk after the other, over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import ClientSession, TCPConnector

from api.http.auth import GUESSES
from mediaserver.admission.key_guessing import PREFIX_TRIES
from mediaserver.rooms.registry import RoomRegistry
from tests.support.node.node import KEY, OTHER_KEY, SPEECH_KEY, Client, Node, bearer, running
from tests.support.webrtc.rooms import AGENT, CALLS_KEY, TALKER, write_web_site

CALLS = "/api/v1/calls"
PROXY = '[server]\ntrusted_proxies = ["127.0.0.0/8"]\n'


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Node]:
    """Behind a proxy, which tells who asks."""
    where = write_web_site(tmp_path, public=True)
    where.change("[server]\n", PROXY)
    async with running(where) as running_site:
        yield running_site


async def ask(client: Client, key: str, address: str, path: str = CALLS) -> tuple[int, int]:
    """Status, and the seconds of Retry-After."""
    headers = {**bearer(key), "X-Forwarded-For": address}
    async with client.get(path, headers=headers) as answer:
        return answer.status, int(answer.headers.get("Retry-After", 0))


async def guess(client: Client, address: str, tries: int) -> Counter[int]:
    return Counter([(await ask(client, f"guess {number}", address))[0] for number in range(tries)])


def go_on(client: Client, name: str, key: str = "") -> None:
    """As if the guessing from `name`, an address or a /64, had gone on until the longest wait."""
    assert client.app is not None
    now = asyncio.get_running_loop().time()
    for number in range(PREFIX_TRIES + 20):
        list(client.app[GUESSES].wrong(name, f"{key[:7] or number}{number}", now))


async def test_guessing_is_slowed_counted_and_told_and_keeps_nobody_out_who_was_in(
    site: Node, caplog: pytest.LogCaptureFixture
) -> None:
    _, client = site
    assert (await ask(client, KEY, "203.0.113.9"))[0] == 200
    with caplog.at_level(logging.INFO):
        answers = await guess(client, "203.0.113.9", 400)
    assert set(answers) == {401, 429}
    assert answers[401] < 40
    told = [record for record in caplog.records if record.message == "API keys are guessed"]
    assert 1 <= len(told) <= 2
    assert vars(told[0])["address"] == "203.0.113.9"
    assert not [record for record in caplog.records if "guess " in str(vars(record))]
    # Right and wrong keys that were not used here before get the same answer, for a while.
    go_on(client, "203.0.113.9")
    for key in (OTHER_KEY, "guess x"):
        status, wait_s = await ask(client, key, "203.0.113.9")
        assert (status, wait_s > 3500) == (429, True)
    # Who was here before goes on, and everybody elsewhere.
    assert (await ask(client, KEY, "203.0.113.9"))[0] == 200
    assert (await ask(client, OTHER_KEY, "203.0.113.10"))[0] == 200
    async with client.get("/metrics") as answer:
        metrics = await answer.text()
    assert f'mediaserver_wrong_keys_total{{outcome="unknown"}} {float(answers[401])}' in metrics
    assert 'mediaserver_key_bans_total{by="address",standing="slowed"} 1.0' in metrics


async def test_an_ipv6_subscriber_is_one_address(site: Node) -> None:
    _, client = site
    keys = [await ask(client, f"{number} guess", f"2001:db8:1:2::{number:x}") for number in range(60)]
    assert Counter(status for status, _ in keys)[429] > 20
    go_on(client, "2001:db8:1:2::/64")
    assert (await ask(client, KEY, "2001:db8:1:2::ffff"))[0] == 429
    assert (await ask(client, KEY, "2001:db8:1:3::1"))[0] == 200


async def test_a_beginning_is_guarded_against_many_addresses(site: Node) -> None:
    _, client = site
    assert (await ask(client, KEY, "203.0.113.9"))[0] == 200
    tried = [await ask(client, f"{KEY[:7]}{number}", f"198.51.100.{number}") for number in range(150)]
    assert Counter(status for status, _ in tried)[429] > 20
    go_on(client, "198.51.100.250", KEY)
    assert (await ask(client, KEY, "198.51.100.200"))[0] == 429
    assert (await ask(client, KEY, "203.0.113.9"))[0] == 200
    assert (await ask(client, OTHER_KEY, "198.51.100.200"))[0] == 200


async def test_every_door_has_the_same_guard(site: Node) -> None:
    """Speech, for which a key is optional, is another way to ask whether a key is right."""
    _, client = site
    body = {"text": "Hi.", "format": "wav", "chunk_size": 128}
    statuses = Counter[int]()
    for number in range(60):
        headers = {**bearer(f"{number} guess"), "X-Forwarded-For": "203.0.113.9"}
        async with client.post("/v1/text-to-speech/generate", json=body, headers=headers) as answer:
            statuses[answer.status] += 1
    assert set(statuses) == {401, 429}
    go_on(client, "203.0.113.9")
    assert (await ask(client, SPEECH_KEY, "203.0.113.9"))[0] == 429
    assert (await ask(client, "the-servers-own", "203.0.113.9", "/api/v1/companies"))[0] == 429


async def test_without_a_proxy_the_connection_says_who_asks(tmp_path: Path) -> None:
    """What a client writes into X-Forwarded-For makes nobody of it another one."""
    async with running(write_web_site(tmp_path)) as (_, client):
        tried = [await ask(client, f"{number} guess", f"198.51.100.{number}") for number in range(100)]
        assert Counter(status for status, _ in tried)[429] > 50
        go_on(client, "127.0.0.1")
        assert (await ask(client, KEY, "198.51.100.200"))[0] == 429
        connector = TCPConnector(local_addr=("127.0.0.2", 0))
        async with ClientSession(connector=connector) as other:
            url = client.make_url(CALLS)
            async with other.get(url, headers=bearer(KEY)) as answer:
                assert answer.status == 200


# Talks without a key ----------------------------------------------------------------------------------------


async def begin(client: Client, address: str, agent: str = AGENT) -> tuple[int, int]:
    headers = {"X-Forwarded-For": address}
    async with client.post(f"/talk/{agent}/session", headers=headers) as answer:
        body = await answer.json()
        assert answer.status == 200 or set(body) == {"error"}
        return answer.status, int(answer.headers.get("Retry-After", 0))


async def test_visitors_are_limited_each_and_together(tmp_path: Path) -> None:
    site = write_web_site(tmp_path, public=True)
    limits = "[rooms]\npublic_talk_at_once = 13\npublic_talk_at_once_each = 3\n"
    site.change("[server]\n", PROXY).change("[rooms]\n", limits)
    async with running(site) as (server, client):
        first = [await begin(client, "203.0.113.9") for _ in range(200)]
        assert [status for status, _ in first[:4]] == [200, 200, 200, 429]
        assert {status for status, _ in first[3:]} == {429}
        assert all(wait_s > 0 for status, wait_s in first if status == 429)
        assert server.room_registry.rooms == 3
        second = [(await begin(client, "203.0.113.10", TALKER))[0] for _ in range(4)]
        assert second == [200, 200, 200, 429]
        assert [(await begin(client, f"198.51.100.{n}"))[0] for n in range(3)] == [200, 429, 429]
        assert server.room_registry.rooms == 7
        # With a key as many as ever: they are the company's own.
        body = {"agentId": AGENT}
        async with client.post("/api/v1/web-calls/connect", json=body, headers=bearer(CALLS_KEY)) as answer:
            assert answer.status == 200
        # A room that is over makes place.
        await server.room_registry.hang_up([next(iter(server.room_registry._rooms))])
        assert (await begin(client, "198.51.100.99"))[0] == 200


async def test_one_address_begins_so_many_a_minute(site: Node) -> None:
    server, client = site
    begun = Counter[int]()
    for _ in range(60):
        status, _ = await begin(client, "203.0.113.9")
        begun[status] += 1
        await server.room_registry.hang_up(list(server.room_registry._rooms))
    assert set(begun) == {200, 429}
    assert (await begin(client, "203.0.113.10"))[0] == 200


async def test_a_visitor_who_does_not_come_gives_the_place_back(site: Node) -> None:
    server, client = site
    assert (await begin(client, "203.0.113.9"))[0] == 200
    room_registry: RoomRegistry = server.room_registry
    (name,) = room_registry._rooms
    room = room_registry._rooms[name].room
    assert room.expired(room._created_s + 16)
    assert not room.expired(room._created_s + 14)
