"""WHIP in real browsers: the client of npm's `whip-whep`, and our own page, which both take STUN and TURN
servers from the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as application
from aiohttp.test_utils import TestClient, TestServer

from mediaserver.rooms.webrtc.udp_mux import own_addresses
from mediaserver.server import Server
from tests.support.node.node import Node, bearer, running
from tests.support.waiting import until
from tests.support.webrtc.chromium import Page, chromium
from tests.support.webrtc.firefox import FirefoxPage, firefox
from tests.support.webrtc.livekit_page import npm_file
from tests.support.webrtc.rooms import AGENT, CALLS_KEY, invite, write_web_site
from tests.support.webrtc.stun import StunServer, stun_server

pytestmark = pytest.mark.slow


WHIP_WHEP = "1.2.0"

PUBLISH = """
window.publish = async (url, token, policy) => {
  const { WHIPClient } = await import('/whip.js');
  window.peer = new RTCPeerConnection(policy);
  window.whip = new WHIPClient();
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  peer.addTransceiver(microphone.getAudioTracks()[0], { direction: 'sendrecv', streams: [microphone] });
  await whip.publish(peer, url, token);
};
window.heard = async () => {
  for (const each of (await peer.getStats()).values())
    if (each.type === 'inbound-rtp') return each.packetsReceived;
  return 0;
};
"""


@pytest.fixture
async def turn() -> AsyncIterator[StunServer]:
    async with stun_server() as server:
        yield server


@asynccontextmanager
async def serving(directory: Path, turn: StunServer) -> AsyncIterator[Node]:
    servers = [f"stun:{turn.address}", f"turn:ann:s%40cret@{turn.address}?transport=udp"]
    site = write_web_site(directory, public=True, ice_servers=servers, addresses=own_addresses())
    async with running(site) as both:
        yield both


async def hangup_of(client: TestClient[Any, Any], call_id: str) -> tuple[str, str]:
    """How the call ended, once it has."""
    async with asyncio.timeout(20):
        while True:
            async with client.get(f"/api/v1/calls/{call_id}", headers=bearer(CALLS_KEY)) as answer:
                call = await answer.json()
            if call.get("endedAt"):
                return call["endedBy"], call["hangupCause"]
            await asyncio.sleep(0.05)


RELAYED = "{ iceTransportPolicy: 'relay' }"
"""Chromium asks for no relay where it gets through without one."""


async def signed_in(turn: StunServer) -> None:
    """Waits until the browser has asked for a relay in the name that it was told."""
    await until(lambda: turn.users == {"ann"})


async def test_whip_whep_talks_and_hangs_up_and_knows_the_turn_server(
    tmp_path: Path, turn: StunServer
) -> None:
    script = await npm_file("whip-whep", WHIP_WHEP, "whip.js")
    elsewhere = application.Application()

    async def package(_: application.Request) -> application.StreamResponse:
        return application.FileResponse(script, headers={"Content-Type": "text/javascript"})

    async def empty(_: application.Request) -> application.Response:
        return application.Response(text="<!doctype html><title>page</title>", content_type="text/html")

    elsewhere.router.add_get("/whip.js", package)
    elsewhere.router.add_get("/", empty)
    async with (
        serving(tmp_path, turn) as (server, client),
        TestServer(elsewhere) as other,
        chromium() as page,
    ):
        ticket = invite(server)
        await page.open(f"http://127.0.0.1:{other.port}/")
        await page.run(PUBLISH)
        await page.run(f"publish('{client.make_url('/rtc/whip')}', '{ticket.token}')")
        await page.until("peer.connectionState === 'connected'")
        await page.until("heard().then((count) => count > 20)")
        servers = await page.run("peer.getConfiguration().iceServers")
        assert [(each["urls"], each["username"], each["credential"]) for each in servers] == [
            ([f"stun:{turn.address}"], "", ""),
            ([f"turn:{turn.address}?transport=udp"], "ann", "s@cret"),
        ]
        await page.run("whip.stop()")
        assert await hangup_of(client, ticket.room_name) == ("remote", "normal")
        await page.run(f"publish('{client.make_url('/rtc/whip')}', '{invite(server).token}', {RELAYED})")
        await signed_in(turn)


@pytest.mark.nightly("ci")
async def test_the_talk_page_uses_the_servers_that_it_is_told_of(tmp_path: Path, turn: StunServer) -> None:
    async with serving(tmp_path, turn) as (server, client), chromium() as page:
        await page.open(str(client.make_url(f"/talk/{AGENT}")))
        await talks_and_hangs_up(page, server, client)
        only = f"constructor() {{ super({RELAYED}); }}"
        await page.run(f"window.RTCPeerConnection = class extends RTCPeerConnection {{ {only} }}, 1")
        await page.run("document.getElementById('talk').click()")
        await signed_in(turn)
        await page.run("document.getElementById('talk').click()")
        assert page.log == []


async def test_the_talk_page_talks_in_firefox(tmp_path: Path, turn: StunServer) -> None:
    async with serving(tmp_path, turn) as (server, client), firefox() as page:
        await page.open(str(client.make_url(f"/talk/{AGENT}")))
        await talks_and_hangs_up(page, server, client)
        assert page.log == []


async def talks_and_hangs_up(page: Page | FirefoxPage, server: Server, client: TestClient[Any, Any]) -> None:
    await page.run("document.getElementById('talk').click()")
    await page.until("document.querySelector('#transcript li') !== null")
    (room,) = server.room_registry._rooms
    await page.run("document.getElementById('talk').click()")
    assert await page.run("document.getElementById('state').textContent") == "You hung up."
    assert await hangup_of(client, room) == ("remote", "normal")
