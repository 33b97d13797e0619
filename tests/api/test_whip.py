"""A browser without an SDK: WHIP in, a conversation like a phone call's, and everything that may go wrong."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mediaserver.admin.access import Access
from mediaserver.errors import InvalidRequest, NotFound, ScopeMissing
from mediaserver.rooms.room import EMPTY_TIMEOUT_S
from mediaserver.rooms.tokens import Grant, mint
from mediaserver.rooms.web_call import WebCallRequest
from tests.support.node.node import OUTBOUND, REAL_ENGINES, Node, bearer, running, until_final
from tests.support.speech.tones import share_at
from tests.support.waiting import until
from tests.support.webrtc.rooms import AGENT, CALLS_KEY, NEEDY, bearing, invite, join, spoken, write_web_site
from tests.support.webrtc.rtc import rtc_client

SECRET = "a-secret-of-thirty-two-characters"


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(write_web_site(tmp_path)) as running_site:
        yield running_site


def words(events: list[dict[str, Any]], *, speaker: str) -> list[str]:
    told = [json.loads(each["text"]) for each in events if each.get("event") == "message"]
    return [each["text"] for each in told if each["type"] == "words" and each["speaker"] == speaker]


def states(events: list[dict[str, Any]]) -> list[str]:
    """What the agent was told to be doing."""
    told = [json.loads(each["text"]) for each in events if each.get("event") == "message"]
    return [each["state"] for each in told if each["type"] == "state"]


async def test_a_spoken_answer_is_understood_and_the_call_is_kept_like_any_other(tmp_path: Path) -> None:
    answer = spoken(tmp_path / "yes.wav", "yes")
    async with running(write_web_site(tmp_path, engines=REAL_ENGINES)) as (server, client):
        ticket = invite(server, metadata={"order": 7})
        keep = tmp_path / "heard.wav"
        async with rtc_client(wav=str(answer), loop=False, keep=str(keep)) as rtc:
            await join(client, rtc, ticket.token)
            await rtc.event("sound")  # the greeting
            # and its end: a caller who is understood does not talk over it
            await until(lambda: states(rtc.events)[-2:] == ["speaking", "listening"])
            rtc.tell(wav=str(answer))
            await rtc.event("closed", timeout_s=30)
            report = await rtc.end()
        call = await until_final(client, ticket.room_name, key=CALLS_KEY)
        record = await server.call_api.call(Access("web"), ticket.room_name)
    assert call["direction"] == "web"
    assert call["status"] == "COMPLETED"
    assert call["phoneNumber"] == "ann"
    assert call["metadata"] == {"order": 7}
    assert call["analysis"]["disposition"] == "answered"
    assert call["analysis"]["answers"] == {"wanted": "yes"}
    assert [line["role"] for line in call["transcript"]][:2] == ["agent", "caller"]
    assert call["turns"][-1]["latency"]["voiceToVoiceMs"] > 0
    assert await asyncio.to_thread(Path(record.recording_path).stat)
    assert "yes" in words(rtc.events, speaker="caller")
    assert "Thank you. Goodbye." in words(rtc.events, speaker="agent")
    assert json.loads(rtc.events[-1].get("text", "{}") or "{}") is not None
    assert report["loudest"] > 1000


async def test_events_of_a_web_call_are_told_in_order(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with rtc_client() as rtc:
        url = await join(client, rtc, ticket.token)
        await rtc.event("connected")
        await rtc.event("message")
        async with client.delete(url) as answer:
            assert answer.status == 200
        call = await until_final(client, ticket.room_name, key=CALLS_KEY)
        async with client.delete(url) as answer:
            assert answer.status == 404
    assert call["endedBy"] == "remote"
    rows = await server._open().db.read(
        lambda tx: [row["kind"] for row in tx.rows("SELECT kind FROM outbox ORDER BY position")]
    )
    assert rows[0] == "webcall.started"
    assert "webcall.ended" in rows
    assert not {"call.answered", "call.completed"} & set(rows)
    await until(lambda: not server.room_registry.rooms)


async def test_a_client_that_closes_its_connection_before_its_delete_has_hung_up(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with rtc_client() as rtc:
        url = await join(client, rtc, ticket.token)
        await rtc.event("message")
        await rtc.end()  # closes the connection; a browser's DELETE is overtaken like this
        async with client.delete(url) as answer:
            assert answer.status == 200
        call = await until_final(client, ticket.room_name, key=CALLS_KEY)
    assert (call["endedBy"], call["hangupCause"]) == ("remote", "normal")


async def test_the_api_hangs_a_web_call_up(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with rtc_client() as rtc:
        await join(client, rtc, ticket.token)
        await rtc.event("message")
        url = f"/api/v1/calls/{ticket.room_name}/hangup"
        async with client.post(url, headers=bearer(CALLS_KEY)) as answer:
            assert answer.status == 200, await answer.text()
        await rtc.event("closed")
        call = await until_final(client, ticket.room_name, key=CALLS_KEY)
        told = [json.loads(each["text"]) for each in rtc.events if each.get("event") == "message"]
    assert call["endedBy"] == "local"
    assert told[-1]["type"] == "ended"


async def test_a_second_window_takes_over_from_the_first(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with rtc_client() as first, rtc_client() as second:
        await join(client, first, ticket.token)
        await first.event("message")
        await join(client, second, ticket.token)
        await first.event("closed")
        await second.event("connected")
        told = [json.loads(each["text"]) for each in first.events if each.get("event") == "message"]
        assert told[-1] == {"type": "ended", "reason": "duplicate_identity"}


async def test_a_supervisor_hears_both_and_is_not_heard(web: Node, tmp_path: Path) -> None:
    server, client = web
    ticket = invite(server)
    grant = Grant(room=ticket.room_name, identity="boss")
    claims = server.room_registry.verify(server.room_registry.mint(grant))
    listener = Grant(
        room=ticket.room_name,
        identity="boss",
        permissions=type(claims.permissions)(publish=False),
    )
    heard = {name: tmp_path / f"{name}.wav" for name in ("ann", "boss")}
    async with (
        rtc_client(tone=440, keep=str(heard["ann"])) as ann,
        rtc_client(tone=900, keep=str(heard["boss"])) as boss,
    ):
        await join(client, ann, ticket.token)
        await ann.event("connected")
        await join(client, boss, server.room_registry.mint(listener))
        await boss.event("sound")
        ann.tell(message=json.dumps({"type": "text", "text": "perhaps"}))
        await asyncio.sleep(2.0)  # the agent asks again, ann hums on
        await ann.end()
        await boss.event("closed")  # the room ends with the last who may speak
        await boss.end()
        call = await until_final(client, ticket.room_name, key=CALLS_KEY)
    assert call["status"] == "COMPLETED"
    shares = {name: [loudest_share(path, hz) for hz in (200, 440, 900)] for name, path in heard.items()}
    assert min(shares["boss"][:2]) > 0.2  # the agent, whose voice hums at 200 Hz, and ann
    assert shares["ann"][0] > 0.2
    assert max(shares["ann"][2], shares["boss"][2]) < 0.1  # nobody hears the supervisor


def loudest_share(path: Path, hz: float) -> float:
    """The most that any half second of a file has of a tone."""
    with wave.open(str(path)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    pieces = [samples[at : at + rate // 2] for at in range(0, len(samples) - rate // 2, rate // 4)]
    return max(share_at(piece, rate, hz) for piece in pieces)


async def test_what_does_not_open_a_room(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    other = mint(Grant(room="elsewhere", identity="eve"), key="devkey", secret=SECRET)
    forged = mint(Grant(room=ticket.room_name, identity="eve"), key="devkey", secret="x" * 40)
    expired = mint(
        Grant(room=ticket.room_name, identity="eve"), key="devkey", secret=SECRET, wall_s=1_000_000_000
    )
    for token, status in ((other, 404), (forged, 401), (expired, 401), ("", 401), ("x" * 40_000, 401)):
        headers = bearing(token[:8000])
        async with client.post("/rtc/whip", data="v=0\r\n", headers=headers) as answer:
            assert answer.status == status
            assert "error" in await answer.json()
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert server.room_registry.rooms == 1


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        pytest.param("v=0\r\n", "application/json", 400, id="not SDP by its type"),
        pytest.param("hello", "application/sdp", 400, id="prose"),
        pytest.param("v=0\r\n" + "a=x\r\n" * 30_000, "application/sdp", 400, id="a bomb of lines"),
        pytest.param("v=0\r\n" + "a" * 2_000_000, "application/sdp", 413, id="two megabytes"),
        pytest.param(b"\xff\xfe", "application/sdp", 400, id="not text"),
        pytest.param(
            "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:0\r\n", "application/sdp", 400, id="no Opus"
        ),
    ],
)
async def test_a_bad_offer_is_refused_and_holds_nothing(
    web: Node, body: str | bytes, content_type: str, status: int
) -> None:
    server, client = web
    ticket = invite(server)
    headers = bearing(ticket.token) | {"Content-Type": content_type}
    content = io.BytesIO(body if isinstance(body, bytes) else body.encode())
    async with client.post("/rtc/whip", data=content, headers=headers) as answer:
        assert answer.status == status, await answer.text()
    assert len(server.room_registry._ports[0]) == 0
    assert len(server.room_registry) == 0


async def test_a_full_server_says_so(web: Node) -> None:
    server, client = web
    tickets = [invite(server) for _ in range(4)]
    async with rtc_client() as one, rtc_client() as two, rtc_client() as three:
        for rtc, ticket in zip((one, two, three), tickets, strict=False):
            await join(client, rtc, ticket.token)
            await rtc.event("connected")
        await until(lambda: len(server.room_registry) >= 3)  # their calls have begun
        async with client.post("/rtc/whip", data="v=0\r\n", headers=bearing(tickets[3].token)) as answer:
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0


async def test_a_page_of_another_origin_may_ask(web: Node) -> None:
    _, client = web
    headers = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
    async with client.options("/rtc/whip", headers=headers) as answer:
        assert answer.status == 204
        assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
        assert "Location" in answer.headers["Access-Control-Expose-Headers"]


async def test_candidates_trickle_and_nonsense_is_refused(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with rtc_client() as rtc:
        url = await join(client, rtc, ticket.token)
        headers = {"Content-Type": "application/trickle-ice-sdpfrag"}
        for fragment, status in (
            ("a=mid:0\r\na=candidate:1 1 udp 2113937151 127.0.0.1 50000 typ host\r\n", 204),
            ("a=candidate:1 1 udp 2113937151 0b1a.local 50000 typ host\r\n", 204),
            ("", 204),
            ("a=candidate:nonsense\r\n", 400),
            ("a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n", 200),
        ):
            async with client.patch(url, data=fragment, headers=headers) as answer:
                assert answer.status == status, await answer.text()
        async with client.patch("/rtc/whip/unknown", data="", headers=headers) as answer:
            assert answer.status == 404


async def test_an_agent_that_lacks_something_is_refused_before_anybody_joins(web: Node) -> None:
    server, _ = web
    with pytest.raises(NotFound):
        server.room_registry.invite("web", WebCallRequest(agent_id="nobody"))
    with pytest.raises(ScopeMissing):
        server.room_registry.invite("acme", WebCallRequest(agent_id=OUTBOUND))
    with pytest.raises(InvalidRequest, match="place"):
        server.room_registry.invite("web", WebCallRequest(agent_id=NEEDY))
    assert server.room_registry.rooms == 0


async def test_a_room_that_nobody_joins_is_given_up(web: Node) -> None:
    server, _ = web
    ticket = invite(server)
    room_registry = server.room_registry
    room_registry._rooms[ticket.room_name].room._created_s -= EMPTY_TIMEOUT_S + 1
    room_registry._expire(ticket.room_name)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert room_registry.rooms == 0


async def test_a_room_is_given_back_by_its_visitor_unless_somebody_has_been_there(web: Node) -> None:
    server, client = web
    unvisited, visited = invite(server), invite(server)
    url = f"/talk/{AGENT}/session"
    async with client.delete(url) as answer:
        assert answer.status == 401
    async with rtc_client() as rtc:
        await join(client, rtc, visited.token)
        await rtc.event("message")
        for ticket in (unvisited, visited, unvisited):
            async with client.delete(url, headers=bearer(ticket.token)) as answer:
                assert answer.status == 204
        assert list(server.room_registry._rooms) == [visited.room_name]


async def test_the_talk_page_is_served_whole_and_gives_no_token_away(web: Node) -> None:
    _, client = web
    async with client.get(f"/talk/{AGENT}") as answer:
        assert answer.status == 200
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
        page = await answer.text()
    for name in ("talk.css", "talk.js"):
        assert f"/static/talk/{name}" in page
    for name in ("talk.css", "talk.js", "whip.js", "meter.js", "failures.js"):
        async with client.get(f"/static/talk/{name}") as answer:
            assert answer.status == 200
    for name in ("other.js", "..%2Findex.html"):
        async with client.get(f"/static/talk/{name}") as answer:
            assert answer.status == 404
    for agent in (AGENT, "nonsense", "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"):
        async with client.post(f"/talk/{agent}/session") as answer:
            assert answer.status == 401
