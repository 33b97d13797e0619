"""JsSIP in Chromium: the library as npm has it, and a page of another origin that calls with it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.webrtc.chromium import Page, chromium

PACKAGES = ("jssip@3.10.1", "esbuild@0.25.12")
KEPT = Path(sys.prefix) / "npm" / "softphone"
HERE = Path(__file__).parent


async def jssip() -> Path:
    """The library as one script, fetched from npm and bundled the first time."""
    script = KEPT / "jssip.js"
    if not script.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        await _run("npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES)
        entry = "node_modules/jssip/lib/JsSIP.js"
        shape = ("--bundle", "--format=iife", "--global-name=JsSIP", f"--outfile={script}")
        await _run("node_modules/.bin/esbuild", entry, *shape)
    return script


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=KEPT, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    assert await asyncio.wait_for(process.wait(), 120) == 0, command


@asynccontextmanager
async def softphone_page(*, microphone: Path | None = None) -> AsyncIterator[Page]:
    """A page with `phone(url, user, password, domain)`, `dial`, and what happens in `events`."""
    library, own = (await jssip()).read_text(), (HERE / "softphone_page.js").read_text()
    page = f"<!doctype html><title>phone</title><script>{library}</script><script>{own}</script>"

    async def shown(_: web.Request) -> web.Response:
        return web.Response(text=page.replace("\u2028", " "), content_type="text/html")

    elsewhere = web.Application()
    elsewhere.router.add_get("/", shown)
    async with TestServer(elsewhere) as served, chromium(microphone=microphone) as browser:
        await browser.open(f"http://127.0.0.1:{served.port}/")
        yield browser
