"""`mediaserver serve`: HTTP first, then the server behind it, until a signal; then drain and leave."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web

from mediaserver import descriptors
from mediaserver import logging as logs
from mediaserver.errors import MediaServerError
from mediaserver.http_server import HttpServer
from mediaserver.server import Server
from mediaserver.settings import Settings, split_address
from sip.errors import SipError

log = logging.getLogger(__name__)

BuildApp = Callable[[Server], web.Application]

EXIT_START = 1

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run(settings: Settings, build: BuildApp) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit status. A second signal ends it without draining."""
    lines = logs.configure(level=settings.server.log_level, as_json=settings.server.log_format == "json")
    logs.take_over()
    log.info("open files", extra={"limit": descriptors.raise_limit()})
    stop, now = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        (now if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(logs.unhandled)
    for number in _SIGNALS:
        loop.add_signal_handler(number, signalled)
    try:
        server = Server(settings)
        server.metrics.watch_log(lambda: lines.lost)
        await _live(server, build, stop, now)
    except (MediaServerError, SipError, OSError, ValueError) as error:
        log.critical("server cannot run", extra={"reason": str(error)})
        return EXIT_START
    log.info("server stopped")
    return 0


async def _live(server: Server, build: BuildApp, stop: asyncio.Event, now: asyncio.Event) -> None:
    """The server's life: HTTP answers before everything else is up, and until everything else is down."""
    settings, metrics = server.settings, server.metrics
    http = HttpServer(
        build(server),
        settings.server,
        ceiling=descriptors.http_ceiling(settings.sip.max_calls, descriptors.limit()),
        refused=metrics.http_refused,
        late=metrics.http_late,
    )
    try:
        listening = await http.start(*split_address(settings.server.http))
        log.info("http listening", extra={"address": listening})
        await _until(server.start(), stop)
        await stop.wait()
        await _until(server.drain(), now)
    finally:
        await server.close()
        await http.close()


async def _until(work: Coroutine[Any, Any, object], stop: asyncio.Event) -> None:
    """Runs `work` to its end, or until `stop`."""
    task = asyncio.create_task(work)
    waiting = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        waiting.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
