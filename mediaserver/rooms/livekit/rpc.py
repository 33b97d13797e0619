"""LiveKit's RPC between the agent and one client, version 1: request, acknowledgement, response."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from livekit.protocol import models

from mediaserver.rooms.errors import RoomError
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.room import Room

MAX_PAYLOAD_BYTES: Final = 15 * 1024
VERSION: Final = 1

ACK_S: Final = 7.0
"""LiveKit's figure: round trip and busy devices included."""

RESPONSE_S: Final = 15.0
MAX_CALLS: Final = 32


class RpcCode(IntEnum):
    """The error codes of the protocol; those below 1400 are the application's."""

    UNSUPPORTED_METHOD = 1400
    RECIPIENT_NOT_FOUND = 1401
    REQUEST_PAYLOAD_TOO_LARGE = 1402
    UNSUPPORTED_VERSION = 1404
    APPLICATION_ERROR = 1500
    CONNECTION_TIMEOUT = 1501
    RESPONSE_TIMEOUT = 1502
    RECIPIENT_DISCONNECTED = 1503
    RESPONSE_PAYLOAD_TOO_LARGE = 1504
    SEND_FAILED = 1505


class RpcFailed(RoomError):
    """An RPC without a result, called by the agent or by the client. `code`: an `RpcCode`, or the
    application's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class _Call:
    """A call by the agent in progress. An acknowledgement cancels `ack_timer`."""

    result: asyncio.Future[str]
    ack_timer: asyncio.TimerHandle = field(repr=False)


class AgentRpc:
    """RPC in both directions. The methods that the agent serves are in `Room.methods`."""

    def __init__(
        self, room: Room, participant: Participant, send: Callable[[models.DataPacket], None]
    ) -> None:
        self._room = room
        self._participant = participant
        self._send = send
        self._calls: dict[str, _Call] = {}

    async def call(self, method: str, payload: str, *, timeout_s: float = RESPONSE_S) -> str:
        """Calls a method of the client; returns its response. Raises `RpcFailed`, with the client's own code
        for the client's errors."""
        if len(payload.encode()) > MAX_PAYLOAD_BYTES:
            raise RpcFailed(RpcCode.REQUEST_PAYLOAD_TOO_LARGE, "request payload too large")
        if len(self._calls) >= MAX_CALLS:
            raise RpcFailed(RpcCode.SEND_FAILED, "too many calls under way")
        loop = asyncio.get_running_loop()
        request_id = str(uuid.uuid4())
        result: asyncio.Future[str] = loop.create_future()
        timer = loop.call_later(ACK_S, self._fail, request_id, RpcCode.CONNECTION_TIMEOUT, "not acknowledged")
        self._calls[request_id] = _Call(result, timer)
        request = models.RpcRequest(
            id=request_id,
            method=method,
            payload=payload,
            response_timeout_ms=int(timeout_s * 1000),
            version=VERSION,
        )
        packet = models.DataPacket(rpc_request=request, destination_identities=[self._participant.identity])
        self._send(packet)
        try:
            async with asyncio.timeout(timeout_s):
                return await result
        except TimeoutError:
            raise RpcFailed(RpcCode.RESPONSE_TIMEOUT, "no response in time") from None
        finally:
            timer.cancel()
            self._calls.pop(request_id, None)

    def receive(self, packet: models.DataPacket) -> None:
        """Takes an RPC packet that is addressed to the agent."""
        if packet.HasField("rpc_request"):
            self._serve(packet.rpc_request)
        elif packet.HasField("rpc_ack"):
            call = self._calls.get(packet.rpc_ack.request_id)
            if call is not None:
                call.ack_timer.cancel()
        elif packet.HasField("rpc_response"):
            self._responded(packet.rpc_response)

    def refuse_recipient(self, request_id: str) -> None:
        """Answers RECIPIENT_NOT_FOUND to a request whose recipient is not in the room."""
        self._respond(request_id, error=(RpcCode.RECIPIENT_NOT_FOUND, "recipient not found"))

    def close(self) -> None:
        """Fails the calls in progress: the client has left."""
        for request_id in list(self._calls):
            self._fail(request_id, RpcCode.RECIPIENT_DISCONNECTED, "the participant has left")
        self._send = _unsent

    def _serve(self, request: models.RpcRequest) -> None:
        ack = models.DataPacket(rpc_ack=models.RpcAck(request_id=request.id))
        ack.destination_identities.append(self._participant.identity)
        self._send(ack)
        try:
            payload = self._result(request)
        except RpcFailed as failure:
            self._respond(request.id, error=(failure.code, str(failure)))
        else:
            self._respond(request.id, payload)

    def _result(self, request: models.RpcRequest) -> str:
        if request.version != VERSION:
            raise RpcFailed(RpcCode.UNSUPPORTED_VERSION, "unsupported RPC version")
        if len(request.payload.encode()) > MAX_PAYLOAD_BYTES:
            raise RpcFailed(RpcCode.REQUEST_PAYLOAD_TOO_LARGE, "request payload too large")
        method = self._room.methods.get(request.method)
        if method is None:
            raise RpcFailed(RpcCode.UNSUPPORTED_METHOD, "method not supported at destination")
        try:
            return method(self._participant, request.payload)
        except RoomError as error:
            raise RpcFailed(RpcCode.APPLICATION_ERROR, str(error)) from error

    def _respond(self, request_id: str, payload: str = "", *, error: tuple[int, str] | None = None) -> None:
        response = models.RpcResponse(request_id=request_id)
        if error is None:
            response.payload = payload
        else:
            response.error.code, response.error.message = error
        packet = models.DataPacket(rpc_response=response)
        packet.destination_identities.append(self._participant.identity)
        self._send(packet)

    def _responded(self, response: models.RpcResponse) -> None:
        if response.HasField("error"):
            self._fail(response.request_id, response.error.code, response.error.message)
            return
        call = self._calls.get(response.request_id)
        if call is not None and not call.result.done():
            call.result.set_result(response.payload)

    def _fail(self, request_id: str, code: int, message: str) -> None:
        call = self._calls.get(request_id)
        if call is not None and not call.result.done():
            call.result.set_exception(RpcFailed(code, message))


def _unsent(packet: models.DataPacket) -> None:
    """Drops a packet for a client that has left."""
