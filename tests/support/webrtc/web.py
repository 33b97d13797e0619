"""Somebody else's HTTP server, on a port of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from aiohttp import web


@asynccontextmanager
async def served(app: web.Application, port: int = 0) -> AsyncIterator[str]:
    """The URL of `app`, on `port` (0: a free one), until the block ends."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def answering(handler: Any) -> AbstractAsyncContextManager[str]:
    """The URL of a server that answers whatever it is asked with `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    return served(app)
