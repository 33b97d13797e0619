"""The talk page in a real browser: it hears, is understood, shows what was said, and says what is wrong."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mediaserver.rooms.tokens import Grant, mint
from mediaserver.server import Server
from pipeline.audio import Pcm
from pipeline.stt.faster_whisper import FasterWhisper
from tests.support.node.node import REAL_ENGINES, Node, running
from tests.support.paths import ROOT
from tests.support.waiting import until
from tests.support.webrtc.chromium import Page, chromium
from tests.support.webrtc.rooms import AGENT, TALKER, invite, microphone, write_web_site

pytestmark = pytest.mark.slow


LINES = (
    "[...document.querySelectorAll('#transcript li')]"
    ".map(line => [line.dataset.speaker, line.lastChild.textContent])"
)
PRESS = "document.getElementById('talk').click()"
ESCAPE = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))"
STATE = "document.getElementById('state').textContent"
PROBLEM = "document.getElementById('problem').hidden ? '' : document.getElementById('problem').textContent"

BARE_MICROPHONE = """
(() => {
  const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  navigator.mediaDevices.getUserMedia = () => real({ audio });
})()
"""
"""The browser's echo canceller takes a file that is played while the agent speaks for the agent's echo."""

RECORD = """
(async () => {
  const voice = document.getElementById('voice');
  while (!voice.srcObject) await new Promise(again => setTimeout(again, 20));
  const context = new AudioContext({ sampleRate: 16000 });
  const node = context.createScriptProcessor(4096, 1, 1);
  window.heard = [];
  node.onaudioprocess = ({ inputBuffer }) => window.heard.push(
    Int16Array.from(inputBuffer.getChannelData(0), x => Math.max(-1, Math.min(1, x)) * 32767));
  context.createMediaStreamSource(voice.srcObject).connect(node);
  node.connect(context.destination);
})()
"""

PLAYED = """
(() => {
  const all = new Uint8Array(window.heard.length * 8192);
  window.heard.forEach((piece, place) => all.set(new Uint8Array(piece.buffer), place * 8192));
  let text = '';
  for (let at = 0; at < all.length; at += 32768) text += String.fromCharCode(...all.subarray(at, at + 32768));
  return btoa(text);
})()
"""


@pytest.fixture
async def spoken_site(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(write_web_site(tmp_path, engines=REAL_ENGINES, public=True)) as site:
        yield site


@pytest.fixture
async def closed_site(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(write_web_site(tmp_path)) as site:
        yield site


def address(site: Node, agent: str, fragment: str = "") -> str:
    return str(site[1].make_url(f"/talk/{agent}")) + fragment


async def recognised(samples: Pcm) -> str:
    """What a recogniser makes of what the page played."""
    engine = FasterWhisper.from_settings({"model": "package:mediaserver/demo/micro_whisper/model"})
    await engine.start()
    listening = engine.listen(rate_hz=16000, language="en", expected=None)
    listening.push(samples)
    words = (await listening.result()).text
    listening.close()
    await engine.close()
    return words.lower()


async def emptied(server: Server) -> None:
    """Waits until no room is left: a call writes its outcome after the page has heard of its end."""
    await until(lambda: not server.room_registry.rooms)


async def fits(page: Page, width: int, height: int, path: Path, *, dark: bool = False) -> None:
    """Nothing runs off the side at this width."""
    await page.picture(path, width=width, height=height, dark=dark)
    assert await page.run("document.scrollingElement.scrollWidth <= innerWidth")


async def test_a_person_talks_to_the_agent_through_the_page(spoken_site: Node, tmp_path: Path) -> None:
    voice = microphone(tmp_path / "mic.wav", 6.0, "yes", 7.0, "yes", 30.0)
    async with chromium(microphone=voice) as page:
        await page.open(address(spoken_site, AGENT))
        await page.run(BARE_MICROPHONE)
        assert await page.run("document.getElementById('ask').checkVisibility()") is False
        await fits(page, 390, 844, tmp_path / "idle.png")
        await page.run(PRESS)
        await page.run(RECORD)
        await page.until(f"{LINES}.some(([who]) => who === 'caller')", timeout_s=30.0)
        await fits(page, 390, 844, tmp_path / "live-390.png", dark=True)
        await fits(page, 1280, 800, tmp_path / "live-1280.png")
        await page.until(f"{STATE} === 'The agent hung up.'")
        said = await page.run(LINES)
        latency = await page.run("document.getElementById('latency').textContent")
        played = np.frombuffer(base64.b64decode(await page.run(PLAYED)), np.int16)
        assert [line for line in page.log if "ScriptProcessor" not in line] == []  # the test's own recorder
    assert said[0] == ["agent", "Hello. Would you like an appointment?"]
    assert said[-2:] == [["caller", "yes"], ["agent", "Thank you. Goodbye."]]
    assert "ms on average" in latency
    loud = np.flatnonzero(np.abs(played) > 500)
    assert loud.size > 16000
    last = played[max(0, loud[-1] - 2 * 16000) : loud[-1] + 4000]
    assert "thank you" in await recognised(last)


async def test_speaking_over_the_agent_stops_it(spoken_site: Node, tmp_path: Path) -> None:
    voice = microphone(tmp_path / "mic.wav", 4.5, "no thank you that is not what i wanted", 30.0)
    async with chromium(microphone=voice) as page:
        await page.open(address(spoken_site, TALKER))
        await page.run(BARE_MICROPHONE)
        await page.run(PRESS)
        await page.until(f"{LINES}.some(([who, text]) => who === 'agent' && text.endsWith(' —'))")
        said = await page.run(LINES)
        assert not any("closed" in text for _, text in said)
        await page.run(ESCAPE)
        await page.until(f"{STATE} === 'You hung up.'")


async def test_a_microphone_that_is_denied_is_explained(spoken_site: Node) -> None:
    async with chromium(allowed=False) as page:
        await page.open(address(spoken_site, AGENT))
        await page.run(PRESS)
        assert "microphone is blocked" in await page.until(PROBLEM)
        assert await page.run("document.getElementById('talk').textContent") == "Start talking"


async def test_an_agent_that_needs_a_token_asks_for_it(closed_site: Node) -> None:
    server, _ = closed_site
    room = "none"
    key, secret = "devkey", "a-secret-of-thirty-two-characters"
    expired = mint(Grant(room=room, identity="ann"), key=key, secret=secret, wall_s=1_000_000_000)
    async with chromium() as page:
        await page.open(address(closed_site, AGENT))
        await page.run(PRESS)
        assert "needs a token" in await page.until(PROBLEM)
        assert await page.run("document.activeElement.id") == "token"
        await page.run(f"document.getElementById('token').value = '{expired}'")
        await page.run("document.querySelector('#ask button').click()")
        assert "expired" in await page.until(f"({PROBLEM}).includes('expired') && ({PROBLEM})")
        ours = mint(Grant(room="over", identity="ann"), key=key, secret=secret)
        await page.run("location.hash = ''")
        await page.open(address(closed_site, AGENT, f"#token={ours}"))
        await page.run(PRESS)
        assert "is over" in await page.until(PROBLEM)
    await emptied(server)


async def test_the_example_page_of_another_origin_talks_in_fifteen_lines(
    spoken_site: Node, tmp_path: Path
) -> None:
    server, client = spoken_site
    elsewhere = web.Application()
    elsewhere.router.add_static("/", ROOT / "examples")
    async with (
        TestServer(elsewhere) as other,
        chromium(microphone=microphone(tmp_path / "mic.wav", 60.0)) as page,
    ):
        fragment = f"#url={client.make_url('/rtc/whip')}&token={invite(server).token}"
        await page.open(str(other.make_url("/whip.html")) + fragment)
        await page.run("document.getElementById('talk').click()")
        await page.until("document.getElementById('said').textContent.includes('Hello. Would you')")
        await page.until("document.getElementById('voice').srcObject !== null")
        await page.run("document.getElementById('talk').click()")
        await page.until("document.getElementById('said').textContent.includes('\"ended\"')")
    await emptied(server)
