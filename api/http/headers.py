"""What every answer carries: the request's id, the standing of its key, and gzip where the client takes it.

X-Request-Id of the client is kept where it can be logged as it is; otherwise the server makes one. The lines
that are logged while the request is handled carry it as `request_id`."""

from __future__ import annotations

import re
import uuid

from aiohttp import web
from aiohttp.typedefs import Handler

from mediaserver.admission.rate_limits import BURST_S, Standing
from mediaserver.telemetry.logging import REQUEST_ID

X_REQUEST_ID = "X-Request-Id"

COMPRESSED_FROM = 1024
"""Octets of a body from which on gzip is worth its time."""

_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TEXTS = frozenset({"application/json", "text/html", "text/plain"})
_NO_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)

_REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)

STANDING: web.RequestKey[Standing] = web.RequestKey("standing", Standing)
"""The standing of the request's key in its rate limit."""


@web.middleware
async def identify(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Gives the request its id, under which lines are logged while it is handled; lets its answer be
    compressed."""
    given = request.headers.get(X_REQUEST_ID, "")
    request[_REQUEST_ID] = given if _ID.fullmatch(given) else uuid.uuid4().hex
    token = REQUEST_ID.set(request[_REQUEST_ID])
    try:
        response = await handler(request)
        compress(request, response)
        return response
    finally:
        REQUEST_ID.reset(token)


def request_id_of(request: web.Request) -> str:
    """Returns the id that `identify` gave the request."""
    return request.get(_REQUEST_ID) or ""


def compress(request: web.Request, response: web.StreamResponse) -> None:
    """Lets a text be sent as gzip where the client takes that (RFC 9110 12.5.3). Streams, audio and files are
    no `web.Response` or no texts, and stay as they are."""
    body = response.body if isinstance(response, web.Response) else None
    if response.content_type not in _TEXTS or not isinstance(body, bytes) or len(body) < COMPRESSED_FROM:
        return
    response.headers["Vary"] = "Accept-Encoding"
    accepted = request.headers.get("Accept-Encoding", "")
    if "gzip" in accepted.lower() and _NO_GZIP.search(accepted) is None:
        response.enable_compression(web.ContentCoding.gzip)


async def describe(request: web.Request, response: web.StreamResponse) -> None:
    """Adds X-Request-Id, and RateLimit-Limit, -Remaining, -Reset and -Policy where a key was counted; for
    `on_response_prepare`."""
    if request_id := request.get(_REQUEST_ID):
        response.headers[X_REQUEST_ID] = request_id
    standing = request.get(STANDING)
    if standing is None:
        return
    response.headers["RateLimit-Limit"] = str(standing.limit)
    response.headers["RateLimit-Remaining"] = str(standing.remaining)
    response.headers["RateLimit-Reset"] = str(standing.reset_s)
    response.headers["RateLimit-Policy"] = f"{standing.limit};w={BURST_S}"
