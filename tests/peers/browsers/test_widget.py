"""The widget on pages of other origins, whose Content-Security-Policy names the media server alone."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from mediaserver.rooms.webrtc.udp_mux import own_addresses
from mediaserver.server import Server
from tests.peers.browsers.test_talk import BARE_MICROPHONE, PLAYED, RECORD, emptied
from tests.peers.browsers.test_talk_ways import OPEN_TRACKS, SENT, WATCHED
from tests.support.node.node import REAL_ENGINES, running
from tests.support.webrtc.chromium import Page, chromium
from tests.support.webrtc.firefox import FirefoxPage, firefox
from tests.support.webrtc.rooms import AGENT, TALKER, microphone, write_web_site
from tests.support.webrtc.web import served

pytestmark = pytest.mark.slow

ROOT = "document.querySelector('body > div').shadowRoot"
OPENER = f"{ROOT}.querySelector('.opener')"
PANEL = f"{ROOT}.querySelector('section')"
STATE = f"{ROOT}.querySelector('.state').textContent"
PROBLEM = f"{ROOT}.querySelector('.problem').textContent"
TALK = f"{ROOT}.querySelector('.main')"
MUTE = f"{ROOT}.querySelector('.main + button')"
VOICE = f"{ROOT}.querySelector('audio')"
LINES = f"[...{ROOT}.querySelectorAll('li')].map(line => [line.dataset.speaker, line.lastChild.textContent])"
STYLE = f"""(({{ position, fontSize, opacity }}, inner) => [
  position, fontSize, opacity,
  inner.getPropertyValue('--accent'), parseFloat(inner.lineHeight), {OPENER}.offsetHeight,
])(getComputedStyle(document.querySelector('body > div')), getComputedStyle({OPENER}))"""
LOADED = "document.querySelector('body > div')?.shadowRoot != null"
FOCUSED = f"{ROOT}.activeElement?.textContent || {ROOT}.activeElement?.ariaLabel"

PAGE = """<!doctype html><html lang="{language}" dir="{direction}"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Shop</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="/hostile.css">
<script src="{server}/widget.js" data-agent="{agent}"></script><h1>{heading}</h1></html>"""
HOSTILE = """
html { font-size: 40px; }
div { position: static !important; display: none !important; opacity: 0 !important;
  font: 40px serif !important; --accent: red !important; direction: ltr !important; }
"""
"""What a page says of its own elements."""

HEADINGS = {"en": "Our shop", "ar": "متجرنا"}


@dataclass
class Shop:
    """Somebody's website. `server`: where the widget comes from."""

    url: str = ""
    server: str = ""

    def page(self, agent: str = AGENT, language: str = "en") -> str:
        """The URL of a page with the widget."""
        return f"{self.url}/{language}/{agent}"

    async def answer(self, request: web.Request) -> web.Response:
        """A page that lets nothing in but the widget, and makes no text a script."""
        language = request.match_info["language"]
        told = PAGE.format(
            language=language,
            direction="rtl" if language == "ar" else "ltr",
            server=self.server,
            agent=request.match_info["agent"],
            heading=HEADINGS[language],
        )
        policy = (
            f"default-src 'none'; script-src {self.server}; connect-src {self.server}; img-src data:; "
            "style-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'; "
            "base-uri 'none'; form-action 'none'"
        )
        headers = {"Content-Security-Policy": policy}
        return web.Response(text=told, content_type="text/html", headers=headers)


async def hostile(_: web.Request) -> web.Response:
    """The style sheet of the website."""
    return web.Response(text=HOSTILE, content_type="text/css")


@asynccontextmanager
async def website() -> AsyncIterator[Shop]:
    """A website on an origin of its own."""
    shop, app = Shop(), web.Application()
    app.router.add_get("/{language}/{agent}", shop.answer)
    app.router.add_get("/hostile.css", hostile)
    async with served(app) as shop.url:
        yield shop


@asynccontextmanager
async def both(folder: Path, *, rooms: str = "", **more: Any) -> AsyncIterator[tuple[Shop, Server]]:
    """A website, and a server whose company lets its visitors talk."""
    async with website() as shop:
        site = write_web_site(folder, talk_origins=[shop.url], **more)
        site.change("[rooms]\n", f"[rooms]\n{rooms}\n")
        async with running(site) as (server, client):
            shop.server = str(client.make_url("/")).rstrip("/")
            yield shop, server


async def press(page: Page | FirefoxPage, shop: Shop, **where: str) -> None:
    """Opens a page and presses the widget's button."""
    await page.open(shop.page(**where))
    await page.until(LOADED)
    await page.run(f"{OPENER}.click()")


async def test_a_visitor_of_another_origin_talks_to_the_agent(tmp_path: Path) -> None:
    voice = microphone(tmp_path / "mic.wav", 6.0, "yes", 60.0)
    async with both(tmp_path, engines=REAL_ENGINES) as (shop, server), chromium(microphone=voice) as page:
        await page.open(shop.page())
        await page.run(BARE_MICROPHONE)
        await page.run(WATCHED)
        await page.until(LOADED)
        assert await page.run(STYLE) == ["fixed", "16px", "1", "#1f5eff", 24, 56]
        assert await page.run(f"{PANEL}.checkVisibility()") is False
        await page.run(f"{OPENER}.click()")
        await page.run(RECORD.replace("document.getElementById('voice')", VOICE))
        await page.until(f"{STATE} === 'Speaking'")
        await page.until(f"{LINES}.some(([who, text]) => who === 'caller' && text === 'yes')")
        await page.run(f"{MUTE}.click()")
        assert "You are muted" in await page.run(STATE)
        assert await page.run(f"{SENT}.enabled") is False
        await page.run(f"{TALK}.click()")
        await page.until(f"{STATE} === 'You hung up.'")
        said = await page.run(LINES)
        played = np.frombuffer(base64.b64decode(await page.run(PLAYED)), np.int16)
        assert [line for line in page.log if "ScriptProcessor" not in line] == []  # of the policy, above all
        await emptied(server)
    assert said[0] == ["agent", "Hello. Would you like an appointment?"]
    assert np.flatnonzero(np.abs(played) > 500).size > 8000


