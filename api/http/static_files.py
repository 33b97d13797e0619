"""Serves the files of the pages: what all of them say of themselves, and the files of one folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

PART_HEADERS: Final[Mapping[str, str]] = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}

PAGE_HEADERS: Final[Mapping[str, str]] = {"Referrer-Policy": "no-referrer", **PART_HEADERS}
"""Headers of every page; its Content-Security-Policy is its own."""


COMPRESSED_TO: Final = 64 * 1024
"""Octets of a file up to which the event loop has time to compress the file."""

_CONDITIONS: Final = ("If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "Range")


class StaticFiles:
    """The files of `folder`, sent with `headers`. They are listed before the first request, so that no
    request reads a directory on the event loop."""

    def __init__(self, folder: Path, headers: Mapping[str, str]) -> None:
        self._folder = folder
        self._headers = {"Vary": "Accept-Encoding", **headers}
        self._octets = {path.name: path.stat().st_size for path in folder.iterdir()}

    def answer(self, request: web.Request, name: str) -> web.FileResponse:
        """Answers the file of that name. Raises HTTPNotFound for one that is not there."""
        if name not in self._octets:
            raise web.HTTPNotFound
        response = web.FileResponse(self._folder / name, headers=self._headers)
        # aiohttp would write the gzip of nothing after a 304 or 412 and to HEAD, and a range of the
        # compressed file.
        plain = request.method == "GET" and not any(each in request.headers for each in _CONDITIONS)
        if plain and self._octets[name] <= COMPRESSED_TO:
            response.enable_compression()
        return response
