"""A page to talk to an agent from a browser: plain modules over WHIP, nothing built, nothing from outside."""

from __future__ import annotations

import uuid
from pathlib import Path

from aiohttp import web

from api.auth import SERVER
from mediaserver.refusals import UnknownKey
from mediaserver.rooms.webcall import WebCallRequest

STATIC = Path(__file__).parent / "static"

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
    path = STATIC / "talk" / request.match_info["name"]
    if not path.is_file():
        raise web.HTTPNotFound
    return web.FileResponse(path, headers=_HEADERS)


@routes.post("/talk/{agent}/session")
async def session(request: web.Request) -> web.Response:
    """A token for anybody, where the agent's company lets anybody talk (`public_talk`)."""
    server = request.app[SERVER]
    agent = server.directory.agent(_agent_id(request.match_info["agent"]))
    company = server.directory.company(agent.company) if agent is not None else None
    if agent is None or company is None or not company.public_talk:
        raise UnknownKey("This agent needs a participant token")
    await server.web_calls.check_vacancy(company.id)
    invitation = server.lobby.invite(company.id, WebCallRequest(agent_id=agent.id, name="Visitor"))
    return web.json_response(
        {
            "serverUrl": invitation.server_url,
            "roomName": invitation.room_name,
            "participantToken": invitation.token,
            "participantName": invitation.identity,
            "agentName": agent.name,
        }
    )


def _agent_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return ""
