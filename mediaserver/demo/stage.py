"""Sets up what the demo needs: free ports, a scratch directory, the processes, and a receiver of webhooks."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientTimeout, web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from mediaserver.demo.speech import Speech, embedded
from mediaserver.errors import LocalError
from mediaserver.local_node import environment

API_KEY = "demo-key"
WEBHOOK_SECRET = "whsec_ZGVtby13ZWJob29rLXNlY3JldC1vZi0zMi1ieXRlcyE="

Json = Mapping[str, Any]


class StageError(LocalError):
    """The demo could not be set up: the message names the part that failed and shows its output."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Four loopback ports that were free a moment ago."""

    http: int
    sip: int
    callee: int
    webhooks: int

    @classmethod
    def choose(cls) -> Ports:
        """Binds four free ports on 127.0.0.1, releases them and returns their numbers."""
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(4)]
        try:
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            return cls(*(each.getsockname()[1] for each in sockets))
        finally:
            for each in sockets:
                each.close()


def demo_config() -> Path:
    """Returns the path of `config/demo.toml`, in the installed package or in the checkout."""
    installed = Path(str(files("mediaserver"))) / "config" / "demo.toml"
    return installed if installed.exists() else installed.parents[2] / "config" / "demo.toml"


def write_config(directory: Path, ports: Ports, speech: Speech) -> Path:
    """Writes the demo's configuration for `ports`, with every path below `directory`; returns the file.
    Raises `StageError`."""
    text = demo_config().read_text()
    text = embedded(text) if speech is Speech.EMBEDDED else text
    changes = {
        "127.0.0.1:8080": f"127.0.0.1:{ports.http}",
        "127.0.0.1:5060": f"127.0.0.1:{ports.sip}",
        "127.0.0.1:5080": f"127.0.0.1:{ports.callee}",
        "127.0.0.1:9000": f"127.0.0.1:{ports.webhooks}",
        'data_dir = "var"': f"data_dir = {json.dumps(str(directory / 'var'))}",
        "sqlite:///var/": f"sqlite:///{directory / 'var'}/",
    }
    for old, new in changes.items():
        if old not in text:
            raise StageError(f"{demo_config()}: expected to find {old}")
        text = text.replace(old, new)
    path = directory / "demo.toml"
    path.write_text(text)
    return path


class Receiver:
    """Receives the demo's webhooks and accepts only signed ones; `seen` gets each event."""

    def __init__(self, seen: Callable[[Json], None]) -> None:
        self.received: list[Json] = []
        self._seen, self._verifier = seen, Webhook(WEBHOOK_SECRET)

    async def receive(self, request: web.Request) -> web.Response:
        """Handles `POST /hook`: 204 for a signed event, 401 for any other."""
        body = await request.text()
        try:
            event = self._verifier.verify(body, dict(request.headers))
        except WebhookVerificationError:
            return web.Response(status=401)
        self.received.append(event)
        self._seen(event)
        return web.Response(status=204)

    def count(self, call_id: str) -> Mapping[str, int]:
        """Returns how many events of each type came for a call, in order of first arrival."""
        types = [event["type"] for event in self.received if event["data"]["callTaskId"] == call_id]
        return {name: types.count(name) for name in dict.fromkeys(types)}

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[Receiver]:
        """Serves on 127.0.0.1 for as long as the context lasts."""
        app = web.Application()
        app.router.add_post("/hook", self.receive)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield self
        finally:
            await runner.cleanup()


class CalleeProcess:
    """The process of the called person (`mediaserver.demo.callee`) and the events that it reports."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.events: list[Json] = []
        self._process = process
        self._over = asyncio.Event()

    async def ready(self) -> None:
        """Waits until the process can answer a call. Raises `StageError`."""
        while not any(event["event"] == "ready" for event in self.events):
            await self._read_one()

    async def follow(self, seen: Callable[[Json], None]) -> None:
        """Reads events, each passed to `seen`, until the called person has hung up. Raises `StageError`."""
        while not self.ended:
            await self._read_one()
            seen(self.events[-1])

    @property
    def ended(self) -> Json | None:
        """The closing event, None until it comes."""
        return next((event for event in self.events if event["event"] == "ended"), None)

    def said(self) -> list[str]:
        """Returns the sentences that the called person spoke, in order."""
        return [event["text"] for event in self.events if event["event"] == "said"]

    def heard(self) -> list[str]:
        """Returns what the called person understood of each utterance, in order."""
        return [event["text"] for event in self.events if event["event"] == "heard"]

    async def _read_one(self) -> None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise StageError("the softphone's process ended: see callee.log")
        self.events.append(json.loads(line))


@asynccontextmanager
async def client(port: int) -> AsyncIterator[ClientSession]:
    """Opens an API client of the demo's company."""
    async with ClientSession(
        f"http://127.0.0.1:{port}",
        headers={"Authorization": f"Bearer {API_KEY}"},
        timeout=ClientTimeout(total=10),
    ) as session:
        yield session


async def told_by(module: str, *arguments: str, told: Callable[[int, int], None]) -> None:
    """Runs a program of ours that prints how far it is ("3 of 7" as "3 7"). Raises `StageError` with what it
    wrote on standard error where it fails."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    assert child.stdout is not None
    assert child.stderr is not None
    errors = asyncio.create_task(child.stderr.read())
    try:
        async for line in child.stdout:
            done, _, of = line.decode().partition(" ")
            told(int(done), int(of))
        wrong = await errors
        if await child.wait():
            raise StageError(f"{module}: {wrong.decode(errors='replace')[-2000:]}")
    finally:
        errors.cancel()
        if child.returncode is None:
            child.kill()
            await child.wait()
