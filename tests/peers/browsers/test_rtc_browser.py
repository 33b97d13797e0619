"""livekit-client, unmodified, in Chromium: heard, answered, and everything else that an application uses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web as application
from aiohttp.test_utils import TestClient, TestServer
from livekit.protocol import models

from api.livekit import SESSIONS
from mediaserver.rooms.tokens import Grant
from tests.support.node.node import REAL_ENGINES, Node, running
from tests.support.paths import ROOT
from tests.support.waiting import until
from tests.support.webrtc.chromium import chromium
from tests.support.webrtc.livekit_page import NEWEST, OLDER, SdkPage, livekit_client, recognised, sdk_page
from tests.support.webrtc.rooms import invite, microphone, write_web_site

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    site = write_web_site(tmp_path_factory.mktemp("web"), engines=REAL_ENGINES)
    async with running(site) as both:
        yield both


def url(client: TestClient[Any, Any]) -> str:
    return f"ws://127.0.0.1:{client.port}"


CASES = {
    "newest": (NEWEST, {}),
    "newest, two connections": (NEWEST, {"singlePeerConnection": False}),
    "older": (OLDER, {}),
}
either = pytest.mark.parametrize("version", [NEWEST, pytest.param(OLDER, marks=pytest.mark.nightly("ci"))])


@pytest.mark.parametrize(
    "case", ["newest", *(pytest.param(case, marks=pytest.mark.nightly("ci")) for case in list(CASES)[1:])]
)
async def test_a_person_is_heard_and_answered(web: Node, tmp_path: Path, case: str) -> None:
    server, client = web
    version, options = CASES[case]
    ticket = invite(server)
    voice = microphone(tmp_path / "mic.wav", 6.0, "yes", 30.0)
    async with sdk_page(version, microphone=voice) as page:
        await page.join(url(client), ticket.token, **options)
        (agent,) = (await page.event("connected"))["others"]
        assert (await page.event("subscribed"))["agent"]
        await page.event("listened to")
        await what_an_application_does(
            page, agent, server.room_registry._rooms[ticket.room_name].room.methods
        )
        gone = await page.event("disconnected", timeout_s=30)
        segments = await page.events("segment")
        streams = await page.events("stream")
        speakers = await page.events("speakers")
        played = await page.played()
        problems = [line for line in page.page.log if line.startswith("exception")]
    assert gone["reason"] == models.ROOM_CLOSED
    finals = [(each["who"], each["text"]) for each in segments if each["final"]]
    assert finals[1:] == [("ann", "yes"), (agent, "Thank you. Goodbye.")]
    whole = {(each["who"], each["text"]): each["pieces"] for each in streams if each["final"]}
    assert whole.keys() >= set(finals)
    assert whole[agent, "Thank you. Goodbye."] > 1  # as it was heard
    assert (agent, "Thank you.") in [(each["who"], each["text"]) for each in segments]
    assert [agent] in [each["who"] for each in speakers]
    assert problems == []
    assert "thank you" in await recognised(played)


async def what_an_application_does(page: SdkPage, agent: str, methods: dict[str, Any]) -> None:
    """While the agent greets."""
    methods["order"] = lambda who, payload: f"{payload} for {who.identity}"
    call = "room.localParticipant.performRpc({destinationIdentity: %r, method: %r, payload: 'tea'})"
    assert await page.outcome(call % (agent, "order")) == "tea for ann"
    assert (await page.outcome(call % (agent, "unknown"))).startswith("1400")
    assert await page.outcome("room.localParticipant.setAttributes({mood: 'good'})") == "done"
    assert "insufficient permissions" in await page.outcome("room.localParticipant.setCameraEnabled(true)")
    assert (
        await page.outcome("room.localParticipant.publishData(new Uint8Array([1]), {reliable: true})")
        == "done"
    )


async def test_a_lost_websocket_is_resumed_and_a_bad_token_explained(web: Node) -> None:
    server, client = web
    ticket = invite(server)
    async with sdk_page(NEWEST) as page:
        await page.join(url(client), ticket.token)
        await page.event("listened to")
        app = client.app
        assert app is not None
        (session,) = app[SESSIONS]._sessions.values()
        peers, packets = list(session.entry.leg.peers), session.entry.leg.audio.receiver.packets
        session._outlet._socket._req.transport.abort()
        await page.event("Reconnected")
        assert session.entry.leg.peers == peers
        assert session.entry.leg.audio.receiver.packets > packets
        await page.page.run(
            "room.remoteParticipants.values().next().value.trackPublications"
            ".values().next().value.setSubscribed(false)"
        )
        await until(lambda: not session.entry.leg.audio.wanted)
        await page.page.run("room.disconnect()")
        assert (await page.event("disconnected"))["reason"] == models.CLIENT_INITIATED
        forged = ticket.token[:-6] + "AAAAAA"
        assert "Signature verification failed" in await page.outcome(f"join({url(client)!r}, {forged!r})")
    await until(lambda: not app[SESSIONS]._sessions)


@either
async def test_an_application_is_told_that_the_room_is_over(web: Node, version: str) -> None:
    server, client = web
    over = server.room_registry.mint(Grant(room="over", identity="ann"))
    async with sdk_page(version) as page:
        told = await page.outcome(f"join({url(client)!r}, {over!r})")
    assert told.endswith("requested room does not exist: the room is over, or was never opened here")


@either
async def test_an_application_that_encrypts_end_to_end_is_told(web: Node, version: str) -> None:
    server, client = web
    ticket = invite(server)
    async with sdk_page(version) as page:
        told = await page.join_encrypted(url(client), ticket.token)
        gone = await page.event("disconnected", timeout_s=1)
        closes = await page.page.run("closed")
    assert "publication" in told
    assert gone["reason"] == models.JOIN_FAILURE
    assert closes == ["end-to-end encryption is on in this client: the agent could not hear it"]
    await until(lambda: ticket.room_name not in server.room_registry._rooms)


async def test_the_example_page_talks(web: Node, tmp_path: Path) -> None:
    server, client = web
    ticket = invite(server)
    elsewhere = application.Application()
    sdk = await livekit_client(NEWEST)

    async def package(_: application.Request) -> application.FileResponse:
        return application.FileResponse(sdk)

    elsewhere.router.add_get("/livekit-client.umd.js", package)
    elsewhere.router.add_static("/", ROOT / "examples")
    async with (
        TestServer(elsewhere) as other,
        chromium(microphone=microphone(tmp_path / "mic.wav", 60.0)) as page,
    ):
        await page.open(f"{other.make_url('/livekit.html')}#url={url(client)}&token={ticket.token}")
        await page.run("document.getElementById('talk').click()")
        await page.until("document.getElementById('said').textContent.includes('Hello. Would you')")
        await page.until("document.getElementById('state').textContent === 'listening'")
        assert await page.run("document.querySelector('audio').srcObject !== null")
        await page.run("document.getElementById('talk').click()")
        await page.until("document.getElementById('state').textContent === 'over'")
        assert [line for line in page.log if line.startswith("exception")] == []
    await until(lambda: ticket.room_name not in server.room_registry._rooms)
