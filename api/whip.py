"""WHIP over HTTP (RFC 9725): fifteen lines of plain browser JavaScript talk to an agent.

POST   /rtc/whip           application/sdp, Bearer participantToken → 201, the answer, Location
PATCH  /rtc/whip/{id}      application/trickle-ice-sdpfrag → 204; 200 with a fragment for an ICE restart
DELETE /rtc/whip/{id}      → 200
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from aiohttp import web

from api.http.auth import SERVER
from mediaserver.errors import InvalidRequest, NotFound, Refused, Unavailable, UnknownKey
from mediaserver.rooms.errors import BadOffer, PeerClosed, RoomClosed, RoomError, RoomFull, TokenRefused
from mediaserver.rooms.whip import Whip

WHIP: web.AppKey[Whip] = web.AppKey("whip", Whip)
"""The WHIP sessions of the application."""

SDP = "application/sdp"
FRAGMENT = "application/trickle-ice-sdpfrag"

CORS: Mapping[str, str] = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, PATCH, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, If-Match",
    "Access-Control-Expose-Headers": "Location, Link, ETag, Retry-After, X-Request-Id",
    "Access-Control-Max-Age": "86400",
}
"""Any origin may connect: the participant token authorises, no cookie does."""

REFUSALS: Mapping[type[Exception], type[Refused]] = {
    TokenRefused: UnknownKey,
    RoomClosed: NotFound,
    PeerClosed: NotFound,
    RoomFull: Unavailable,
    BadOffer: InvalidRequest,
    RoomError: InvalidRequest,
}
"""Looked up in order: the first matching class counts."""

_TOKEN_LIMIT = 32 * 1024
_T = TypeVar("_T")

routes = web.RouteTableDef()


@routes.options("/rtc/whip")
@routes.options("/rtc/whip/{id}")
async def preflight(request: web.Request) -> web.Response:
    """Answers a CORS preflight request."""
    return web.Response(status=204, headers={**CORS, "Accept-Post": SDP})


@routes.post("/rtc/whip")
async def start(request: web.Request) -> web.Response:
    """Creates a WHIP session (RFC 9725 4.2): answers the SDP answer to an SDP offer."""
    server = request.app[SERVER]
    offer = await _body(request, SDP)
    session, answer = await asked(request.app[WHIP].open(server.room_registry, token_of(request), offer))
    response = web.Response(status=201, text=answer, content_type=SDP, headers=CORS)
    response.headers["Location"] = f"/rtc/whip/{session.id}"
    response.headers["ETag"] = f'"{session.id[:8]}"'
    for each in server.settings.rooms.ice_servers_for(session.participant_sid, time.time()):
        response.headers.add("Link", each.link())
    return response


@routes.patch("/rtc/whip/{id}")
async def trickle(request: web.Request) -> web.Response:
    """Takes trickled ICE candidates, or answers an ICE restart (RFC 9725 4.3)."""
    fragment = await _body(request, FRAGMENT)
    ours = await asked(request.app[WHIP].trickle(request.match_info["id"], fragment))
    if ours is None:
        return web.Response(status=204, headers=CORS)
    return web.Response(text=ours, content_type=FRAGMENT, headers=CORS)


@routes.delete("/rtc/whip/{id}")
async def end(request: web.Request) -> web.Response:
    """Ends a WHIP session (RFC 9725 4.2): the client has left."""
    server = request.app[SERVER]
    await asked(request.app[WHIP].end(server.room_registry, request.match_info["id"]))
    return web.Response(headers=CORS)


async def open_to_pages(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the CORS headers to every response below /rtc/, so that pages of other origins can read refusals
    too."""
    if request.path.startswith("/rtc/"):
        for name, value in CORS.items():
            response.headers.setdefault(name, value)


async def asked(work: Awaitable[_T]) -> _T:
    """Awaits `work`, with the exceptions of rooms turned into the API's refusals."""
    try:
        return await work
    except RoomError as error:
        raise refusal_of(error) from error
    except BadOffer as error:
        raise refusal_of(error) from error


def refusal_of(error: Exception) -> Refused:
    """Returns the API's refusal for an exception of a room."""
    kind = next(refused for ours, refused in REFUSALS.items() if isinstance(error, ours))
    return kind(str(error))


def token_of(request: web.Request) -> str:
    """Returns the participant token of a request. Raises `UnknownKey` without one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or len(token) > _TOKEN_LIMIT:
        raise UnknownKey("Missing participant token")
    return token.strip()


async def _body(request: web.Request, content_type: str) -> str:
    if request.content_type != content_type:
        raise InvalidRequest(f"Content-Type must be {content_type}")
    try:
        return (await request.read()).decode()
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not text") from None