@pytest.mark.nightly("ci")
async def test_keys_alone_open_and_close_it_and_a_screen_reader_is_told_what_is_there(tmp_path: Path) -> None:
    async with both(tmp_path) as (shop, server), chromium() as page:
        await page.open(shop.page())
        await page.until(LOADED)
        await key(page, "Tab", 9)
        assert await page.run(FOCUSED) == "Start talking"
        await key(page, "Enter", 13)
        await page.until(f"{LINES}.length > 0")
        assert await page.run(FOCUSED) == "Hang up"
        tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        seen = {
            (each["role"]["value"], each.get("name", {}).get("value", "")) for each in tree if "role" in each
        }
        assert {
            ("dialog", "Web desk"),
            ("button", "Hang up"),
            ("button", "Mute"),
            ("button", "Close"),
            ("log", "Conversation"),
        } <= seen
        assert {"status", "alert"} & {role for role, _ in seen} == {"status"}  # nothing is wrong
        await key(page, "Escape", 27)
        assert await page.run(f"{PANEL}.checkVisibility()") is False
        assert await page.run(FOCUSED) == "Start talking"
        await emptied(server)
        await page.run(WATCHED)
        await key(page, "Enter", 13)
        await page.until(f"{LINES}.length > 0")
        await page.run("document.body.replaceChildren()")  # a page of one document goes to its next view
        await emptied(server)
        assert await page.run(f"{OPEN_TRACKS}.length") == 0
        assert page.log == []


async def key(page: Page, name: str, code: int) -> None:
    """Presses one key of the keyboard."""
    text = {"text": "\r"} if name == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        await page.call(
            "Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **text
        )


@pytest.mark.nightly("ci")
async def test_it_says_why_it_cannot_talk(tmp_path: Path) -> None:
    unknown = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11"
    async with both(tmp_path, rooms="public_talk_at_once_each = 1") as (shop, server):
        async with chromium() as page, website() as other:
            other.server = shop.server
            await press(page, other)
            assert await page.until(PROBLEM) == "This agent does not talk on this website."
            await press(page, shop, agent=unknown)
            assert (await page.until(PROBLEM)).startswith("There is no such agent here")
            await page.run(f"fetch('{shop.server}/talk/{TALKER}/session', {{ method: 'POST' }})")
            await press(page, shop)
            limited = await page.until(PROBLEM)
            assert limited.startswith("Too many conversations. Try again in "), limited
            assert await page.run(TALK + ".textContent") == "Start talking"
        async with chromium(allowed=False) as page:
            await press(page, shop)
            assert "microphone is blocked" in await page.until(PROBLEM)
        assert len(server.room_registry) == 0


@pytest.mark.nightly("ci")
async def test_a_page_over_http_is_told_that_it_needs_https(tmp_path: Path) -> None:
    async with both(tmp_path) as (shop, _):
        shop.url = shop.url.replace("127.0.0.1", "shop.test")
        async with chromium(more=["--host-resolver-rules=MAP shop.test 127.0.0.1"]) as page:
            await press(page, shop)
            assert "over https" in await page.until(PROBLEM)


@pytest.mark.nightly("ci")
async def test_firefox_hears_the_agent_too(tmp_path: Path) -> None:
    # Firefox has no candidate of 127.0.0.1, and reaches none from another address.
    async with both(tmp_path, addresses=own_addresses()) as (shop, server), firefox() as page:
        await press(page, shop)
        await page.until(f"{LINES}.some(([who]) => who === 'agent')")
        await page.until(f"{VOICE}.srcObject !== null && {VOICE}.currentTime > 0.5")
        await page.run(f"{TALK}.click()")
        await page.until(f"{STATE} === 'You hung up.'")
        await emptied(server)
        assert page.log == []


@pytest.mark.nightly("ci")
@pytest.mark.parametrize("language", ["en", "ar"])
async def test_it_fits_a_telephone_in_both_directions(tmp_path: Path, language: str) -> None:
    async with both(tmp_path) as (shop, _), chromium() as page:
        await page.open(shop.page(language=language))
        await page.until(LOADED)
        await page.picture(tmp_path / "closed.png", width=390, height=844)
        await page.run(f"{OPENER}.click()")
        await page.until(f"{LINES}.length > 0")
        for dark in (False, True):
            await page.picture(tmp_path / f"open-{dark}.png", width=390, height=844, dark=dark)
            left, right = await page.run(
                f"(({{ left, right }}) => [left, right])({PANEL}.getBoundingClientRect())"
            )
            assert 0 <= left < right <= 390
            assert await page.run("document.scrollingElement.scrollWidth <= innerWidth")
        assert await page.run(f"getComputedStyle({PANEL}).direction") == (
            "rtl" if language == "ar" else "ltr"
        )
