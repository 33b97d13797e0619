"""Chromium without a window, spoken to over its DevTools protocol; its microphone is a file."""

from __future__ import annotations

import asyncio
import base64
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.webrtc.remote_page import RemotePage

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    # Else the list below the address bar is a page in a process of its own: 0.5 s of CPU at each start.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--remote-debugging-port=0",
)


class Page(RemotePage):
    """One page. `log` is what it said on its console and what went wrong."""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol."""
        answer = await self.command(method, params)
        result: dict[str, Any] = answer.get("result", {"error": answer.get("error")})
        return result

    async def open(self, url: str) -> None:
        """Loads a page and waits until it is there."""
        for domain in ("Runtime", "Page", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url="about:blank")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        answer = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def picture(self, path: Path, *, width: int, height: int, dark: bool = False) -> Path:
        """A screenshot at that size."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self.call("Emulation.setEmulatedMedia", features=scheme)
        await asyncio.sleep(0.3)  # transitions
        answer = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(answer["data"]))
        return path

    def heard(self, event: dict[str, Any]) -> None:
        """See `RemotePage`."""
        if event["method"] == "Runtime.consoleAPICalled":
            self.log.append(" ".join(str(each.get("value", "")) for each in event["params"]["args"]))
        elif event["method"] == "Runtime.exceptionThrown":
            self.log.append(f"exception: {event['params']['exceptionDetails']}")
        elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.log.append(event["params"]["entry"]["text"])


@asynccontextmanager
async def chromium(
    *, microphone: Path | None = None, allowed: bool = True, more: Sequence[str] = ()
) -> AsyncIterator[Page]:
    """A browser with one empty page. `microphone`: what is spoken into it, once, from when it is opened.
    Not `allowed`: the person says no when asked for it. `more`: flags of its command line."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser, "chromium is not installed"
    flags = [*FLAGS, *more, "--use-fake-ui-for-media-stream" if allowed else "--deny-permission-prompts"]
    if microphone is not None:
        flags.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            browser,
            *flags,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with aiohttp.ClientSession() as http:
                page = Page(await http.ws_connect(await _page_url(http, Path(profile)), max_msg_size=0))
                yield page
                await page.close()
        finally:
            process.terminate()
            await process.wait()


async def _page_url(http: aiohttp.ClientSession, profile: Path) -> str:
    """The address of the first page's debugger, once there is one."""
    port_file = profile / "DevToolsActivePort"
    async with asyncio.timeout(30):
        while True:
            if port_file.exists() and (lines := port_file.read_text().split()):
                async with http.get(f"http://127.0.0.1:{lines[0]}/json/list") as answer:
                    for target in await answer.json():
                        if target["type"] == "page":
                            return str(target["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)
