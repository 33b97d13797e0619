"""A customer's systems behind HTTP, which keep what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.webrtc.web import served


@dataclass
class Shop:
    """`asked` is every request that came, whatever it was for: method, path with query, body. `traces`: the
    `traceparent` of each."""

    url: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    answer: Any = field(default_factory=lambda: {"arrives": "monday"})
    takes_s: float = 0.0


@asynccontextmanager
async def shop() -> AsyncIterator[Shop]:
    """One on a port of this machine."""
    here = Shop()

    async def anything(request: web.Request) -> web.Response:
        here.asked.append((request.method, request.path_qs, await request.text()))
        here.traces.append(request.headers.get("traceparent", ""))
        await asyncio.sleep(here.takes_s)
        return web.json_response(here.answer)

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", anything)
    async with served(app) as here.url:
        yield here
