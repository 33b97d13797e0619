"""A running server among HTTP clients that do not finish: they are ended, and calls go on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from resource import RLIMIT_NOFILE, prlimit

import aiohttp
import pytest
from livekit.protocol import rtc

from mediaserver.http.deadlines import CLOSING_S, HttpDeadlines, HttpPatience, Overdue, Progress
from tests.support.hostile.half_sent import BODY, CHUNKS, HEAD, Client, closed, error, several, status
from tests.support.http.api_site import WEB_KEY, write_api_site
from tests.support.node.node import (
    OUTBOUND,
    REAL_ENGINES,
    SPEECH_KEY,
    ServerProcess,
    Site,
    serving,
    write_site,
)
from tests.support.node.stalling import packets_heard
from tests.support.sip.raw_call import RawCall
from tests.system.robustness.test_hostile import LONG, STORYTELLER, TELLS

SECONDS = 2.0
MOST = 0.8  # of the packets that a call sends in a time; a busy machine is allowed to lose some

PATIENCE = HttpPatience(head_s=10, body_s=20, body_bytes_per_s=500, answer_s=60)
QUIET = Progress(body=None, reading=True, unread=0, closing=False)


def a_site(directory: Path, **keys: object) -> Site:
    site = write_site(directory, engines=REAL_ENGINES, more=TELLS.replace("STORY", LONG))
    lines = "".join(f"{name} = {value}\n" for name, value in keys.items())
    site.add("[server]", lines)
    return site


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    site = a_site(tmp_path, http_head_s=2, http_body_s=2, http_connections_per_address=1000)
    with serving(site) as server:
        server.wait_ready(90)
        yield server


@asynccontextmanager
async def a_call(server: ServerProcess) -> AsyncIterator[RawCall]:
    """A call that hears the agent."""
    async with RawCall(server.site.sip, STORYTELLER) as call:
        await call.answered()
        await call.sound()
        yield call
        await call.hang_up()


async def get(port: int, path: str, *, address: str = "127.0.0.1") -> bytes:
    async with await Client.connect(port, address=address) as client:
        client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return await client.rest()


# Heads and bodies -----------------------------------------------------------------------------------------


@pytest.mark.peer
async def test_half_sent_heads_and_bodies_are_ended(server: ServerProcess) -> None:
    port = server.site.http
    clients = [await several(50, port, data) for data in (b"", HEAD, BODY, CHUNKS)]
    silent, heads, bodies, chunks = await asyncio.gather(*(closed(each, 20.0) for each in clients))
    assert {status(answer) for answer in silent} == {0}
    assert {status(answer) for answer in (*heads, *bodies, *chunks)} == {408}
    assert error(bodies[0]) == "The request did not arrive in time"
    counted = (await get(port, "/metrics")).decode()
    for what, least in (("head", 100), ("body", 100)):
        found = re.search(rf'mediaserver_http_late_total{{what="{what}"}} (\S+)', counted)
        assert found is not None
        assert float(found[1]) >= least
    log = server.log.read_text()
    assert "Traceback" not in log
    assert len(log.splitlines()) < 20


@pytest.mark.nightly("ci")
@pytest.mark.peer
async def test_a_head_that_stops_on_a_connection_that_was_used_is_ended(server: ServerProcess) -> None:
    async with await Client.connect(server.site.http) as client:
        client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" in await client.reader.readline()
        await client.reader.readuntil(b"}")
        await asyncio.sleep(4)  # it may idle longer than a head takes
        client.send(HEAD)
        assert status(await client.rest()) == 408


@pytest.mark.nightly("ci")
@pytest.mark.peer
async def test_an_upload_that_is_slow_and_comes_is_taken(server: ServerProcess) -> None:
    """A text, a kilobyte a second: four times as long as a body that does not come."""
    words = "Slow lines are honest. " * 180
    body = json.dumps({"text": words, "format": "pcm", "chunk_size": 100}).encode()
    async with await Client.connect(server.site.http) as client:
        client.send(
            f"POST /v1/text-to-speech/generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: Bearer {SPEECH_KEY}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
        )
        for at in range(0, len(body), 500):
            client.send(body[at : at + 500])
            await asyncio.sleep(0.5)
        async with asyncio.timeout(30):
            assert status(await client.reader.readline()) == 200
            assert len(await client.reader.read(100_000)) > 0


@pytest.mark.nightly("ci")
@pytest.mark.peer
async def test_a_client_that_leaves_is_no_failure(server: ServerProcess) -> None:
    port = server.site.http
    for data in (
        HEAD,
        BODY,
        CHUNKS,
        BODY[:40],
        b"\x16\x03\x01 no HTTP at all\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
    ):
        for reset in (True, False):
            for client in await several(10, port, data):
                if reset:
                    sock = client.writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                await client.close()
    async with await Client.connect(port) as client:
        client.send(CHUNKS + b"no chunk at all\r\n")
        assert status(await client.rest()) == 400
    assert status(await get(port, "/healthz")) == 200
    log = server.log.read_text()
    assert "Traceback" not in log
    assert len(log.splitlines()) < 20


@pytest.mark.peer
async def test_a_websocket_is_not_timed(tmp_path: Path) -> None:
    site = write_api_site(tmp_path, engines=REAL_ENGINES, more="http_head_s = 1\nhttp_body_s = 1\n")
    with serving(site) as server:
        await asyncio.to_thread(server.wait_ready, 90)
        body = {"agentId": OUTBOUND, "metadata": {"promptVariables": {"name": "Bo"}}}
        _, told = await asyncio.to_thread(server.ask, "POST", "/api/v1/web-calls/connect", body, WEB_KEY)
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{site.http}") as http,
            http.ws_connect("/rtc", params={"access_token": told["participantToken"]}) as room,
        ):
            assert await told_of(room, "join")
            await asyncio.sleep(5)
            await room.send_bytes(rtc.SignalRequest(ping_req=rtc.Ping(timestamp=1)).SerializeToString())
            assert await told_of(room, "pong_resp")


async def told_of(room: aiohttp.ClientWebSocketResponse, what: str) -> bool:
    """Reads until the server says `what`; False: it closed."""
    async with asyncio.timeout(20):
        async for message in room:
            response = rtc.SignalResponse()
            response.ParseFromString(message.data)
            if response.WhichOneof("message") == what:
                return True
    return False


# Caps -----------------------------------------------------------------------------------------------------


@pytest.mark.nightly("ci")
@pytest.mark.peer
async def test_an_address_has_so_many_connections_and_another_its_own(tmp_path: Path) -> None:
    site = a_site(tmp_path, http_connections_per_address=10, http_connections=15, http_head_s=60)
    with serving(site) as server:
        server.wait_ready(90)
        # From another address than `wait_ready`, whose last connection may still be open.
        clients = await several(10, site.http, HEAD, address="127.0.0.4")
        refused = await get(site.http, "/healthz", address="127.0.0.4")
        assert status(refused) == 503
        assert b"Retry-After: 2" in refused
        assert error(refused) == "Too many connections from this address"
        assert status(await get(site.http, "/healthz", address="127.0.0.2")) == 200
        for _ in range(50):
            assert status(await get(site.http, "/healthz", address="127.0.0.4")) == 503
        more = [await Client.connect(site.http, address="127.0.0.2") for _ in range(5)]
        assert error(await get(site.http, "/healthz", address="127.0.0.3")).startswith("The server has")
        for client in (*clients, *more):
            await client.close()
        async with asyncio.timeout(10):
            while status(await get(site.http, "/healthz", address="127.0.0.4")) != 200:
                await asyncio.sleep(0.05)
        assert server.log.read_text().count("connections refused") == 1


@pytest.mark.nightly("ci")
@pytest.mark.peer
async def test_a_trusted_proxy_has_as_many_connections_as_there_are(tmp_path: Path) -> None:
    site = a_site(
        tmp_path, http_connections_per_address=10, http_connections=20, trusted_proxies='["127.0.0.1/32"]'
    )
    with serving(site) as server:
        server.wait_ready(90)
        clients = await several(15, site.http, HEAD)
        assert status(await get(site.http, "/healthz")) == 200
        more = [await Client.connect(site.http, address="127.0.0.2") for _ in range(5)]
        refused = await get(site.http, "/healthz")
        assert error(refused) == "The server has too many connections"
        for client in clients:
            await client.close()
        async with asyncio.timeout(10):
            while status(await get(site.http, "/healthz")) != 200:
                await asyncio.sleep(0.05)
        rest = [await Client.connect(site.http, address="127.0.0.2") for _ in range(5)]
        refused = await get(site.http, "/healthz", address="127.0.0.2")
        assert error(refused) == "Too many connections from this address"
        for client in (*more, *rest):
            await client.close()


# Descriptors ----------------------------------------------------------------------------------------------

OPEN_FILES = 300


@pytest.mark.peer
async def test_calls_have_descriptors_when_everything_else_has_none(tmp_path: Path) -> None:
    """The soft limit is raised; then HTTP and SIP over TCP take what they get."""
    site = a_site(tmp_path)
    with serving(site, open_files=(OPEN_FILES // 2, OPEN_FILES)) as server:
        await asyncio.to_thread(server.wait_ready, 90)
        assert prlimit(server.process.pid, RLIMIT_NOFILE) == (OPEN_FILES, OPEN_FILES)
        async with a_call(server) as call:
            flood = await several(400, site.http, HEAD)
            peers = [
                await Client.connect(site.sip, address=f"127.0.0.{number}")
                for number in range(1, 5)
                for _ in range(100)
            ]
            assert status(await get(site.http, "/healthz")) == 503
            async with a_call(server):
                assert await packets_heard(call, SECONDS) > MOST * 50 * SECONDS
            held = len(await asyncio.to_thread(os.listdir, f"/proc/{server.process.pid}/fd"))
            assert held < OPEN_FILES - 40
            for client in (*flood, *peers):
                await client.close()
            async with asyncio.timeout(10):
                while status(await get(site.http, "/healthz")) != 200:
                    await asyncio.sleep(0.05)
        log = server.log.read_text()
        assert "Traceback" not in log
        assert 1 <= log.count("connections refused") <= 2
        assert len(log.splitlines()) < 30


# Deadlines, by hand ---------------------------------------------------------------------------------------


def late(deadlines: HttpDeadlines, progress: Progress, *, until: int, start: int = 0) -> tuple[int, Overdue]:
    """The second at which something is overdue, and what."""
    for now in range(start, until):
        overdue = deadlines.overdue(now, progress)
        if overdue is not None:
            return now, overdue
    return until, Overdue.ANSWER


def in_request() -> HttpDeadlines:
    deadlines = HttpDeadlines(PATIENCE, 0)
    deadlines.request(0)
    return deadlines


def test_a_first_head_is_due() -> None:
    assert late(HttpDeadlines(PATIENCE, 0), QUIET, until=100) == (11, Overdue.HEAD)


def test_a_connection_between_requests_is_left_alone_until_it_begins_one() -> None:
    deadlines = in_request()
    deadlines.answered()
    assert all(deadlines.overdue(now, QUIET) is None for now in range(1000))
    deadlines.octets(1000)
    deadlines.octets(1009)
    assert late(deadlines, QUIET, start=1000, until=1100) == (1011, Overdue.HEAD)


def test_a_request_may_take_as_long_as_it_likes_once_it_is_there() -> None:
    deadlines = in_request()
    assert all(deadlines.overdue(now, QUIET) is None for now in range(100_000))


@pytest.mark.parametrize(("octets_per_s", "overdue_at"), [(0, 21), (1, 21), (250, 41), (500, None)])
def test_a_body_comes_at_a_rate(octets_per_s: int, overdue_at: int | None) -> None:
    deadlines = in_request()
    for now in range(10_000):
        progress = Progress(body=octets_per_s * now, reading=True, unread=0, closing=False)
        if deadlines.overdue(now, progress) is not None:
            assert now == overdue_at
            return
    assert overdue_at is None


def test_time_in_which_a_body_is_not_read_does_not_count() -> None:
    deadlines = in_request()
    held = Progress(body=65_536, reading=False, unread=0, closing=False)
    assert all(deadlines.overdue(now, held) is None for now in range(1000))
    read = Progress(body=100, reading=True, unread=0, closing=False)
    assert late(deadlines, read, start=1000, until=2000) == (1020, Overdue.BODY)


def test_an_answer_that_nobody_takes_is_not_kept() -> None:
    full = Progress(body=None, reading=True, unread=90_000, closing=False)
    assert late(in_request(), full, until=1000) == (61, Overdue.ANSWER)
    deadlines = in_request()
    for now in range(1000):
        taken = Progress(body=None, reading=True, unread=90_000 - now, closing=False)
        assert deadlines.overdue(now, taken) is None
    ending = Progress(body=None, reading=True, unread=500, closing=True)
    assert late(in_request(), ending, until=1000) == (CLOSING_S + 1, Overdue.ANSWER)
