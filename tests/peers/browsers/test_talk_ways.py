"""Ways to talk on the talk page: devices, a level check, keys, writing, and a network that changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mediaserver.rooms.webrtc.udp_mux import own_addresses
from tests.peers.browsers.test_talk import LINES, PRESS, PROBLEM, STATE, emptied, fits
from tests.support.node.node import Node, running
from tests.support.waiting import until
from tests.support.webrtc.chromium import Page, chromium
from tests.support.webrtc.firefox import firefox
from tests.support.webrtc.relay import Relay, relay
from tests.support.webrtc.rooms import AGENT, TALKER, write_web_site

pytestmark = [pytest.mark.slow, pytest.mark.nightly("ci")]

WATCHED = """
(() => {
  window.streams = [];
  const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    const stream = await real(wanted);
    streams.push(stream);
    return stream;
  };
  window.peers = [];
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(...given) { super(...given); peers.push(this); }
  };
})()
"""
"""Keeps the microphones and the connections of the page."""

SLOW_PROMPT = """
(() => {
  const real = navigator.mediaDevices.getUserMedia;
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    await new Promise((go) => { window.answer = go; });
    return real(wanted);
  };
})()
"""
"""Asks the person for the microphone until `answer` is called."""

NO_SPEAKERS = """
(() => {
  const devices = navigator.mediaDevices, real = devices.enumerateDevices.bind(devices);
  devices.enumerateDevices = async () => (await real()).filter(({ kind }) => kind !== 'audiooutput');
  devices.dispatchEvent(new Event('devicechange'));
})()
"""
"""Unplugs every speaker."""

OPEN_TRACKS = "streams.flatMap(each => each.getTracks()).filter(each => each.readyState === 'live')"
SENT = "peers[0].getSenders()[0].track"
CHECK = "document.getElementById('sound').open = true"
LEVEL = "document.getElementById('level').value"


def choice(name: str, place: int) -> str:
    """Chooses an entry of a list as a person does."""
    return (
        f"(list => {{ list.selectedIndex = {place}; list.dispatchEvent(new Event('change')); "
        f"return list.value; }})(document.getElementById({name!r}))"
    )


def tick(name: str) -> str:
    """Ticks a box, or takes the tick away."""
    return f"document.getElementById({name!r}).click()"


def wrote(text: str) -> str:
    """Writes to the agent."""
    return (
        f"document.getElementById('text').value = {text!r}, document.querySelector('#write button').click()"
    )


def said(who: str, text: str) -> str:
    """Whether the transcript has such a line."""
    return f"{LINES}.some(([who, text]) => who === {who!r} && text.includes({text!r}))"


def replaced(answer: str) -> str:
    """Has the browser answer so when the page sends another microphone."""
    return f"RTCRtpSender.prototype.replaceTrack = () => {answer}, 1"


async def press_key(page: Page, name: str, kind: str, code: int, text: str) -> None:
    """Presses a key of the keyboard, or lets it go."""
    typed = {"text": text} if kind == "keyDown" else {}
    await page.call(
        "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **typed
    )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(write_web_site(tmp_path, public=True)) as both:
        yield both


@pytest.fixture
async def page(site: Node) -> AsyncIterator[Page]:
    async with chromium() as page:
        await page.open(str(site[1].make_url(f"/talk/{TALKER}")))
        await page.run(WATCHED)
        yield page
        assert page.log == []


async def test_the_level_is_checked_before_the_call_and_devices_are_chosen(site: Node, page: Page) -> None:
    await page.run(CHECK)
    await page.until(f"{LEVEL} > 0.02")  # Chromium's microphone beeps
    names = await page.run("[...document.getElementById('microphones').options].map(each => each.label)")
    assert names[0] == "The browser's choice"
    assert len(names) >= 3, names
    wanted = await page.run(choice("microphones", 2))
    await page.until(f"{OPEN_TRACKS}.map(each => each.getSettings().deviceId).join() === {wanted!r}")
    speaker = await page.run(choice("speakers", 2))
    assert speaker
    await page.until(f"document.getElementById('voice').sinkId === {speaker!r}")
    await page.run(NO_SPEAKERS)
    await page.until("document.getElementById('voice').sinkId === ''")
    asked = await page.run("streams.length")
    await page.run(PRESS)
    await page.until(f"{STATE} === 'Speaking'")
    assert await page.run("streams.length") == asked  # the microphone that was checked is the call's
    assert await page.run(f"{SENT}.getSettings().deviceId") == wanted
    other = await page.run(choice("microphones", 1))
    await page.until(f"{SENT}.getSettings().deviceId === {other!r}")
    await page.until(f"{OPEN_TRACKS}.length === 1")
    await page.run(
        f"window.gone = {SENT}, gone.stop(), gone.dispatchEvent(new Event('ended')), 1"
    )  # unplugged
    await page.until(f"{SENT} !== gone && {SENT}.readyState === 'live'")
    await page.run(f"window.kept = {SENT}, {replaced('Promise.reject(new Error(`no room`))')}")
    await page.run(choice("microphones", 2))
    await page.until(f"({PROBLEM}).includes('no room')")
    await page.run(tick("mute"))
    assert await page.run(f"{SENT} === kept && !kept.enabled && {OPEN_TRACKS}.length === 1")
    await page.run(replaced("new Promise(() => { window.replacing = true; })"))
    await page.run(choice("microphones", 1))
    await page.until("window.replacing")
    await page.run(PRESS)
    assert await page.run(f"{OPEN_TRACKS}.length") == 0
    assert await page.run("document.getElementById('microphone').hidden") is True
    await emptied(site[0])


async def test_a_check_that_is_closed_gives_the_microphone_back(page: Page) -> None:
    await page.run(CHECK)
    await page.until(f"{OPEN_TRACKS}.length === 1")
    await page.run("document.getElementById('sound').open = false")
    await page.until(f"{OPEN_TRACKS}.length === 0")
    await page.run(SLOW_PROMPT)
    await page.run(CHECK)
    await page.until("window.answer !== undefined")
    await page.run("document.getElementById('sound').open = false")
    await asyncio.sleep(0.1)  # the list has told that it is closed
    await page.run("answer()")
    await page.until("streams.length === 2")
    await page.until(f"{OPEN_TRACKS}.length === 0")


async def test_muted_says_muted(site: Node, page: Page) -> None:
    await page.run(PRESS)
    await page.until(f"{STATE} === 'Speaking'")
    await page.run(tick("mute"))
    assert await page.run(STATE) == "Speaking · You are muted"
    assert await page.run(f"{SENT}.enabled") is False
    await page.until(f"{STATE} === 'You are muted'")  # once the agent listens
    await page.run(tick("mute"))
    assert "muted" not in await page.run(STATE)
    assert await page.run(f"{SENT}.enabled") is True
    await page.run(PRESS)
    await emptied(site[0])


async def test_a_key_and_a_button_are_held_to_talk(site: Node, page: Page) -> None:
    await page.run(tick("push-to-talk"))
    await page.run("document.getElementById('talk').focus()")
    await page.run(PRESS)
    await page.until(f"{STATE} === 'You are muted' || {STATE} === 'Speaking · You are muted'")
    assert await page.run(f"{SENT}.enabled") is False
    assert await page.run("document.getElementById('mute').hidden") is True
    where = await page.run(
        "(({ x, y, width, height }) => ({ x: x + width / 2, y: y + height / 2 }))"
        "(document.getElementById('hold').getBoundingClientRect())"
    )

    async def key(kind: str) -> None:
        await press_key(page, " ", kind, 32, " ")

    async def mouse(kind: str) -> None:
        kind = kind.replace("key", "mouse").replace("Down", "Pressed").replace("Up", "Released")
        await page.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    async def click(_: str) -> None:  # of a screen reader
        await page.run("document.getElementById('hold').click()")

    async def enter(_: str) -> None:
        for kind in ("keyDown", "keyUp"):
            await press_key(page, "Enter", kind, 13, "\r")

    for way in (key, mouse, click, enter):
        await way("keyDown")
        assert await page.run(f"{SENT}.enabled") is True, way.__name__
        assert "muted" not in await page.run(STATE)
        await way("keyUp")
        assert await page.run(f"{SENT}.enabled") is False, way.__name__
    await key("keyDown")
    await page.run("dispatchEvent(new Event('blur'))")  # it comes up in another window
    assert await page.run(f"{SENT}.enabled") is False
    await page.run("document.getElementById('text').focus()")
    for kind in ("keyDown", "keyUp"):
        await press_key(page, "Escape", kind, 27, "")
    assert await page.run("document.getElementById('talk').textContent") == "Hang up"
    await page.run(PRESS)
    await emptied(site[0])


async def test_text_only_needs_no_microphone_and_is_written_and_downloaded(
    site: Node, page: Page, tmp_path: Path
) -> None:
    await page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    await page.open(str(site[1].make_url(f"/talk/{AGENT}")))
    await page.run(WATCHED)
    await page.run(tick("text-only"))
    await page.run(PRESS)
    await page.until(said("agent", "Would you like an appointment?"))
    assert await page.run("streams.length") == 0
    assert await page.run("document.getElementById('voice').muted") is True
    await page.run(wrote("yes"))
    await page.until(f"{STATE} === 'The agent hung up.'")
    await page.run(tick("download"))
    file = tmp_path / "Web desk.txt"
    await until(lambda: file.exists() and "Goodbye" in file.read_text())
    lines = (await asyncio.to_thread(file.read_text)).splitlines()
    assert lines[1] == "You: yes"
    assert lines[2] == "Web desk: Thank you. Goodbye."
    await emptied(site[0])


async def test_firefox_lists_microphones_and_writes(tmp_path: Path) -> None:
    # Firefox has no candidate of 127.0.0.1, and reaches none from another address.
    there = write_web_site(tmp_path, public=True, addresses=own_addresses())
    async with running(there) as (server, client), firefox() as page:
        await page.open(str(client.make_url(f"/talk/{AGENT}")))
        await page.run(f"({CHECK}, 1)")
        # Without a sound card its AudioContext stands still: the level is Chromium's to show.
        await page.until("document.getElementById('microphones').options.length >= 2")
        await page.run(tick("push-to-talk"))
        await page.run(PRESS)
        await page.until(said("agent", "Would you like an appointment?"))
        await page.run(f"({wrote('yes')}, 1)")
        await page.until(f"{STATE} === 'The agent hung up.'")
        await emptied(server)
        assert page.log == []


@pytest.mark.parametrize("language", ["en", "ar"])
async def test_it_fits_a_telephone_in_both_directions(
    site: Node, page: Page, tmp_path: Path, language: str
) -> None:
    await page.open(str(site[1].make_url(f"/talk/{AGENT}")) + f"?lang={language}")
    await page.run(CHECK)
    await page.until(f"{LEVEL} > 0")
    await fits(page, 390, 844, tmp_path / f"check-{language}.png")
    await page.run(PRESS)
    await page.until(f"{LINES}.length > 0")
    await fits(page, 390, 844, tmp_path / f"live-{language}.png", dark=True)
    await fits(page, 1280, 800, tmp_path / f"wide-{language}.png", dark=True)
    assert await page.run("getComputedStyle(document.body).direction") == {"en": "ltr", "ar": "rtl"}[language]
    await page.run(PRESS)
    await emptied(site[0])


THROUGH = """
((from, to) => {
  const real = RTCPeerConnection.prototype.setRemoteDescription;
  RTCPeerConnection.prototype.setRemoteDescription = function ({ type, sdp }) {
    return real.call(this, { type, sdp: sdp.replaceAll(` ${from} typ host`, ` ${to} typ host`) });
  };
  window.patched = 0;
  window.broken = 0;
  window.held = undefined;
  const ask = window.fetch;
  window.fetch = async (url, request) => {
    const mine = request?.method === 'PATCH' ? patched += 1 : Infinity;
    if (mine < Infinity) await held;
    const answer = await ask(url, request);
    if (mine <= broken) answer.text = () => Promise.reject(new TypeError('cut off'));
    return answer;
  };
  window.heard = async () => {
    for (const each of (await peers[0].getStats()).values())
      if (each.type === 'inbound-rtp') return each.packetsReceived;
    return 0;
  };
})
"""
"""Sends what the page sends through a relay, and counts the restarts that the page asks for."""


@asynccontextmanager
async def talking_through_a_relay(site: Node, page: Page) -> AsyncIterator[Relay]:
    """A conversation on the page over a network that can change."""
    server, _ = site
    port = server.room_registry._ports[0].number
    async with relay(port, loss=0.0, jitter_s=0.0) as network:
        await page.run(f"({THROUGH})({port}, {network.port})")
        await page.run(PRESS)
        await page.until(said("agent", "opening hours"))
        yield network
        await page.run(PRESS)
        await emptied(server)


async def hears(page: Page) -> None:
    """Waits until the page has received more than now."""
    now = await page.run("heard()")
    await page.until(f"heard().then(count => count > {now} + 20)")


async def test_a_change_of_network_that_the_browser_tells_of_is_followed_at_once(
    site: Node, page: Page
) -> None:
    async with talking_through_a_relay(site, page) as network:
        await page.run("navigator.connection.dispatchEvent(new Event('change'))")  # its speed alone
        await hears(page)
        assert await page.run("patched") == 0
        await network.move("127.0.0.2")
        await page.run("dispatchEvent(new Event('online'))")
        await page.until("patched === 1")
        await hears(page)


async def test_a_network_that_is_gone_for_a_while_is_told_and_the_call_goes_on(
    site: Node, page: Page
) -> None:
    async with talking_through_a_relay(site, page) as network:
        await page.run("broken = 2, held = new Promise((go) => { window.go = go; }), 1")
        network.cut = True
        await page.run("dispatchEvent(new Event('online'))")
        await page.until(f"{STATE}.startsWith('The network changed')")  # while an attempt goes on already
        await page.run("go()")
        await page.until("patched > 2")  # after one that was late, and one whose answer is cut off
        network.cut = False
        await page.until(f"!{STATE}.startsWith('The network changed')")
        await hears(page)


async def test_a_network_that_stays_away_ends_the_call_in_words(site: Node, page: Page) -> None:
    async with talking_through_a_relay(site, page) as network:
        network.cut = True
        await page.until(f"({PROBLEM}).includes('connection was lost')", timeout_s=60.0)
        assert await page.run(f"{OPEN_TRACKS}.length") == 0
        await page.run(PRESS)  # a new one, which the test's end hangs up
        network.cut = False
        await page.until(f"{STATE} === 'Speaking'")
        # The browser logs the 404 by which a server that has given the call up first says so.
        page.log[:] = [line for line in page.log if "404" not in line]
