"""A customer's webhook endpoint, and the sending side in front of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiohttp import web

from mediaserver.admin.directory import Directory
from mediaserver.settings import Settings
from mediaserver.store.store import Store
from mediaserver.webhooks import Webhooks
from pipeline.net.egress import EgressPolicy
from pipeline.net.http import GuardedHttpClient
from tests.support.webrtc.web import served

LOOPBACK = ("127.0.0.0/8",)


class Receiver:
    """A customer's webhook endpoint. `answer` decides the status of each request."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], str]] = []
        self.answer: Callable[[dict[str, Any]], Awaitable[int]] = self.accept
        self.text = ""
        self.url = ""
        self.stop: Callable[[], Awaitable[None]]

    async def accept(self, body: dict[str, Any]) -> int:
        """Takes it."""
        return 204

    async def receive(self, request: web.Request) -> web.Response:
        """What the server calls."""
        text = await request.text()
        self.requests.append((dict(request.headers), text))
        return web.Response(status=await self.answer(json.loads(text)), text=self.text)

    @property
    def events(self) -> list[tuple[str, int]]:
        """Call and sequence number of every request."""
        bodies = [json.loads(text) for _, text in self.requests]
        return [(body["data"]["callTaskId"], body["sequence"]) for body in bodies]


@asynccontextmanager
async def receiver(port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver on `port` (0: a free one), gone with the block."""
    endpoint = Receiver()
    app = web.Application()
    app.router.add_post("/hook", endpoint.receive)
    async with AsyncExitStack() as stack:
        endpoint.stop = stack.aclose
        endpoint.url = f"{await stack.enter_async_context(served(app, port))}/hook"
        yield endpoint


class Outcomes:
    """What the metrics are told."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, outcome: str, duration_ms: int) -> None:
        self.seen.append(outcome)


@asynccontextmanager
async def sending(store: Store, configured: Settings, *, timeout_s: float = 5.0) -> AsyncIterator[Outcomes]:
    """Webhooks leave while the block runs."""
    outcomes = Outcomes()
    async with GuardedHttpClient(EgressPolicy(LOOPBACK), timeout_s=timeout_s) as http:
        webhooks = Webhooks(store, http, Directory(configured).secrets(), observe=outcomes)
        task = asyncio.create_task(webhooks.run())
        try:
            yield outcomes
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
