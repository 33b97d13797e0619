"""Firefox without a window, spoken to over WebDriver BiDi, which it serves itself; its microphone hums."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

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


class FirefoxPage:
    """One page, with the verbs of `chromium.Page`. `log` is what went wrong in it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.log: list[str] = []
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._context = ""
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        told = await asyncio.wait_for(answer, 30)
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

    async def until(self, script: str, *, timeout_s: float = 30.0) -> Any:
        """Waits until an expression is true; its value."""
        async with asyncio.timeout(timeout_s):
            while not (value := await self.run(script)):
                await asyncio.sleep(0.05)
        return value

    async def close(self) -> None:
        """Ends the session with the page."""
        await self._socket.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                waiting = self._waiting.pop(told["id"])
                if not waiting.done():
                    waiting.set_result(told)
            elif told.get("method") == "log.entryAdded" and told["params"]["level"] == "error":
                self.log.append(f"exception: {told['params']['text']}")


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
