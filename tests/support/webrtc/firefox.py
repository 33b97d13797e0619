"""Firefox without a window, spoken to over WebDriver BiDi, which it serves itself; its microphone hums."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.webrtc.remote_page import RemotePage

PREFERENCES = {
    "media.navigator.streams.fake": True,
    "media.navigator.permission.disabled": True,
    "media.autoplay.default": 0,
    "media.autoplay.blocking_policy": 0,
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
}


class FirefoxPage(RemotePage):
    """One page, with the verbs of `chromium.Page`. `log` is what went wrong in it."""

    _context = ""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        told = await self.command(method, params)
        assert told["type"] == "success", told
        result: dict[str, Any] = told["result"]
        return result

    async def begin(self) -> None:
        """Takes the browser's one page."""
        await self.call("session.new", capabilities={})
        await self.call("session.subscribe", events=["log.entryAdded"])
        (page,) = (await self.call("browsingContext.getTree"))["contexts"]
        self._context = page["context"]

    async def open(self, url: str) -> None:
        """Loads a page and waits until it is there."""
        await self.call("browsingContext.navigate", context=self._context, url=url, wait="complete")

    async def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        told = await self.call(
            "script.evaluate",
            expression=f"(async () => JSON.stringify((await ({script})) ?? null))()",
            target={"context": self._context},
            awaitPromise=True,
            userActivation=True,
        )
        assert told["type"] == "success", told
        return json.loads(told["result"]["value"])

    def heard(self, event: dict[str, Any]) -> None:
        """See `RemotePage`."""
        if event.get("method") == "log.entryAdded" and event["params"]["level"] == "error":
            self.log.append(f"exception: {event['params']['text']}")


@asynccontextmanager
async def firefox() -> AsyncIterator[FirefoxPage]:
    """A browser with one empty page. Whoever asks gets the microphone."""
    browser = shutil.which("firefox-esr") or shutil.which("firefox")
    assert browser, "firefox is not installed"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        wishes = [f'user_pref("{name}", {json.dumps(value)});' for name, value in PREFERENCES.items()]
        await asyncio.to_thread(Path(profile, "user.js").write_text, "\n".join(wishes))
        process = await asyncio.create_subprocess_exec(
            browser,
            "--headless",
            "--no-remote",
            "--profile",
            profile,
            "--remote-debugging-port=0",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with aiohttp.ClientSession() as http:
                page = FirefoxPage(await http.ws_connect(await _session_url(Path(profile)), max_msg_size=0))
                await page.begin()
                yield page
                await page.close()
        finally:
            process.terminate()
            await process.wait()


async def _session_url(profile: Path) -> str:
    """Where the browser serves WebDriver BiDi, once it does."""
    told = profile / "WebDriverBiDiServer.json"
    async with asyncio.timeout(60):
        while True:
            text = told.read_text() if told.exists() else ""
            if text.endswith("}"):
                served = json.loads(text)
                return f"ws://{served['ws_host']}:{served['ws_port']}/session"
            await asyncio.sleep(0.05)
