"""Serves a web page on which a visitor talks to an agent: plain JavaScript modules over WHIP, no build step,
no external resources."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from api.http.auth import SERVER
from api.http.peer import neighbourhood
from api.http.static_files import PAGE_HEADERS, StaticFiles
from api.whip import asked, token_of
from mediaserver.admission.public_talk import JOIN_S, PublicTalk
from mediaserver.calls.validation import uuid_in
from mediaserver.errors import UnknownKey
from mediaserver.rooms.web_call import WebCallRequest

TALKS: web.AppKey[PublicTalk] = web.AppKey("talks", PublicTalk)
"""The open talks per client address."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; media-src 'self' blob:; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "Permissions-Policy": "microphone=(self), camera=()",
    **PAGE_HEADERS,
}

_FILES = StaticFiles(Path(__file__).parent / "static" / "talk", _HEADERS)

routes = web.RouteTableDef()


@routes.get("/talk/{agent}")
async def page(request: web.Request) -> web.StreamResponse:
    """Answers the same page for every agent, so that it does not tell which agents exist."""
    return _FILES.answer("index.html")


@routes.get("/static/talk/{name:[a-z]+[.](?:js|css)}")
async def part(request: web.Request) -> web.StreamResponse:
    """Answers a JavaScript module or the style sheet of the page."""
    return _FILES.answer(request.match_info["name"])


@routes.post("/talk/{agent}/session")
async def session(request: web.Request) -> web.Response:
    """Opens a room for an anonymous visitor where the agent's company sets `public_talk`; answers the
    token."""
    server = request.app[SERVER]
    agent = server.directory.agent(uuid_in(request.match_info["agent"]))
    company = server.directory.company(agent.company) if agent is not None else None
    if agent is None or company is None or not company.public_talk:
        raise UnknownKey("This agent needs a participant token")
    talks, address = request.app[TALKS], neighbourhood(request)
    room_registry = server.room_registry
    talks.take(address, asyncio.get_running_loop().time())
    await server.web_calls.check_vacancy(company.id)
    talks.check(address)  # nothing is awaited between this and `opened`
    visitor = WebCallRequest(agent_id=agent.id, name="Visitor", join_within_s=JOIN_S)
    join_grant = room_registry.invite(company.id, visitor)
    talks.opened(address, join_grant.room_name)
    return web.json_response(
        {
            "serverUrl": join_grant.server_url,
            "roomName": join_grant.room_name,
            "participantToken": join_grant.token,
            "participantName": join_grant.identity,
            "agentName": agent.name,
        }
    )


@routes.delete("/talk/{agent}/session")
async def give_back(request: web.Request) -> web.Response:
    """Ends a session that no visitor joined, and closes its room."""
    await asked(request.app[SERVER].room_registry.withdraw(token_of(request)))
    return web.Response(status=204)
