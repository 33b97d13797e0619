"""LiveKit's signalling over HTTP: unmodified LiveKit SDKs join with `serverUrl` and `participantToken`.

GET /rtc               WebSocket, two peer connections (every SDK up to early 2025)
GET /rtc/v1            WebSocket, one peer connection, the join request in the URL
GET /rtc/validate      why a WebSocket was refused: 200 "success", or the reason with 401, 404 or 503
GET /rtc/v1/validate

The token is in the query or in the Authorization header; a join request takes up to 3 KiB of URL.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web
from livekit.protocol import rtc

from api.http.auth import SERVER
from api.http.errors import refusal
from api.whip import CORS, refusal_of
from mediaserver.errors import InvalidRequest, Refused
from mediaserver.rooms.errors import BadSignal, RoomClosed, RoomError
from mediaserver.rooms.livekit.messages import leave, parse_join
from mediaserver.rooms.livekit.session import Hello, SdkSession
from mediaserver.rooms.livekit.sessions import SdkSessions
from mediaserver.rooms.room import LeaveReason

log = logging.getLogger(__name__)

SESSIONS: web.AppKey[SdkSessions] = web.AppKey("sdk_sessions", SdkSessions)
"""The sessions of LiveKit SDKs."""

MESSAGE_LIMIT: Final = 128 * 1024
"""Bytes of a WebSocket message; offers are the largest, with at most 64 KiB."""

MAX_UNSENT: Final = 512
"""Messages queued for a client that does not read; above that the client is disconnected, and may resume."""

TOKEN_LIMIT: Final = 32 * 1024

NO_ROOM: Final = "requested room does not exist"
"""The text of LiveKit's server: without it the JS SDK takes a 404 for a server that lacks `/rtc/v1`."""

routes = web.RouteTableDef()


@routes.get("/rtc/validate")
@routes.get("/rtc/v1/validate")
async def validate(request: web.Request) -> web.Response:
    """Answers why a WebSocket was refused; SDKs ask because browsers hide the response to a handshake."""
    try:
        request.app[SERVER].room_registry.admit(token_of(request))
    except RoomClosed as error:
        return web.Response(status=404, text=f"{NO_ROOM}: {error}", headers=CORS)
    except RoomError as error:
        return _in_text(refusal_of(error))
    except Refused as error:
        return _in_text(error)
    return web.Response(text="success", headers=CORS)


def _in_text(refused: Refused) -> web.Response:
    """Returns a refusal as plain text: SDKs hand the body to their application."""
    answer = refusal(refused)
    assert answer is not None, refused
    headers = {**CORS, **{name: answer.headers[name] for name in _KEPT if name in answer.headers}}
    return web.Response(status=answer.status, text=str(refused), headers=headers)


@routes.get("/rtc")
async def dual(request: web.Request) -> web.WebSocketResponse:
    """Serves an SDK that uses two peer connections, publisher and subscriber."""
    query = request.query
    hello = rtc.JoinRequest(participant_sid=query.get("sid", ""), reconnect=query.get("reconnect") in _TRUE)
    hello.client_info.version = query.get("version", "")[:64]
    return await _serve(request, Hello(dual=True, request=hello))


@routes.get("/rtc/v1")
async def single(request: web.Request) -> web.WebSocketResponse:
    """Serves an SDK that uses one peer connection and sends its JoinRequest in the URL."""
    try:
        hello = parse_join(request.query.get("join_request", ""))
    except BadSignal as error:
        raise InvalidRequest(str(error)) from None
    return await _serve(request, Hello(dual=False, request=hello))


