"""`mediaserver serve`: HTTP first, then the server behind it, until a signal; then drain and leave.

SIGTERM and SIGINT drain, a second one ends the calls that are left; SIGHUP reads the configuration again and
ends nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web

from mediaserver.admission import descriptors
from mediaserver.calls.validation import check_agent
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import InvalidRequest, MediaServerError, SettingsError
from mediaserver.http.server import SIP_SOCKETS, HttpServer
from mediaserver.node.free_memory import settle
from mediaserver.server import Phase, Server
from mediaserver.settings import Settings, split_address
from mediaserver.signals import Signals
from mediaserver.telemetry import logging as logs
from pipeline.confinement import memory
from sip.errors import SipError

log = logging.getLogger(__name__)

BuildApp = Callable[[Server], web.Application]

Reread = Callable[[], Settings]
"""Reads the configuration again. Raises `SettingsError`."""

EXIT_START = 1


async def run(
    settings: Settings,
    build: BuildApp,
    *,
    reread: Reread,
    engines: Engines | None = None,
    signals: Signals | None = None,
) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit status. A second signal ends it without draining.
    `engines`: those of `settings`, which may be starting already. `signals`: those of
    handlers that are installed."""
    lines = logs.configure(level=settings.server.log_level, as_json=settings.server.log_format == "json")
    logs.take_over()
    log.info("open files", extra={"limit": descriptors.raise_limit()})
    if reason := memory.too_few_addresses():
        log.error("memory is short", extra={"reason": reason})
    signals = signals or Signals.installed()
    asyncio.get_running_loop().set_exception_handler(logs.unhandled)
    try:
        server = Server(settings, engines=engines)
        server.metrics.watch_log(lambda: lines.lost)
        await _live(server, build, signals, reread)
    except (MediaServerError, SipError, OSError, ValueError) as error:
        log.critical("server cannot run", extra={"reason": str(error)})
        return EXIT_START
    log.info("server stopped")
    return 0


async def _live(server: Server, build: BuildApp, signals: Signals, reread: Reread) -> None:
    """Serves HTTP while the server starts, runs and stops."""
    settings = server.settings
    app = build(server)
    http = _http_server(server, app)
    sockets = _http_server(server, app[SIP_SOCKETS]) if SIP_SOCKETS in app else None
    try:
        listening = await http.start(*split_address(settings.server.http))
        log.info("http listening", extra={"address": listening})
        if sockets is not None and settings.sip.ws is not None:
            listening = await sockets.start(*split_address(settings.sip.ws))
            log.info("sip over websocket listening", extra={"address": listening})
        await _until(server.start(), signals.stop)
        settle()
        _tell_where_to_talk(server)
        await _until(_reload_when_asked(server, signals.reload, reread), signals.stop)
        await _until(server.drain(), signals.now)
    finally:
        await server.close()
        await http.close()
        if sockets is not None:
            await sockets.close()


def _http_server(server: Server, app: web.Application) -> HttpServer:
    settings, metrics = server.settings, server.metrics
    return HttpServer(
        app,
        settings.server,
        ceiling=descriptors.http_ceiling(settings.sip.max_calls, descriptors.limit()),
        refused=metrics.http_refused,
        late=metrics.http_late,
    )


def _tell_where_to_talk(server: Server) -> None:
    """Logs a link for each agent of the file that visitors may talk to from a browser, and that can talk."""
    if server.phase is not Phase.RUNNING:
        return
    for agent in server.settings.agents:
        company = server.directory.company(agent.company)
        if company is None or not company.public_talk or not company.web_calls:
            continue
        try:
            check_agent(server.engines, agent, {}, {})
        except InvalidRequest:
            continue  # the agent needs variables that a visitor does not bring, or /readyz says what it lacks
        url = f"{server.settings.server.public_url}/talk/{agent.id}"
        log.info("talk from a browser", extra={"agent": agent.name, "url": url})


async def _reload_when_asked(server: Server, asked: asyncio.Event, reread: Reread) -> None:
    """Reads the configuration again whenever `asked`; a file that cannot be used is logged and changes
    nothing."""
    while True:
        await asked.wait()
        asked.clear()
        try:
            await server.reload(await asyncio.to_thread(reread))
        except SettingsError as error:
            log.error("configuration not reloaded", extra={"problems": error.problems})
        except (MediaServerError, SipError, OSError, ValueError) as error:
            log.error("configuration not reloaded", extra={"problems": (str(error),)})


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
