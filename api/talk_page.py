"""A page to talk to an agent from a browser: plain modules over WHIP, nothing built, nothing from outside."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from aiohttp import web

from api.http.auth import SERVER
from api.http.peer import neighbourhood
from api.whip import asked, token_of
from mediaserver.admission.public_talk import JOIN_S, PublicTalk
from mediaserver.errors import UnknownKey
from mediaserver.rooms.web_call import WebCallRequest

STATIC = Path(__file__).parent / "static"

TALKS: web.AppKey[PublicTalk] = web.AppKey("talks", PublicTalk)
"""Where an application keeps how many visitors there are."""

_PARTS = frozenset(path.name for path in (STATIC / "talk").iterdir())
"""Known before the first request: the event loop does not look at the disk."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; media-src 'self' blob:; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "Permissions-Policy": "microphone=(self), camera=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}

routes = web.RouteTableDef()


@routes.get("/talk/{agent}")
async def page(request: web.Request) -> web.StreamResponse:
    """The same page for every agent: whether there is one is said to who may talk to it."""
    return web.FileResponse(STATIC / "talk" / "index.html", headers=_HEADERS)


@routes.get("/static/talk/{name:[a-z]+[.](?:js|css)}")
async def part(request: web.Request) -> web.StreamResponse:
    """A module or the style of the page."""
    name = request.match_info["name"]
    if name not in _PARTS:
        raise web.HTTPNotFound
    return web.FileResponse(STATIC / "talk" / name, headers=_HEADERS)


@routes.post("/talk/{agent}/session")
async def session(request: web.Request) -> web.Response:
    """A token for anybody, where the agent's company lets anybody talk (`public_talk`)."""
    server = request.app[SERVER]
    agent = server.directory.agent(_agent_id(request.match_info["agent"]))
    company = server.directory.company(agent.company) if agent is not None else None
    if agent is None or company is None or not company.public_talk:
        raise UnknownKey("This agent needs a participant token")
    talks, address = request.app[TALKS], neighbourhood(request)
    lobby = server.lobby
    talks.take(address, asyncio.get_running_loop().time())
    await server.web_calls.check_vacancy(company.id)
    talks.check(address)  # nothing is awaited between this and `opened`
    visitor = WebCallRequest(agent_id=agent.id, name="Visitor", join_within_s=JOIN_S)
    invitation = lobby.invite(company.id, visitor)
    talks.opened(address, invitation.room_name)
    return web.json_response(
        {
            "serverUrl": invitation.server_url,
            "roomName": invitation.room_name,
            "participantToken": invitation.token,
            "participantName": invitation.identity,
            "agentName": agent.name,
        }
    )


@routes.delete("/talk/{agent}/session")
async def give_back(request: web.Request) -> web.Response:
    """The visitor has thought better of it before joining: nothing is kept open for them."""
    await asked(request.app[SERVER].lobby.withdraw(token_of(request)))
    return web.Response(status=204)


def _agent_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return ""
