"""LiveKit's Python SDK, unmodified and in another process, in rooms of this server."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient
from livekit.protocol import models

from api.livekit import SESSIONS
from mediaserver.rooms.livekit.session import SdkSession
from mediaserver.rooms.tokens import Grant
from mediaserver.rooms.web_call import WebCallRequest
from mediaserver.rooms.webrtc.peer_state import PeerState
from tests.support.node.node import REAL_ENGINES, Node, bearer, node_of_module, until_final
from tests.support.paths import ROOT
from tests.support.waiting import until
from tests.support.webrtc.rooms import CALLS_KEY, COMPANY, NEEDY, invite, spoken, write_web_site
from tests.support.webrtc.rtc import RtcClient
from tests.support.webrtc.sdk import sdk_client

pytestmark = pytest.mark.asyncio(loop_scope="module")


web = node_of_module(write_web_site, engines=REAL_ENGINES)


def url(client: TestClient[Any, Any]) -> str:
    return f"ws://127.0.0.1:{client.port}"


def session_of(client: TestClient[Any, Any], sid: str) -> SdkSession:
    app = client.app
    assert app is not None
    session: SdkSession = app[SESSIONS]._sessions[sid]
    return session


async def agent_is(sdk: RtcClient, state: str) -> None:
    """Waits until the agent says so of itself."""
    await until(lambda: any(each.get("changed") == {"lk.agent.state": state} for each in sdk.events))


def events(sdk: RtcClient, name: str) -> list[dict[str, Any]]:
    return [each for each in sdk.events if each.get("event") == name]


@pytest.mark.parametrize("single", [True, False], ids=["one connection", "two connections"])
async def test_a_client_is_heard_and_answered_and_the_call_is_kept(
    web: Node, tmp_path: Path, single: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = web
    caplog.set_level(logging.INFO, "mediaserver")
    ticket = invite(server)
    answer = spoken(tmp_path / "yes.wav", "yes")
    async with sdk_client(url=url(client), token=ticket.token, single=single) as sdk:
        connected = await sdk.event("connected")
        (agent,) = connected["others"]
        assert connected["others"][agent]["kind"] == models.ParticipantInfo.AGENT
        await sdk.event("listened to")
        await agent_is(sdk, "listening")
        sdk.tell(wav=str(answer))
        assert (await sdk.event("disconnected", timeout_s=30))["reason"] == models.ROOM_CLOSED
        report = await sdk.end()
    assert report["loudest"] > 1000
    finals = [(each["who"], each["text"]) for each in events(sdk, "segment") if each["final"]]
    assert "Would you like an appointment?" in finals[0][1]
    assert finals[1:] == [("ann", "yes"), (agent, "Thank you. Goodbye.")]
    streams = {(each["who"], each["text"]) for each in events(sdk, "stream")}
    assert set(finals) <= streams
    assert (agent, "Thank you.") in {(each["who"], each["text"]) for each in events(sdk, "segment")}
    (goodbye,) = [each for each in events(sdk, "stream") if each["text"] == "Thank you. Goodbye."]
    assert goodbye["attributes"]["lk.transcription_final"] == "true"
    assert {"event": "speakers", "who": [agent]} in sdk.events
    call = await until_final(client, ticket.room_name, key=CALLS_KEY)
    assert call["analysis"]["answers"] == {"wanted": "yes"}
    assert [line["role"] for line in call["transcript"]] == ["agent", "caller", "agent"]
    logged = [each for each in caplog.records if each.getMessage().startswith("call ")]
    assert [each.getMessage() for each in logged] == ["call received", "call answered", "call ended"]
    told = vars(logged[-1])
    assert (told["call_id"], told["direction"], told["cause"]) == (ticket.room_name, "web", "normal")


async def test_the_example_writes_to_the_agent_and_prints_its_answer(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    example = await asyncio.create_subprocess_exec(
        sys.executable,
        ROOT / "examples" / "livekit_client.py",
        url(client),
        ticket.token,
        "yes",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await asyncio.wait_for(example.communicate(), 30)
    lines = [line.partition(": ")[2] for line in output.decode().splitlines()]
    assert lines == ["Hello. Would you like an appointment?", "yes", "Thank you. Goodbye."]


async def test_the_example_ends_with_an_agent_that_never_listens(web: Node) -> None:
    server, client = web
    request = WebCallRequest(agent_id=NEEDY, user_ref="ann", variables={"place": "here"})
    ticket = server.room_registry.invite(COMPANY, request)
    example = await asyncio.create_subprocess_exec(
        *(sys.executable, ROOT / "examples" / "livekit_client.py", url(client), ticket.token, "yes"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await asyncio.wait_for(example.communicate(), 30)
    finally:
        if example.returncode is None:
            example.kill()
            await example.wait()
    assert output.decode().partition(": ")[2] == "Goodbye from here.\n"


async def test_two_people_share_data_calls_attributes_and_what_becomes_of_their_microphones(
    web: Node,
) -> None:
    server, client = web
    ticket = invite(server)
    other = server.room_registry.mint(Grant(room=ticket.room_name, identity="bob", name="Bob"))
    async with (
        sdk_client(url=url(client), token=ticket.token) as ann,
        sdk_client(url=url(client), token=other, single=False) as bob,
    ):
        sid = (await ann.event("connected"))["sid"]
        await bob.event("connected")
        others = (await ann.event("connected"))["others"]  # Bob too, when he was the faster
        agent = next(identity for identity in others if identity.startswith("agent-"))
        await asyncio.gather(ann.event("microphone"), bob.event("microphone"), ann.event("sound"))
        room = server.room_registry._rooms[ticket.room_name].room
        room.methods["order"] = lambda who, payload: f"{payload} for {who.identity}"
        bob.tell(data="hello ann", to=["ann"])
        ann.tell(data="hello all")
        ann.tell(attributes={"mood": "good"})
        assert (await ann.event("data"))["who"] == "bob"
        assert (await bob.event("data"))["text"] == "hello all"
        assert (await ann.event("attributes set"))["took"] < 4.9  # after five seconds the SDK gives up
        ann.tell(rpc="locate", payload="ping", to="bob")
        assert '"by": "ann"' in (await ann.event("rpc"))["answer"]
        ann.tell(rpc="order", payload="tea", to=agent)
        served = await ann.event("rpc", after=1)
        assert served.get("answer") == "tea for ann", served
        ann.tell(rpc="unknown", to=agent)
        assert (await ann.event("rpc", after=2))["code"] == 1400
        ann.tell(rpc="transcript", to=agent)
        lines = json.loads((await ann.event("rpc", after=3))["answer"])
        assert {line["role"] for line in lines} <= {"agent", "caller"}
        call = session_of(client, sid).data.rpc.call
        assert '"by": "agent-' in await call("locate", "where")
        ann.tell(mute=True)
        assert (await bob.event("muted"))["by"] == "ann"
        ann.tell(unpublish=True)
        assert (await bob.event("unpublished"))["by"] == "ann"
        ann.tell(publish=True)
        await ann.event("microphone", after=1)
        await ann.end()
        assert (await bob.event("left"))["who"] == "ann"
        assert {"mood": "good"} in [each["changed"] for each in events(bob, "attributes")]
        bob.tell(rpc="hang_up", to=agent)
        assert (await bob.event("disconnected"))["reason"] == models.ROOM_CLOSED
        await bob.end()
    await until(lambda: ticket.room_name not in server.room_registry._rooms)


async def test_a_lost_websocket_is_resumed_and_the_agent_heard_throughout(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with sdk_client(url=url(client), token=ticket.token) as sdk:
        sid = (await sdk.event("connected"))["sid"]
        # Not in the middle of publishing: the Rust SDK cannot resume from there, and starts over.
        await asyncio.gather(sdk.event("sound"), sdk.event("microphone"), sdk.event("listened to"))
        session = session_of(client, sid)
        peer, packets = session.entry.leg.peers[0], session.entry.leg.audio.stats.packets_received
        transport = session._outlet._socket._req.transport  # type: ignore[union-attr]
        transport.abort()
        await sdk.event("reconnected")
        assert session_of(client, sid) is session
        assert session.entry.leg.peers == [peer]
        heard = len(events(sdk, "sound"))
        sdk.tell(text="yes")
        await sdk.event("sound", after=heard)
        assert session.entry.leg.audio.stats.packets_received > packets
        assert (await sdk.event("disconnected"))["reason"] == models.ROOM_CLOSED
        await sdk.end()


async def test_the_same_identity_from_elsewhere_takes_the_place(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with sdk_client(url=url(client), token=ticket.token) as first:
        await first.event("sound")
        async with sdk_client(url=url(client), token=ticket.token, single=False) as second:
            gone = await first.event("disconnected")
            assert gone["reason"] == models.DUPLICATE_IDENTITY
            await second.event("sound")
            await second.end()
        await first.end()


async def test_a_client_that_encrypts_end_to_end_is_put_out(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with sdk_client(url=url(client), token=ticket.token, encrypt=True) as sdk:
        assert (await sdk.event("disconnected"))["reason"] == models.JOIN_FAILURE
    await until(lambda: ticket.room_name not in server.room_registry._rooms)
    async with client.get(f"/api/v1/calls/{ticket.room_name}", headers=bearer(CALLS_KEY)) as response:
        call = await response.json()
    assert (call["hangupCause"], call["endedBy"]) == ("incompatible", "remote")


@pytest.mark.parametrize("single", [True, False], ids=["one connection", "two connections"])
async def test_a_client_is_told_that_the_room_is_over(web: Node, single: bool) -> None:
    server, client = web
    over = server.room_registry.mint(Grant(room="over", identity="ann"))
    async with sdk_client(url=url(client), token=over, single=single) as sdk:
        refused = await sdk.event("refused")
    assert "requested room does not exist: the room is over" in refused["message"]


@pytest.mark.parametrize("single", [True, False], ids=["one connection", "two connections"])
async def test_a_client_that_is_told_to_leave_closes_its_connections_itself(web: Node, single: bool) -> None:
    """One that is closed under it is an error of its data channels, which Firefox logs."""
    server, client = web
    ticket = invite(server)
    async with sdk_client(url=url(client), token=ticket.token, single=single) as sdk:
        await sdk.event("listened to")
        opened = server.room_registry._rooms[ticket.room_name]
        await until(lambda: opened.call is not None)
        (leg,) = opened.participant_legs.values()
        await server.room_registry.hang_up([ticket.room_name])
        assert (await sdk.event("disconnected"))["reason"] == models.ROOM_CLOSED
        await until(lambda: all(peer.state.over for peer in leg.peers))
    assert [peer.state for peer in leg.peers] == [PeerState.LEFT] * (1 if single else 2)


async def test_a_client_is_told_that_the_server_drains(web: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = web
    ticket = invite(server)
    monkeypatch.setattr(server.room_registry, "_draining", True)
    async with sdk_client(url=url(client), token=ticket.token) as sdk:
        refused = await sdk.event("refused")
    assert "The server is draining" in refused["message"]
