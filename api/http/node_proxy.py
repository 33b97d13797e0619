"""Fetches recordings from the node that made them.

A recording is a file of the node that held the call. Behind a load balancer a client reaches any node, so
this node asks the other (`server.node_url`) with the client's own key, which has the same rights there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from api.http.audit import NOTED
from api.http.auth import SERVER
from api.http.headers import X_REQUEST_ID
from mediaserver.errors import NotFound, Unavailable
from mediaserver.telemetry.logging import REQUEST_ID

log = logging.getLogger(__name__)

FORWARDED = "X-Mediaserver-Forwarded"
"""Marks a request between nodes; the node asked does not forward it, so two nodes cannot forward in a
loop."""

ELSEWHERE = "The recording is on another node, which this one cannot ask (server.node_url)"
GONE = "The recording is not on this server"

CONNECT_S = 3.0
STALLED_S = 10.0

_ASKED = ("Authorization", "Range", "If-Range", "If-None-Match", "If-Modified-Since")
_TOLD = ("Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "ETag", "Last-Modified")
_PIECE = 64 * 1024

NODES: web.AppKey[aiohttp.ClientSession] = web.AppKey("nodes", aiohttp.ClientSession)
"""The HTTP client for other nodes of the cluster."""


async def connections(app: web.Application) -> AsyncIterator[None]:
    """Holds the HTTP client for other nodes open for the lifetime of the application."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=STALLED_S)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        app[NODES] = session
        yield


async def fetched(request: web.Request, node_url: str) -> web.StreamResponse:
    """Returns the response of the node at `node_url` to `request`. Raises `NotFound` without a node URL and
    where the node lacks the recording, `Unavailable` where the node does not answer."""
    here = request.app[SERVER].settings.server.node_url
    if FORWARDED in request.headers or (node_url and node_url == here):
        raise NotFound(GONE)
    if not node_url:
        raise NotFound(ELSEWHERE)
    headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
    url = f"{node_url.rstrip('/')}{request.rel_url.raw_path_qs}"
    try:
        answer = await request.app[NODES].request(
            request.method,
            url,
            headers={**headers, FORWARDED: "1", X_REQUEST_ID: REQUEST_ID.get()},
            allow_redirects=False,
        )
    except (aiohttp.ClientConnectionError, TimeoutError):
        raise Unavailable("The node that has this recording does not answer", retry_after_s=5) from None
    async with answer:
        return await _passed_on(request, answer)


async def _passed_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Streams a node's response. Where the node breaks off, the headers are sent already: the client's
    connection is aborted."""
    if answer.status == 404:
        raise NotFound(GONE)
    if answer.status not in (200, 206, 304, 416):
        raise Unavailable("The node that has this recording cannot give it now", retry_after_s=5)
    told = {name: answer.headers[name] for name in _TOLD if name in answer.headers}
    response = web.StreamResponse(
        status=answer.status, headers={**told, "Cache-Control": "private, no-store"}
    )
    request[NOTED] = True  # by the node that answered
    await response.prepare(request)
    try:
        async for piece in answer.content.iter_chunked(_PIECE):
            await response.write(piece)
    except (aiohttp.ClientError, TimeoutError) as error:
        log.warning("recording broke off", extra={"reason": type(error).__name__})
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response
