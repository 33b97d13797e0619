"""`mediaserver call`: places one call through a running server's API and follows it to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

POLL_S = 0.25
FINAL = frozenset({"COMPLETED", "NO_ANSWER", "BUSY", "FAILED", "CANCELLED", "UNKNOWN"})

Print = Callable[[str], None]


class CallRefused(Exception):
    """The server refused the call, or cannot be reached; the message says why."""


async def place_and_follow(
    base_url: str, key: str, body: Mapping[str, Any], *, show: Print, timeout_s: float = 3600
) -> dict[str, Any]:
    """Places a call with the request `body` (`POST /api/v1/calls/outbound`), passes its states and transcript
    to `show` as they come, and returns the call's last report. Raises `CallRefused`."""
    headers = {"Authorization": f"Bearer {key}"}
    try:
        async with asyncio.timeout(timeout_s), aiohttp.ClientSession(base_url, headers=headers) as http:
            answer = await _json(http, "POST", "/api/v1/calls/outbound", body)
            call_id = answer["data"]["callTaskId"]
            show(f"call {call_id}")
            return await _follow(http, call_id, show)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CallRefused(f"cannot reach the server at {base_url}: {error or 'timed out'}") from error


async def _follow(http: aiohttp.ClientSession, call_id: str, show: Print) -> dict[str, Any]:
    status, told = "", 0
    while True:
        call = await _json(http, "GET", f"/api/v1/calls/{call_id}")
        if call["status"] != status:
            status = call["status"]
            show(status.lower())
        for entry in call["transcript"][told:]:
            show(f"{entry['role']:>6}  {entry['text']}")
        told = len(call["transcript"])
        if status in FINAL:
            return call
        await asyncio.sleep(POLL_S)


async def _json(
    http: aiohttp.ClientSession, method: str, path: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    async with http.request(method, path, json=body) as answer:
        content: dict[str, Any] = await answer.json(content_type=None)
        if answer.status != 200:
            raise CallRefused(f"{answer.status}: {content.get('error', answer.reason)}")
        return content
