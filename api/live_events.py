"""Serves what happens in live calls as server-sent events (WHATWG HTML 9.2)."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import web

from api.http.auth import SERVER, Scope, bearer_key, caller_of
from api.http.bodies import iso_time, query_of
from api.http.operation import About, Operation
from api.schemas import live as models
from mediaserver.calls.live_events import LiveEvent, LiveEvents, LiveReader, Lost

READERS = (Scope.CALLS, Scope.ADMIN)
LAST_EVENT_ID = "Last-Event-ID"

BEAT_S = 15.0
"""Seconds between comments where nothing happens. They keep proxies' connections, find readers who have left
and keys that are revoked."""

routes = web.RouteTableDef()


@routes.get("/api/v1/events")
@Operation(
    summary="What happens in the live calls of this node, as server-sent events",
    query=models.EventsQuery,
    answer=models.LiveEvent,
    streams=True,
    scopes=READERS,
    about=About.AGENT,
    headers={LAST_EVENT_ID: "The id of the last event that was read: the stream goes on after it"},
)
async def events(request: web.Request) -> web.StreamResponse:
    """Answers events until the client leaves, the key is gone, or the node stops."""
    query = query_of(request, models.EventsQuery)
    server, access = request.app[SERVER], caller_of(request).access
    agent_id, call_id = query.agentId.lower(), query.callTaskId

    def wanted(event: LiveEvent) -> bool:
        return (not agent_id or event.agent_id == agent_id) and (not call_id or event.call_id == call_id)

    live = server.live_events
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
    await response.write(b": events of live calls\n\n")
    while not reader.closed:
        try:
            found = await asyncio.wait_for(reader.get(), BEAT_S)
        except TimeoutError:
            if await request.app[SERVER].find_key(bearer_key(request)) is None:
                return
            await response.write(b": nothing new\n\n")
            continue
        if found:
            await response.write("".join(text(live, each) for each in found).encode())


def text(live: LiveEvents, event: LiveEvent | Lost) -> str:
    """Returns an event as its lines in the stream."""
    if isinstance(event, Lost):
        told = models.LiveEvent(
            type="lost", at=None, callTaskId=None, agentId=None, data={"count": event.count}
        )
        return f"event: lost\ndata: {told.model_dump_json()}\n\n"
    told = models.LiveEvent.model_validate(
        {
            "type": event.kind,
            "at": iso_time(event.at_ms),
            "callTaskId": event.call_id,
            "agentId": event.agent_id,
            "data": dict(event.data),
        }
    )
    return f"id: {live.id_of(event)}\nevent: {event.kind}\ndata: {told.model_dump_json()}\n\n"


async def end(app: web.Application) -> None:
    """Ends the streams when the HTTP server stops; for `on_shutdown`."""
    app[SERVER].live_events.close()
