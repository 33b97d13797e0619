"""LiveKit's signalling spoken by hand: what no SDK does, and a server must live through."""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import jwt
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from livekit.protocol import models, rtc

from api.livekit import MESSAGE_LIMIT, SESSIONS
from mediaserver.rooms import registry
from mediaserver.rooms.livekit.signalling import BURST
from mediaserver.rooms.tokens import Grant
from tests.support.node.node import Node, node_of_module
from tests.support.waiting import until
from tests.support.webrtc.rooms import invite, write_web_site

pytestmark = pytest.mark.asyncio(loop_scope="module")


web = node_of_module(write_web_site)


class Wire:
    """One WebSocket, protobufs both ways."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket

    async def say(self, **request: Any) -> None:
        await self.socket.send_bytes(rtc.SignalRequest(**request).SerializeToString())

    async def hear(self, kind: str) -> rtc.SignalResponse:
        """The next message of that kind."""
        async with asyncio.timeout(30):
            while True:
                message = await self.socket.receive()
                assert message.type is WSMsgType.BINARY, (message.type, message.data, message.extra)
                response = rtc.SignalResponse.FromString(message.data)
                if response.WhichOneof("message") == kind:
                    return response

    async def closing(self) -> tuple[int, str]:
        """Reads to the end; the code and the reason."""
        async with asyncio.timeout(30):
            while True:
                message = await self.socket.receive()
                if message.type is WSMsgType.CLOSE:
                    return int(message.data), str(message.extra)
                assert message.type is WSMsgType.BINARY, message


@asynccontextmanager
async def wire(web: Node, token: str, *, path: str = "/rtc", **query: str) -> AsyncIterator[Wire]:
    _, client = web
    async with client.ws_connect(path, params={"access_token": token, **query}, max_msg_size=0) as socket:
        yield Wire(socket)


def single(request: rtc.JoinRequest) -> dict[str, str]:
    packed = rtc.WrappedJoinRequest(
        compression=rtc.WrappedJoinRequest.GZIP, join_request=gzip.compress(request.SerializeToString())
    )
    return {"join_request": base64.urlsafe_b64encode(packed.SerializeToString()).decode().rstrip("=")}


def sessions(web: Node) -> int:
    app = web[1].app
    assert app is not None
    return len(app[SESSIONS])


async def gone(web: Node, count: int = 0) -> None:
    await until(lambda: sessions(web) <= count)


CLAIMS = {"iss": "devkey", "sub": "eve", "exp": int(time.time()) + 600}
SECRET = "a-secret-of-thirty-two-characters"
VIDEO = {"room": "any", "roomJoin": True}
TOKENS = {
    "missing": "",
    "no token": "aaaa.bbbb.cccc",
    "forged": jwt.encode({**CLAIMS, "video": VIDEO}, "another-secret-of-thirty-two-chars", algorithm="HS256"),
    "unsigned": jwt.encode({**CLAIMS, "video": VIDEO}, "", algorithm="none"),
    "expired": jwt.encode(
        {**CLAIMS, "exp": int(time.time()) - 60, "video": VIDEO}, SECRET, algorithm="HS256"
    ),
    "of another issuer": jwt.encode({**CLAIMS, "iss": "x", "video": VIDEO}, SECRET, algorithm="HS256"),
    "without a room": jwt.encode(CLAIMS, SECRET, algorithm="HS256"),
    "that is enormous": "a" * 7000,
}


@pytest.mark.parametrize("path", ["/rtc", "/rtc/v1"])
@pytest.mark.parametrize("case", TOKENS)
async def test_a_token_that_opens_nothing_is_refused_and_the_reason_can_be_asked(
    web: Node, case: str, path: str
) -> None:
    _, client = web
    query = {"access_token": TOKENS[case], **(single(rtc.JoinRequest()) if path == "/rtc/v1" else {})}
    with pytest.raises(WSServerHandshakeError) as refused:
        await client.ws_connect(path, params=query)
    assert refused.value.status == 401
    async with client.get(f"{path}/validate", params=query) as answer:
        assert answer.status == 401
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert await answer.text() not in ("", "success")
    assert sessions(web) == 0


async def test_a_good_token_is_confirmed_from_query_and_header(web: Node) -> None:
    server, client = web
    token = invite(server).token
    async with client.get("/rtc/validate", params={"access_token": token}) as answer:
        assert (answer.status, await answer.text()) == (200, "success")
    async with client.get("/rtc/v1/validate", headers={"Authorization": f"Bearer {token}"}) as answer:
        assert (answer.status, await answer.text()) == (200, "success")


@pytest.mark.parametrize("path", ["/rtc", "/rtc/v1"])
async def test_why_nobody_may_join_is_told_to_who_asks(
    web: Node, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = web
    ticket = invite(server)
    over = server.room_registry.mint(Grant(room="never opened", identity="eve"))

    async def refused(token: str) -> tuple[int, int, str]:
        """How the WebSocket is refused, and what the SDK is told when it asks why."""
        with pytest.raises(WSServerHandshakeError) as refused:
            await client.ws_connect(path, params={"access_token": token, "join_request": "EgA="})
        async with client.get(f"{path}/validate", params={"access_token": token}) as answer:
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
            return refused.value.status, answer.status, await answer.text()

    why = "requested room does not exist: the room is over, or was never opened here"
    assert await refused(over) == (404, 404, why)
    assert await refused("forged") == (401, 401, "invalid token: Not enough segments")
    monkeypatch.setattr(registry.RoomRegistry, "__len__", lambda rooms: 1_000)
    assert await refused(ticket.token) == (503, 503, "this server takes no more web calls at the moment")
    monkeypatch.setattr(server.room_registry, "_draining", True)
    assert await refused(ticket.token) == (503, 503, "The server is draining")


@pytest.mark.parametrize("query", [{}, {"join_request": "!!!"}, {"join_request": "A" * 5000}])
async def test_a_join_request_that_cannot_be_read_is_refused(web: Node, query: dict[str, str]) -> None:
    server, client = web
    with pytest.raises(WSServerHandshakeError) as refused:
        await client.ws_connect("/rtc/v1", params={"access_token": invite(server).token, **query})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([b"\xff\xff\xff"], 1008),
        ([os.urandom(500)], 1008),
        (["{}"], 1003),
        ([bytes(MESSAGE_LIMIT + 1)], 1009),
        ([rtc.SignalRequest(trickle=rtc.TrickleRequest(candidateInit="{")).SerializeToString()], 1008),
        ([rtc.SignalRequest(ping=1).SerializeToString()] * (BURST + 200), 1008),
    ],
    ids=["garbage", "noise", "text", "oversized", "candidate", "flood"],
)
async def test_a_client_that_misbehaves_loses_its_websocket_and_may_come_back(
    web: Node, frames: list[bytes | str], code: int
) -> None:
    server, _ = web
    ticket = invite(server)
    async with wire(web, ticket.token) as socket:
        sid = (await socket.hear("join")).join.participant.sid
        for frame in frames:
            if isinstance(frame, str):
                await socket.socket.send_str(frame)
            else:
                await socket.socket.send_bytes(frame)
        closed = await socket.closing()
        assert closed[0] == code
    async with wire(web, ticket.token, sid=sid, reconnect="1") as again:
        assert (await again.hear("reconnect")).reconnect.server_info.protocol > 0
        await again.say(leave=rtc.LeaveRequest(reason=models.CLIENT_INITIATED))
        assert (await again.hear("leave")).leave.reason == models.CLIENT_INITIATED
    await gone(web)


async def test_who_starts_over_finds_the_room_still_there(web: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = web
    ticket = invite(server)
    async with wire(web, ticket.token) as ann:
        await ann.hear("join")
        await ann.say(leave=rtc.LeaveRequest())  # as the Rust SDK does where it cannot resume
        await ann.hear("leave")
    monkeypatch.setattr(registry, "RETURN_S", 0.05)
    async with wire(web, ticket.token) as ann:
        await ann.hear("join")
        await ann.say(leave=rtc.LeaveRequest())
        await ann.hear("leave")
    await until(lambda: ticket.room_name not in server.room_registry._rooms)


async def test_only_ones_own_session_can_be_resumed(web: Node) -> None:
    server, _ = web
    ticket = invite(server)
    other = server.room_registry.mint(Grant(room=ticket.room_name, identity="eve"))
    async with wire(web, ticket.token) as ann:
        sid = (await ann.hear("join")).join.participant.sid
        for token, wanted in ((other, sid), (ticket.token, "PA_nobody")):
            async with wire(web, token, sid=wanted, reconnect="1") as thief:
                leave = (await thief.hear("leave")).leave
                assert (leave.reason, leave.action) == (models.STATE_MISMATCH, rtc.LeaveRequest.RECONNECT)
        await ann.say(ping=1)
        await ann.hear("pong")
        await ann.say(leave=rtc.LeaveRequest(reason=models.CLIENT_INITIATED))
        await ann.hear("leave")
    await gone(web)


BOMBS = {
    "empty": "",
    "no description": "hello",
    "too large": "v=0\r\n" + "a=x\r\n" * 20_000,
    "sections": "v=0\r\n" + "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n" * 500,
    "no transport": "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\n",
    "video only": "v=0\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:0\r\n",
}


@pytest.mark.parametrize("case", BOMBS)
async def test_an_offer_that_cannot_be_answered_ends_that_session_and_no_other(web: Node, case: str) -> None:
    server, _ = web
    good, bad = invite(server), invite(server)
    async with wire(web, good.token) as ann, wire(web, bad.token, path="/rtc/v1", **single(JOIN)) as eve:
        await ann.hear("join")
        await eve.hear("join")
        await eve.say(offer=rtc.SessionDescription(type="offer", sdp=BOMBS[case], id=1))
        assert (await eve.hear("leave")).leave.reason == models.STATE_MISMATCH
        await ann.say(ping=1)
        await ann.hear("pong")
        await ann.say(leave=rtc.LeaveRequest(reason=models.CLIENT_INITIATED))
        await ann.hear("leave")
    await gone(web)


JOIN = rtc.JoinRequest(client_info=models.ClientInfo(sdk=models.ClientInfo.GO, version="1"))


@pytest.mark.nightly("ci")
async def test_two_hundred_joins_and_leaves_leave_nothing_behind(web: Node) -> None:
    server, _ = web

    async def visit(how: int) -> None:
        ticket = invite(server)
        query = {} if how % 2 else single(JOIN)
        async with wire(web, ticket.token, path="/rtc" if how % 2 else "/rtc/v1", **query) as socket:
            await socket.hear("join")
            if how % 2:
                await socket.hear("offer")
            if how % 3:
                await socket.say(leave=rtc.LeaveRequest(reason=models.CLIENT_INITIATED))
                await socket.hear("leave")
            else:
                await server.room_registry.hang_up([ticket.room_name])

    def counts() -> tuple[int, int, int, int]:
        files = len(os.listdir("/proc/self/fd"))
        return (
            len(asyncio.all_tasks()),
            files,
            len(server.room_registry._ports[0]),
            server.room_registry.rooms,
        )

    for how in range(6):
        await visit(how)
    await gone(web)
    await asyncio.sleep(0.3)
    before = counts()
    for how in range(200):
        await visit(how)
    await gone(web)
    limits = before[0] + 1, before[1] + 1, 0, before[3]
    with suppress(TimeoutError):
        # goodbyes take as long as the machine is busy
        await until(lambda: all(count <= limit for count, limit in zip(counts(), limits, strict=True)))
    assert all(count <= limit for count, limit in zip(counts(), limits, strict=True)), (before, counts())
