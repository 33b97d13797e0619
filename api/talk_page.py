"""Serves a web page on which a visitor talks to an agent, and the widget that pages of other origins put on
theirs: plain JavaScript modules over WHIP, no build step, no external resources."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from api.http.auth import SERVER
from api.http.peer import neighbourhood
from api.http.static_files import PAGE_HEADERS, PART_HEADERS, StaticFiles
from api.whip import asked, token_of
from mediaserver.admission.public_talk import JOIN_S, PublicTalk
from mediaserver.calls.validation import uuid_in
from mediaserver.errors import Forbidden, UnknownKey
from mediaserver.rooms.web_call import WebCallRequest
from mediaserver.settings import CompanySettings
from mediaserver.settings.values import web_origin

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

_FOLDER = Path(__file__).parent / "static" / "talk"
_FILES = StaticFiles(_FOLDER, _HEADERS)
_PARTS = StaticFiles(
    _FOLDER,
    {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin", **PART_HEADERS},
)

CORS: Final[Mapping[str, str]] = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization",
    "Access-Control-Expose-Headers": "Retry-After, X-Request-Id",
    "Access-Control-Max-Age": "86400",
}
"""Pages of every origin may read why they are refused; `check_origin` says which are not."""

NEEDS_TOKEN = "This agent needs a participant token"

routes = web.RouteTableDef()


@routes.get("/talk/{agent}")
async def page(request: web.Request) -> web.StreamResponse:
    """Answers the same page for every agent, so that it does not tell which agents exist."""
    return _FILES.answer(request, "index.html")


@routes.get("/static/talk/{name:[a-z]+[.](?:js|css)}")
async def part(request: web.Request) -> web.StreamResponse:
    """Answers a JavaScript module or a style sheet of the page and the widget, to pages of every origin."""
    return _PARTS.answer(request, request.match_info["name"])


@routes.get("/widget.js")
async def widget(request: web.Request) -> web.StreamResponse:
    """Answers the script that puts the widget on a page."""
    return _PARTS.answer(request, "widget.js")


@routes.options("/talk/{agent}/session")
async def preflight(request: web.Request) -> web.Response:
    """Answers a CORS preflight request."""
    return web.Response(status=204)


@routes.post("/talk/{agent}/session")
async def session(request: web.Request) -> web.Response:
    """Opens a room for an anonymous visitor where the agent's company lets the asking page's visitors talk;
    answers the token."""
    server = request.app[SERVER]
    talks, address = request.app[TALKS], neighbourhood(request)
    talks.take(address, asyncio.get_running_loop().time())
    agent = server.directory.agent(uuid_in(request.match_info["agent"]))
    company = server.directory.company(agent.company) if agent is not None else None
    if agent is None or company is None:
        raise UnknownKey(NEEDS_TOKEN)
    check_origin(request, company)
    room_registry = server.room_registry
    await server.web_calls.check_vacancy(company.id)
    talks.check(address, company.id)  # nothing is awaited between this and `opened`
    visitor = WebCallRequest(agent_id=agent.id, name="Visitor", join_within_s=JOIN_S)
    join_grant = room_registry.invite(company.id, visitor)
    talks.opened(join_grant.room_name, address, company.id)
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


def check_origin(request: web.Request, company: CompanySettings) -> None:
    """Raises `UnknownKey` or `Forbidden` where visitors of the asking page may not talk to the company's
    agents. Programs that are no browsers may name any origin."""
    origin = request.headers.get("Origin")
    if origin is None or _is_own(request, origin):
        if not company.public_talk:
            raise UnknownKey(NEEDS_TOKEN)
        return
    if "*" in company.talk_origins or origin in company.talk_origins:
        return
    if not company.public_talk and not company.talk_origins:
        raise UnknownKey(NEEDS_TOKEN)
    raise Forbidden("Pages of this origin may not talk to this agent")


def _is_own(request: web.Request, origin: str) -> bool:
    """Whether `origin` is this server's, as the browser says, by its host, or by `public_url` where a proxy
    has rewritten the host."""
    public = web_origin(request.app[SERVER].settings.server.public_url)
    ours = {f"http://{request.host}", f"https://{request.host}", public}
    return request.headers.get("Sec-Fetch-Site") == "same-origin" or origin in ours


async def open_to_pages(request: web.Request, response: web.StreamResponse) -> None:
    """Adds the CORS headers to every response of a session, so that pages of other origins can read refusals
    too; for `on_response_prepare`."""
    if request.path.startswith("/talk/") and request.path.endswith("/session"):
        response.headers.update(CORS)
