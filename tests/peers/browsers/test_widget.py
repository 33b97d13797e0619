"""The widget on pages of other origins, whose Content-Security-Policy names the media server alone."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web

from mediaserver.server import Server
from tests.peers.browsers.test_talk import BARE_MICROPHONE, PLAYED, RECORD, emptied
from tests.support.node.node import FAKE_ENGINES, REAL_ENGINES, running
from tests.support.webrtc.chromium import Page, chromium
from tests.support.webrtc.rooms import AGENT, microphone, write_web_site
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
LOADED = "document.querySelector('body > div')?.shadowRoot != null"
FOCUSED = f"{ROOT}.activeElement?.textContent || {ROOT}.activeElement?.ariaLabel"

PAGE = """<!doctype html><html lang="{language}" dir="{direction}"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Shop</title>
<script src="{server}/widget.js" data-agent="{agent}"></script><h1>{heading}</h1></html>"""
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
            f"default-src 'none'; script-src {self.server}; connect-src {self.server}; "
            "require-trusted-types-for 'script'; trusted-types 'none'; base-uri 'none'; form-action 'none'"
        )
        headers = {"Content-Security-Policy": policy}
        return web.Response(text=told, content_type="text/html", headers=headers)


@asynccontextmanager
async def website() -> AsyncIterator[Shop]:
    """A website on an origin of its own."""
    shop, app = Shop(), web.Application()
    app.router.add_get("/{language}/{agent}", shop.answer)
    async with served(app) as shop.url:
        yield shop


@asynccontextmanager
async def both(
    folder: Path, *, engines: str = FAKE_ENGINES, rooms: str = ""
) -> AsyncIterator[tuple[Shop, Server]]:
    """A website, and a server whose company lets its visitors talk."""
    async with website() as shop:
        site = write_web_site(folder, engines=engines, talk_origins=[shop.url])
        site.change("[rooms]\n", f"[rooms]\n{rooms}\n")
        async with running(site) as (server, client):
            shop.server = str(client.make_url("/")).rstrip("/")
            yield shop, server


async def press(page: Page, shop: Shop, **where: str) -> None:
    """Opens a page and presses the widget's button."""
    await page.open(shop.page(**where))
    await page.until(LOADED)
    await page.run(f"{OPENER}.click()")


async def test_a_visitor_of_another_origin_talks_to_the_agent(tmp_path: Path) -> None:
    voice = microphone(tmp_path / "mic.wav", 6.0, "yes", 60.0)
    async with both(tmp_path, engines=REAL_ENGINES) as (shop, server), chromium(microphone=voice) as page:
        await page.open(shop.page())
        await page.run(BARE_MICROPHONE)
        await page.until(LOADED)
        assert await page.run(f"{PANEL}.checkVisibility()") is False
        await page.run(f"{OPENER}.click()")
        await page.run(RECORD.replace("document.getElementById('voice')", VOICE))
        await page.until(f"{STATE} === 'Speaking'")
        await page.until(f"{LINES}.some(([who, text]) => who === 'caller' && text === 'yes')")
        await page.run(f"{MUTE}.click()")
        assert "You are muted" in await page.run(STATE)
        await page.run(f"{TALK}.click()")
        await page.until(f"{STATE} === 'You hung up.'")
        said = await page.run(LINES)
        played = np.frombuffer(base64.b64decode(await page.run(PLAYED)), np.int16)
        assert [line for line in page.log if "ScriptProcessor" not in line] == []  # of the policy, above all
        await emptied(server)
    assert said[0] == ["agent", "Hello. Would you like an appointment?"]
    assert np.flatnonzero(np.abs(played) > 500).size > 8000
