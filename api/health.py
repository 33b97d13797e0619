"""Health, readiness, metrics, and the description of the API: everything that needs no key."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from api.auth import SERVER
from api.openapi import document, page

routes = web.RouteTableDef()


@routes.get("/healthz")
async def healthz(request: web.Request) -> web.Response:
    """200 as soon as the process answers at all."""
    return web.json_response({"alive": True})


@routes.get("/readyz")
async def readyz(request: web.Request) -> web.Response:
    """200 when calls can be taken; else 503 with the list of what is missing."""
    missing = request.app[SERVER].ready()
    if missing:
        headers = {"Retry-After": "1"}
        return web.json_response({"ready": False, "missing": missing}, status=503, headers=headers)
    return web.json_response({"ready": True, "missing": []})


@routes.get("/metrics")
async def metrics(request: web.Request) -> web.Response:
    """Prometheus' text format."""
    body = request.app[SERVER].exposition()
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


@routes.get("/openapi.json")
async def openapi(request: web.Request) -> web.Response:
    """The API's OpenAPI 3.1 document."""
    return web.json_response(document(request.app[SERVER].settings.server.public_url))


@routes.get("/docs")
async def docs(request: web.Request) -> web.Response:
    """The same for people; one page without anything from elsewhere."""
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    text = page(request.app[SERVER].settings.server.public_url)
    return web.Response(text=text, content_type="text/html", headers=headers)
