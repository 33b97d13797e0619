"""Serves health, readiness, metrics and the API's description, which need no key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from api.http.auth import SERVER
from api.http.openapi import document, page
from api.http.operation import Operation
from api.http.peer import may_scrape
from api.schemas.base import Readiness
from mediaserver.errors import Forbidden

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
    return web.Response(text=request.app[DESCRIPTION].document, content_type="application/json")


@routes.get("/docs")
@Operation(summary="This document for people", media=("text/html",))
async def docs(request: web.Request) -> web.Response:
    """Answers the API's description as one HTML page that loads nothing."""
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return web.Response(text=request.app[DESCRIPTION].page, content_type="text/html", headers=headers)


@dataclass(frozen=True, slots=True)
class Description:
    """The serialised API description: `document` as OpenAPI 3.1 JSON, `page` as HTML."""

    document: str
    page: str


DESCRIPTION: web.AppKey[Description] = web.AppKey("description", Description)
"""The description, made before the first request because that takes longer than a 20 ms frame may wait."""


async def describe(app: web.Application) -> None:
    """Serialises the description of `app`, when all its routes are registered."""
    said = document(app, app[SERVER].settings.server.public_url)
    app[DESCRIPTION] = Description(json.dumps(said), page(said))