def token_of(request: web.Request) -> str:
    """Returns the participant token of a request, from Authorization or the query; "" without one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip() if scheme.lower() == "bearer" else request.query.get("access_token", "")
    return token if len(token) <= TOKEN_LIMIT else ""


async def _serve(request: web.Request, hello: Hello) -> web.WebSocketResponse:
    room_registry, token = request.app[SERVER].room_registry, token_of(request)
    try:
        room_registry.admit(token)
    except RoomError as error:
        raise refusal_of(error) from error
    socket = web.WebSocketResponse(max_msg_size=MESSAGE_LIMIT, compress=False)
    await socket.prepare(request)
    outlet = SocketOutlet(socket)
    writing = asyncio.create_task(outlet.run())
    session: SdkSession | None = None
    try:
        session = await _admitted(request, token, hello, outlet)
        if session is not None:
            await _listen(socket, session, outlet)
    finally:
        if session is not None:
            session.lost(outlet)
        outlet.close(WSCloseCode.OK, "")
        await writing
    return socket


async def _admitted(
    request: web.Request, token: str, hello: Hello, outlet: SocketOutlet
) -> SdkSession | None:
    """Joins or resumes a session; None where it is refused, after LeaveRequest has been sent."""
    server, sessions = request.app[SERVER], request.app[SESSIONS]
    resumes, reason = hello.request.reconnect, LeaveReason.JOIN_FAILURE
    try:
        if resumes:
            return await sessions.resume(server.room_registry, token, hello.request.participant_sid, outlet)
        return await sessions.join(
            server.room_registry,
            token,
            hello,
            outlet,
            ice_servers=lambda sid: server.settings.rooms.ice_servers_for(sid, time.time()),
        )
    except (RoomError, Refused) as error:
        log.info("participant refused", extra={"reason": str(error), "resumes": resumes})
        reason = LeaveReason.STATE_MISMATCH if resumes else reason
        outlet.send(leave(reason, again=resumes).SerializeToString())
        return None


async def _listen(socket: web.WebSocketResponse, session: SdkSession, outlet: SocketOutlet) -> None:
    """Handles the client's messages one at a time until the WebSocket closes; the next waits while an offer
    is answered, which limits a flood."""
    async for message in socket:
        if message.type is not WSMsgType.BINARY:
            outlet.close(WSCloseCode.UNSUPPORTED_DATA, "binary messages only")
            return
        try:
            await session.receive(message.data)
        except BadSignal as error:
            log.warning("signalling refused", extra={"reason": str(error)})
            outlet.close(WSCloseCode.POLICY_VIOLATION, str(error))
            return


class SocketOutlet:
    """Queues the messages to one WebSocket, in order. `run` sends these until `close`."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._unsent: asyncio.Queue[bytes | str | None] = asyncio.Queue()
        self._goodbye: tuple[int, str] | None = None

    def send(self, data: bytes | str) -> None:
        """Queues a message, text as a text frame; above `MAX_UNSENT` unread messages the WebSocket is closed
        with 1013."""
        if self._goodbye is not None:
            return
        if self._unsent.qsize() >= MAX_UNSENT:
            self.close(WSCloseCode.TRY_AGAIN_LATER, "client does not read")
        else:
            self._unsent.put_nowait(data)

    def close(self, code: int, reason: str) -> None:
        """Closes the WebSocket with `code` and `reason` after the messages queued before; later calls are
        ignored."""
        if self._goodbye is None:
            self._goodbye = (code, reason)
            self._unsent.put_nowait(None)

    async def run(self) -> None:
        """Sends queued messages; ends after `close`, or when the client is gone."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            while (data := await self._unsent.get()) is not None:
                async with asyncio.timeout(SEND_S):
                    if isinstance(data, str):
                        await self._socket.send_str(data)
                    else:
                        await self._socket.send_bytes(data)
        code, reason = self._goodbye or (WSCloseCode.OK, "")
        with contextlib.suppress(ConnectionError, TimeoutError):
            await self._socket.close(code=code, message=reason.encode()[:120])
        error = self._socket.exception()
        if error is not None:
            error.with_traceback(None)  # its frames refer to the socket, and the socket to the error


SEND_S: Final = 10.0
"""Seconds that one message may take to send; then the client counts as gone."""

_TRUE: Final = ("1", "true")
_KEPT: Final = ("Retry-After", "WWW-Authenticate")
