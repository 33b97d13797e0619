"""Serves the dashboard: plain JavaScript modules that use the public API with the visitor's key. No build
step, no external resources."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from api.http.static_files import PAGE_HEADERS, StaticFiles

# Recordings are played from memory (`blob:`), because only the page has the key that fetches them.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "media-src blob:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Permissions-Policy": "microphone=(), camera=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    **PAGE_HEADERS,
}

_FILES = StaticFiles(Path(__file__).parent / "static" / "dashboard", _HEADERS)

routes = web.RouteTableDef()


@routes.get("/dashboard")
async def list_page(request: web.Request) -> web.StreamResponse:
    """Answers the page that finds calls. It says nothing of them: it asks the API, with the key that a person
    gives it."""
    return _FILES.answer(request, "calls.html")


@routes.get("/dashboard/calls/{callTaskId}")
async def call_page(request: web.Request) -> web.StreamResponse:
    """Answers the page of one call, the same whether there is such a call or not."""
    return _FILES.answer(request, "call.html")


@routes.get("/static/dashboard/{name:[a-z-]+[.](?:js|css)}")
async def part(request: web.Request) -> web.StreamResponse:
    """Answers a JavaScript module or a style sheet."""
    return _FILES.answer(request, request.match_info["name"])
