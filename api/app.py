"""The HTTP face put together: routes, errors, limits."""

from __future__ import annotations

from aiohttp import web

from api import (
    calls,
    forwarding,
    health,
    manage,
    manage_keys,
    manage_webhooks,
    queue,
    rooms,
    rtc,
    speech,
    talk,
    web_calls,
    whip,
)
from api.auth import GUESSES, LIMITS, SERVER, TOLD, TOLD_PER_MINUTE, open_door
from api.errors import answer_errors
from api.peer import PEERS, Peers
from mediaserver.guessing import Guesses
from mediaserver.limits import RateLimit
from mediaserver.public_talk import PublicTalk
from mediaserver.rooms.signalling_sessions import SdkSessions
from mediaserver.rooms.whip import Whip
from mediaserver.server import Server

BODY_LIMIT = 1024 * 1024
"""Bytes of a request body; more is answered with 413. A batch of 100 calls is about 50 KiB."""


def build(server: Server) -> web.Application:
    """The application in front of `server`, which its owner starts and closes."""
    app = web.Application(middlewares=[answer_errors, open_door], client_max_size=BODY_LIMIT)
    app[SERVER] = server
    settings = server.settings.server
    app[PEERS] = Peers(trusted=settings.trusted_proxies, metrics=settings.metrics_networks)
    app[LIMITS] = RateLimit(settings.requests_per_minute)
    app[GUESSES], app[TOLD] = Guesses(), RateLimit(TOLD_PER_MINUTE)
    app[talk.TALKS] = PublicTalk(server.settings.rooms, is_open=lambda room: room in server.lobby)
    app.add_routes(calls.routes)
    app.add_routes(web_calls.routes)
    for each in (manage, manage_keys, manage_webhooks, queue, rooms):
        app.add_routes(each.routes)
    app.add_routes(health.routes)
    speech.set_up(app)
    app[whip.WHIP] = Whip()
    app.add_routes(whip.routes)
    app[rtc.SESSIONS] = SdkSessions()
    app.add_routes(rtc.routes)
    app.add_routes(talk.routes)
    app.on_startup.append(health.describe)
    app.cleanup_ctx.append(forwarding.connections)
    app.on_response_prepare.append(whip.open_to_pages)
    return app
