"""Serves health, readiness, metrics and the API's description, which need no key.

`/docs` is Swagger UI, as its makers distribute it (`api/static/docs`, renewed by `.ci/renew-docs-viewer`)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from api.http.auth import SERVER
from api.http.openapi import document
from api.http.operation import Operation
from api.http.peer import may_scrape
from api.http.static_files import PAGE_HEADERS, PART_HEADERS, StaticFiles
from api.schemas.base import Readiness
from mediaserver.errors import Forbidden

VIEWER: Final = Path(__file__).parent / "static" / "docs"

_PAGE_HEADERS = {
    # The viewer sets styles in elements, and shows pictures of its own style sheet as data.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    **PAGE_HEADERS,
}
_PARTS = StaticFiles(VIEWER, PART_HEADERS)

routes = web.RouteTableDef()


@routes.get("/healthz")
@Operation(summary="The process lives")
async def healthz(request: web.Request) -> web.Response:
    """Answers 200 as soon as the event loop serves requests."""
    return web.json_response({"alive": True})


@routes.get("/readyz")
@Operation(summary="Calls can be taken; else 503 with what is missing", answer=Readiness)
async def readyz(request: web.Request) -> web.Response:
    """Answers 200 when calls can be taken, else 503 with the list of what is missing."""
    server = request.app[SERVER]
    missing = server.ready()
    body: dict[str, Any] = {"ready": not missing, "missing": missing}
    if chosen := [each.public for each in server.engines.chosen()]:
        body["chosen"] = chosen
    if missing:
        return web.json_response(body, status=503, headers={"Retry-After": "1"})
    return web.json_response(body)


@routes.get("/metrics")
@Operation(
    summary="Figures for Prometheus, for this machine and server.metrics_networks",
    media=("text/plain",),
    errors=(403,),
)
async def metrics(request: web.Request) -> web.Response:
    """Answers the metrics in Prometheus' text format; 403 for a client that `may_scrape` refuses."""
    if not may_scrape(request):
        raise Forbidden("Metrics are told to this machine and server.metrics_networks only")
    body = request.app[SERVER].exposition()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


@routes.get("/openapi.json")
@Operation(summary="This document", media=("application/json",))
async def openapi(request: web.Request) -> web.Response:
    """Answers the API's OpenAPI 3.1 document."""
    text = await request.app[DESCRIBING].description()
    return web.Response(text=text, content_type="application/json")


@routes.get("/docs")
@Operation(summary="This document for people", media=("text/html",))
async def docs(request: web.Request) -> web.StreamResponse:
    """Answers a page that shows the API's description and sends requests from it; it loads nothing from
    elsewhere."""
    return web.FileResponse(VIEWER / "index.html", headers=_PAGE_HEADERS)


@routes.get("/static/docs/{name:[a-z-]+[.](?:js|css|png)}")
async def viewer_part(request: web.Request) -> web.StreamResponse:
    """Answers a script, a style sheet or a picture of the page."""
    return _PARTS.answer(request, request.match_info["name"])


class Describing:
    """Makes the description of `app` for the first who asks for it, in a thread: it takes longer than a start
    should, or than a call can wait for its next frame."""

    def __init__(self, app: web.Application) -> None:
        self._app = app
        self._made: asyncio.Task[str] | None = None

    async def description(self) -> str:
        """Returns the document as JSON; a second caller does not make it again, unless making it failed."""
        if self._made is None or _failed(self._made):
            self._made = asyncio.create_task(asyncio.to_thread(self._make), name="description")
        return await asyncio.shield(self._made)

    def _make(self) -> str:
        return json.dumps(document(self._app, self._app[SERVER].settings.server.public_url))


def _failed(made: asyncio.Task[str]) -> bool:
    return made.done() and (made.cancelled() or made.exception() is not None)


DESCRIBING: web.AppKey[Describing] = web.AppKey("describing", Describing)
