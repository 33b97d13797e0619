"""SIP over WebSocket (RFC 7118): softphones in browsers register and call agents.

GET /sip    WebSocket with the subprotocol "sip", at the API's address and at `sip.ws`

Digest says who it is, no cookie does: pages of any origin may connect, unless `sip.ws_origins` lists some.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from api.http.auth import SERVER
from api.http.peer import PEERS, Peers
from api.livekit import SocketOutlet
from mediaserver.http.server import SIP_SOCKETS
from mediaserver.server import Phase, Server

SUBPROTOCOL: Final = "sip"

MESSAGE_LIMIT: Final = 65_535
"""Octets of one message, as over every other transport."""

HEARTBEAT_S: Final = 30.0
"""Seconds between pings: a telephone whose connection is dead is not registered any more."""

routes = web.RouteTableDef()


@routes.get("/sip")
async def phone(request: web.Request) -> web.StreamResponse:
    """Serves a softphone until its connection closes, and its registrations with it."""
    server = request.app[SERVER]
    if server.phase is not Phase.RUNNING or not server.settings.sip.users:
        return web.Response(status=404, text="There is no SIP here")
    origins = server.settings.sip.ws_origins
    if "*" not in origins and request.headers.get("Origin") not in (None, *origins):
        return web.Response(status=403, text="This origin may not connect")
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if SUBPROTOCOL not in (each.strip() for each in offered.split(",")):
        return web.Response(status=400, text="The WebSocket must speak the subprotocol sip")
    forwarded_for = request.headers.getall("X-Forwarded-For", [])
    client = request.app[PEERS].client(request.remote or "", forwarded_for)
    if client is None:
        return web.Response(status=400, text="X-Forwarded-For does not name the client's address")
    socket = web.WebSocketResponse(
        protocols=(SUBPROTOCOL,), max_msg_size=MESSAGE_LIMIT, compress=False, heartbeat=HEARTBEAT_S
    )
    await socket.prepare(request)
    await _serve(request, server, socket, str(client))
    return socket


async def _serve(request: web.Request, server: Server, socket: web.WebSocketResponse, client: str) -> None:
    outlet = SocketOutlet(socket)
    writing = asyncio.create_task(outlet.run())
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None

    def send(data: bytes) -> bool:
        outlet.send(data.decode("utf-8", "replace"))
        return not socket.closed

    transport, loop = server.endpoint.web_sockets, asyncio.get_running_loop()
    frames = transport.framed(
        client, peer[1] if peer else 0, send=send, shut=lambda: outlet.close(WSCloseCode.OK, "")
    )
    try:
        if frames is None:
            outlet.close(WSCloseCode.TRY_AGAIN_LATER, "too many connections")
            return
        async for message in socket:
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                data = message.data.encode() if isinstance(message.data, str) else message.data
                frames.received(data, loop.time())
    finally:
        if frames is not None:
            transport.connection_closed(frames)
        outlet.close(WSCloseCode.OK, "")
        await writing


def set_up(app: web.Application, server: Server) -> None:
    """Adds the route to `app`, and to an application of its own for `sip.ws`, where any path leads to it."""
    app.add_routes(routes)
    if server.settings.sip.ws is None:
        return
    own = web.Application()
    own[SERVER] = server
    own[PEERS] = Peers(trusted=server.settings.server.trusted_proxies)
    own.router.add_get("/{path:.*}", phone)
    app[SIP_SOCKETS] = own
