"""Sends a recording that is encrypted at rest, whole or by Range (RFC 9110 14)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from api.http.audit import note_before
from mediaserver.errors import LocalError, NotConfigured
from mediaserver.files.sealed import SealedFiles

log = logging.getLogger(__name__)

ANOTHER_KEY = "The recording was sealed with another key"


async def send_sealed(
    request: web.Request, files: SealedFiles | None, path: Path, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Sends the plain text of a sealed file. Raises `NotConfigured` where the server has no key, or another
    than the one that the file was sealed with."""
    if files is None:
        raise NotConfigured(ANOTHER_KEY)
    try:
        size = await asyncio.to_thread(files.size, path)
        start, end, status = _range(request, size)
        pieces = files.read(path, start, end)
        piece = await asyncio.to_thread(next, pieces, b"")
    except LocalError as error:
        log.error("recording cannot be opened", extra={"file": path.name, "reason": str(error)})
        raise NotConfigured(ANOTHER_KEY) from None
    response = web.StreamResponse(status=status, headers={**headers, "Accept-Ranges": "bytes"})
    response.content_length = end - start
    if status == 206:
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    await note_before(request, response)
    await response.prepare(request)
    while piece and request.method != "HEAD":
        await response.write(piece)
        piece = await asyncio.to_thread(next, pieces, b"")
    await response.write_eof()
    return response


def _range(request: web.Request, size: int) -> tuple[int, int, int]:
    """Returns first octet, end and status of the part that is asked for; of a Range that is none, all."""
    try:
        wanted = request.http_range
    except ValueError:
        return 0, size, 200
    if wanted.start is None and wanted.stop is None:
        return 0, size, 200
    start, end, _ = wanted.indices(size)
    if start >= end:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    return start, end, 206
