"""livekit-client, unmodified, in Firefox, which names its microphone as nobody announced it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from livekit.protocol import models

from mediaserver.rooms.participant import Permissions
from mediaserver.rooms.tokens import Grant
from mediaserver.rooms.webrtc.udp_mux import own_addresses
from tests.support.node.node import REAL_ENGINES, Node, running
from tests.support.webrtc.livekit_page import NEWEST, OLDER, firefox_sdk_page
from tests.support.webrtc.rooms import invite, microphone, write_web_site
from tests.support.webrtc.sdk import sdk_client

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

LISTENER = Permissions(publish=False)
CASES = {
    "newest": (NEWEST, {}),
    "newest, two connections": (NEWEST, {"singlePeerConnection": False}),
    "older": (OLDER, {}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Node]:
    directory = tmp_path_factory.mktemp("web")
    # Firefox has no candidate of 127.0.0.1, and reaches none from another address.
    site = write_web_site(directory, engines=REAL_ENGINES, addresses=own_addresses())
    async with running(site) as both:
        yield both


@pytest.mark.parametrize(
    "case", ["newest", *(pytest.param(case, marks=pytest.mark.nightly("ci")) for case in list(CASES)[1:])]
)
async def test_a_person_in_firefox_is_seen_heard_and_muted(web: Node, tmp_path: Path, case: str) -> None:
    server, client = web
    version, options = CASES[case]
    ticket = invite(server)
    other = server.room_registry.mint(Grant(room=ticket.room_name, identity="bob", permissions=LISTENER))
    url = f"ws://127.0.0.1:{client.port}"
    voice = microphone(tmp_path / "mic.wav", 4.0, "yes", 30.0)
    async with (
        sdk_client(url=url, token=other, publish=False) as bob,
        firefox_sdk_page(version, microphone=voice) as page,
    ):
        await bob.event("connected")
        await page.join(url, ticket.token, **options)
        await page.event("subscribed")
        await page.event("listened to")
        await page.page.until("loudness().then((energy) => energy > 0.01)")
        published = [each["by"] for each in bob.events if each.get("event") == "published"]
        await page.page.run("room.localParticipant.setMicrophoneEnabled(false).then(() => 1)")
        muted = await bob.event("muted")
        await page.page.run("room.localParticipant.setMicrophoneEnabled(true).then(() => 1)")
        gone = await page.event("disconnected", timeout_s=40)
        segments = await page.events("segment")
        problems = page.page.log
    assert published == ["ann"]
    assert muted["by"] == "ann"
    assert gone["reason"] == models.ROOM_CLOSED
    finals = [(each["who"], each["text"]) for each in segments if each["final"]]
    assert ("ann", "yes") in finals
    assert problems == []
