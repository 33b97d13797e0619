"""Serves what happens in live calls as server-sent events (WHATWG HTML 9.2)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from api.http.auth import SERVER, caller_of, still_admits
from api.http.bodies import iso_time, query_of
from api.http.operation import of_agent
from api.schemas import live as models
from mediaserver.calls.live_events import WAITING, LiveEvent, LiveEvents, LiveReader, Lost
from mediaserver.errors import Unavailable

LAST_EVENT_ID = "Last-Event-ID"

BEAT_S = 15.0
"""Seconds between comments where nothing happens, which keep proxies' connections and find readers who have
left; and between looks at the reader's key, whatever happens."""

TOGETHER_S = 0.05
"""Seconds for which a reader's events are collected before they are written together."""

routes = web.RouteTableDef()


@routes.get("/api/v1/events")
@of_agent(
    summary="What happens in the live calls of this node, as server-sent events",
    query=models.EventsQuery,
    answer=models.LiveEvent,
    streams=True,
    headers={LAST_EVENT_ID: "The id of the last event that was read: the stream goes on after it"},
)
async def events(request: web.Request) -> web.StreamResponse:
    """Answers events until the client leaves, the key is gone or changed, or the node stops."""
    query = query_of(request, models.EventsQuery)
    access = caller_of(request).access
    agent_id, call_id = query.agentId.lower(), query.callTaskId

    def wanted(event: LiveEvent) -> bool:
        return (not agent_id or event.agent_id == agent_id) and (not call_id or event.call_id == call_id)

    live = request.app[SERVER].call_api.live_events
    reader = live.listen(access, after=request.headers.get(LAST_EVENT_ID, ""), wanted=wanted)
    response = web.StreamResponse(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
    response.content_type = "text/event-stream"
    try:
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):
            await _send(request, response, live, reader)
    finally:
        live.leave(reader)
    return response


async def _send(
    request: web.Request, response: web.StreamResponse, live: LiveEvents, reader: LiveReader
) -> None:
    loop = asyncio.get_running_loop()
    await response.write(b": events of live calls\n\n")
    due = loop.time() + BEAT_S
    while not reader.closed:
        found: list[LiveEvent | Lost] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                found = await reader.get()
        if loop.time() >= due:  # events that come all the time put off no look
            if not await still_admits(request):
                return
            due = loop.time() + BEAT_S
            if not found:
                await response.write(b": nothing new\n\n")
        if found:
            await response.write(b"".join(request.app[LINES].of(live, each) for each in found))
            await asyncio.sleep(TOGETHER_S)


class Lines:
    """Events as the stream has them: each is written once for all readers."""

    def __init__(self) -> None:
        self._made: OrderedDict[int, bytes] = OrderedDict()

    def of(self, live: LiveEvents, event: LiveEvent | Lost) -> bytes:
        """Returns the lines of an event."""
        if isinstance(event, Lost):
            return b"event: lost\n" + _data("lost", None, {"count": event.count})
        made = self._made.get(event.number)
        if made is None:
            head = f"id: {live.id_of(event)}\nevent: {event.kind}\n".encode()
            made = self._made[event.number] = head + _data(event.kind, event, event.data)
            if len(self._made) > WAITING:
                self._made.popitem(last=False)
        return made


LINES: web.AppKey[Lines] = web.AppKey("lines", Lines)


def _data(kind: str, event: LiveEvent | None, data: Mapping[str, Any]) -> bytes:
    """Returns the `data` line, as `api.schemas.live.LiveEvent` describes it."""
    told = {
        "type": kind,
        "at": iso_time(event.at_ms) if event is not None else None,
        "callTaskId": event.call_id if event is not None else None,
        "agentId": event.agent_id if event is not None else None,
        "data": dict(data),
    }
    return f"data: {json.dumps(told, ensure_ascii=False, separators=(',', ':'))}\n\n".encode(
        errors="backslashreplace"  # half a surrogate pair, as JSON writes it
    )


async def end(app: web.Application) -> None:
    """Ends the streams when the HTTP server stops; for `on_shutdown`."""
    with contextlib.suppress(Unavailable):  # it may never have started
        app[SERVER].call_api.live_events.close()
