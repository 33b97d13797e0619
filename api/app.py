"""Builds the aiohttp application of the REST API: routes, error middleware, limits."""

from __future__ import annotations

from aiohttp import web

from api import (
    batches,
    calls,
    dashboard,
    health,
    live_events,
    livekit,
    personal_data,
    rooms,
    sip_socket,
    speech,
    talk_page,
    traces,
    twirp,
    web_calls,
    whip,
)
from api.http import audit, headers, node_proxy
from api.http.auth import GUESSES, LIMITS, SERVER, TOLD, TOLD_PER_MINUTE, open_door
from api.http.errors import answer_errors
from api.http.peer import PEERS, Peers
from api.manage import bans, keys, resources, webhooks
from mediaserver.admission.key_guessing import Guesses
from mediaserver.admission.public_talk import PublicTalk
from mediaserver.admission.rate_limits import RateLimit
from mediaserver.rooms.livekit.sessions import SdkSessions
from mediaserver.rooms.whip import Whip
from mediaserver.server import Server

BODY_LIMIT = 1024 * 1024
"""Bytes of a request body; more is answered with 413. A batch of 100 calls is about 50 KiB."""


def build(server: Server) -> web.Application:
    """Builds the aiohttp application for `server`, whose owner starts and closes it."""
    app = web.Application(
        middlewares=[headers.identify, answer_errors, open_door, audit.note], client_max_size=BODY_LIMIT
    )
    app[SERVER] = server
    settings = server.settings.server
    app[PEERS] = Peers(trusted=settings.trusted_proxies, metrics=settings.metrics_networks)
    app[LIMITS] = RateLimit(settings.requests_per_minute)
    app[GUESSES], app[TOLD] = Guesses(), RateLimit(TOLD_PER_MINUTE)
    app[talk_page.TALKS] = PublicTalk(
        server.settings.rooms, is_open=lambda room: room in server.room_registry
    )
    app.add_routes(traces.routes)  # before the calls, whose ids may look like file names
    app.add_routes(calls.routes)
    app.add_routes(web_calls.routes)
    for each in (resources, keys, webhooks, bans, batches, rooms, personal_data):
        app.add_routes(each.routes)
    app.add_routes(health.routes)
    speech.set_up(app)
    app[whip.WHIP] = Whip()
    app.add_routes(whip.routes)
    app[livekit.SESSIONS] = SdkSessions()
    app.add_routes(livekit.routes)
    app.add_routes(twirp.routes)
    sip_socket.set_up(app, server)
    app.add_routes(talk_page.routes)
    app.add_routes(dashboard.routes)
    app[live_events.LINES] = live_events.Lines()
    app.add_routes(live_events.routes)
    app[health.DESCRIBING] = health.Describing(app)
    app.cleanup_ctx.append(node_proxy.connections)
    app.on_shutdown.append(live_events.end)
    app.on_response_prepare.append(whip.open_to_pages)
    app.on_response_prepare.append(talk_page.open_to_pages)
    app.on_response_prepare.append(headers.describe)
    return app
