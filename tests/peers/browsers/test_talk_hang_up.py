"""The talk page hung up while its call is being set up, at every step: nothing lives on, here or there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mediaserver.server import Server
from tests.support.node.node import Node, bearer, running
from tests.support.waiting import until
from tests.support.webrtc.chromium import Page, chromium
from tests.support.webrtc.rooms import AGENT, CALLS_KEY, write_web_site

pytestmark = pytest.mark.slow


PRESS = "document.getElementById('talk').click()"
ESCAPE = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))"
BUTTON = "document.getElementById('talk').textContent"
STATE = "document.getElementById('state').textContent"
PROBLEM = "document.getElementById('problem').hidden ? '' : document.getElementById('problem').textContent"

STEPS = (
    "microphone asked for",
    "microphone given",
    "connect request",
    "connect request answered",
    "offer",
    "WHIP request",
    "WHIP request answered",
    "gathering",
    "answer",
)

HELD = """
(() => {
  window.tracks = [];
  window.peers = [];
  const at = (step) => step && window.held === step
    ? new Promise((go) => { window.reached = step; window.go = go; }) : undefined;
  const around = (whose, name, before, after, keep) => {
    const real = whose[name];
    whose[name] = async function (...given) {
      await at(before(...given));
      const came = await real.apply(this, given);
      keep?.(came);
      await at(after(...given));
      return came;
    };
  };
  const never = () => '';
  around(navigator.mediaDevices, 'getUserMedia', () => 'microphone asked for', () => 'microphone given',
    (stream) => tracks.push(...stream.getTracks()));
  const request = (url, { method }) => method !== 'POST' ? ''
    : String(url).endsWith('/session') ? 'connect request' : 'WHIP request';
  around(window, 'fetch', request, (...given) => request(...given) && `${request(...given)} answered`);
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(...given) { super(...given); peers.push(this); }
  };
  around(RTCPeerConnection.prototype, 'createOffer', () => 'offer', never);
  around(RTCPeerConnection.prototype, 'setLocalDescription', () => 'gathering', never);
  around(RTCPeerConnection.prototype, 'setRemoteDescription', () => 'answer', never);
})()
"""
"""Holds the page up at the step named by `held`, until `go` is called; keeps what could live on."""


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Node]:
    there = write_web_site(tmp_path, public=True)
    often = "[rooms]\npublic_talk_per_minute_each = 600\n"  # a visitor begins more than people do
    there.change("[rooms]\n", often)
    async with running(there) as both:
        yield both


@pytest.fixture
async def page(site: Node) -> AsyncIterator[Page]:
    async with chromium() as page:
        await page.open(str(site[1].make_url(f"/talk/{AGENT}")))
        await page.run(HELD)
        yield page


async def nothing_lives_on(server: Server, page: Page, step: str) -> None:
    """At once: a participant who merely never connects is given up after 20 s."""
    try:
        await until(lambda: not server.room_registry.rooms)
    except TimeoutError:
        pytest.fail(
            f"hung up at {step!r}: {server.room_registry.rooms} rooms, "
            f"{len(server.room_registry)} calls live on"
        )
    await page.until("tracks.length > 0 && tracks.every((each) => each.readyState === 'ended')")
    assert set(await page.run("peers.map((each) => each.signalingState)")) <= {"closed"}, step


@pytest.mark.parametrize(
    "how", [pytest.param(PRESS, id="button"), pytest.param(ESCAPE, id="key", marks=pytest.mark.nightly("ci"))]
)
async def test_a_call_that_is_hung_up_while_it_is_set_up_is_over(site: Node, page: Page, how: str) -> None:
    server, _ = site
    for step in STEPS:
        await page.run(f"window.held = {step!r}, window.reached = ''")
        await page.run(PRESS)
        await page.until(f"reached === {step!r}")
        await page.run(how)
        assert await page.run(BUTTON) == "Start talking", step
        assert await page.run(STATE) in ("Ready", "You hung up."), step
        await page.run("go()")
        await asyncio.sleep(0.5)
        await nothing_lives_on(server, page, step)
        assert await page.run(BUTTON) == "Start talking", step
        assert await page.run(PROBLEM) == "", step
    rows = await server._open().db.read(lambda tx: tx.rows("SELECT kind FROM outbox"))
    assert list(rows) == []  # no call ever began
    assert page.log == []


async def test_a_second_start_while_the_first_still_asks_is_the_one_that_counts(
    site: Node, page: Page
) -> None:
    server, client = site
    await page.run("window.held = 'microphone asked for'")
    await page.run(PRESS)
    await page.until("reached === 'microphone asked for'")
    await page.run(PRESS)
    await page.run("window.held = ''")
    await page.run(PRESS)
    await page.until("document.querySelector('#transcript li') !== null")
    await page.run("go()")
    await page.until(
        "tracks.length === 2 && tracks.filter((each) => each.readyState === 'live').length === 1"
    )
    (room,) = server.room_registry._rooms
    await page.run(PRESS)
    assert await page.run(STATE) == "You hung up."
    await nothing_lives_on(server, page, "the call itself")
    async with client.get(f"/api/v1/calls/{room}", headers=bearer(CALLS_KEY)) as answer:
        call = await answer.json()
    assert (call["endedBy"], call["hangupCause"]) == ("remote", "normal")
