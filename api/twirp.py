"""LiveKit's server API over Twirp, so that LiveKit's server SDKs administer rooms:

POST /twirp/livekit.RoomService/{method}
POST /twirp/livekit.SIP/{method}

A request is protobuf or JSON and is signed by a token (`mediaserver.rooms.livekit.server_tokens`); the API
key that signed it decides what may be touched, as over the REST API. Errors are Twirp's: `{"code", "msg"}`.
Protocol: https://twitchtv.github.io/twirp/docs/spec_v7.html"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from livekit.protocol import room, sip

from api.http.auth import SERVER, Caller, Scope, admitted, caller_of, check_guesses, wrong_key
from api.http.bodies import answer
from api.http.errors import refusal
from api.http.operation import About, Operation
from api.livekit import token_of
from api.schemas import calls as models
from api.whip import REFUSALS
from mediaserver.errors import InvalidRequest, MediaServerError
from mediaserver.rooms.errors import RoomError, TokenRefused
from mediaserver.rooms.livekit.room_service import Grants, RoomService
from mediaserver.rooms.livekit.server_tokens import grants, issuer
from mediaserver.rooms.moderation import Moderation

PROTOBUF: Final = "application/protobuf"
JSON: Final = "application/json"

_ROOMS: Final = Operation(summary="", scopes=(Scope.WEB_CALLS, Scope.CALLS), about=About.AGENT)
_CALLS: Final = Operation(summary="", scopes=(Scope.CALLS,), about=About.AGENT)

Rpc = Callable[[RoomService, Any], Awaitable[Message]]

_ROOM_RPCS: Final[Mapping[str, tuple[type[Message], Rpc]]] = {
    "ListRooms": (room.ListRoomsRequest, RoomService.list_rooms),
    "DeleteRoom": (room.DeleteRoomRequest, RoomService.delete_room),
    "UpdateRoomMetadata": (room.UpdateRoomMetadataRequest, RoomService.update_room_metadata),
    "ListParticipants": (room.ListParticipantsRequest, RoomService.list_participants),
    "GetParticipant": (room.RoomParticipantIdentity, RoomService.get_participant),
    "RemoveParticipant": (room.RoomParticipantIdentity, RoomService.remove_participant),
    "MutePublishedTrack": (room.MuteRoomTrackRequest, RoomService.mute_published_track),
    "UpdateParticipant": (room.UpdateParticipantRequest, RoomService.update_participant),
    "SendData": (room.SendDataRequest, RoomService.send_data),
}

RPCS: Final[Mapping[tuple[str, str], tuple[type[Message], Rpc, Operation]]] = {
    **{("livekit.RoomService", name): (*rpc, _ROOMS) for name, rpc in _ROOM_RPCS.items()},
    ("livekit.SIP", "CreateSIPParticipant"): (
        sip.CreateSIPParticipantRequest,
        RoomService.create_sip_participant,
        _CALLS,
    ),
    ("livekit.SIP", "TransferSIPParticipant"): (
        sip.TransferSIPParticipantRequest,
        RoomService.transfer_sip_participant,
        _CALLS,
    ),
}
"""Every RPC by service and method: request, function, and the scopes of the API key that open it."""

ABSENT: Final[Mapping[tuple[str, str], str]] = {
    ("livekit.RoomService", "CreateRoom"): "a room is made by POST /api/v1/web-calls/connect, for its agent",
    ("livekit.RoomService", "UpdateSubscriptions"): "each participant hears one mix of all others",
    ("livekit.RoomService", "ForwardParticipant"): "a participant is in one room",
    ("livekit.RoomService", "MoveParticipant"): "a participant is in one room",
    ("livekit.RoomService", "PerformRpc"): "RPC goes from participant to participant, over the data channels",
    ("livekit.SIP", ""): "trunks are /api/v1/trunks; an agent has its phone number in /api/v1/agents",
    ("livekit.Egress", ""): "an agent's calls are recorded where its `recording` says so",
    ("livekit.Ingress", ""): "participants speak by WebRTC or telephone",
    ("livekit.AgentDispatchService", ""): "a room has its agent from the start",
    ("livekit.Connector", ""): "telephones come over trunks",
}
"""Why LiveKit's other RPCs are not there; "": all others of a service."""

_CODES: Final[Mapping[int, str]] = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    408: "deadline_exceeded",
    409: "failed_precondition",
    413: "invalid_argument",
    422: "invalid_argument",
    429: "resource_exhausted",
    503: "unavailable",
}
"""Twirp's code for a status of the REST API."""

_STATUS: Final[Mapping[str, int]] = {
    "invalid_argument": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "bad_route": 404,
    "not_found": 404,
    "deadline_exceeded": 408,
    "failed_precondition": 412,
    "resource_exhausted": 429,
    "internal": 500,
    "unimplemented": 501,
    "unavailable": 503,
}

routes = web.RouteTableDef()


@routes.get("/api/v1/livekit-key")
@Operation(
    summary="Tells the LiveKit API key and secret that stand for the API key of this request",
    answer=models.LivekitKeyView,
    scopes=(Scope.WEB_CALLS, Scope.CALLS),
    about=About.REQUEST,
)
async def livekit_key(request: web.Request) -> web.Response:
    """Answers the pair that LiveKit's server SDKs sign with. Both end with the API key."""
    key_id = caller_of(request).key_id
    secret = request.app[SERVER].livekit_secret(key_id)
    return answer(models.LivekitKeyView(apiKey=key_id, apiSecret=secret))


@routes.post("/twirp/{service}/{method}")
async def call(request: web.Request) -> web.Response:
    """Calls an RPC; every refusal of the server becomes a Twirp error."""
    named = (request.match_info["service"], request.match_info["method"])
    if named not in RPCS:
        absent = ABSENT.get(named) or ABSENT.get((named[0], ""))
        code = "bad_route" if absent is None else "unimplemented"
        return _error(code, absent or "this server has no such RPC")
    try:
        return await _answered(request, *RPCS[named])
    except RoomError as error:
        kind = next(refused for raised, refused in REFUSALS.items() if isinstance(error, raised))
        return _refused(kind(str(error)))
    except MediaServerError as error:
        return _refused(error)


async def _answered(
    request: web.Request, shape: type[Message], rpc: Rpc, operation: Operation
) -> web.Response:
    caller, granted = await _authenticated(request, operation)
    rooms = request.app[SERVER].room_registry
    service = RoomService(rooms, Moderation(rooms, rooms.outbound_legs), caller.access, granted)
    kind = request.content_type
    said = await rpc(service, _parsed(shape, kind, await request.read()))
    if kind == PROTOBUF:
        return web.Response(body=said.SerializeToString(), content_type=PROTOBUF)
    body = json_format.MessageToJson(said, indent=None).encode()
    return web.Response(body=body, content_type=JSON)


async def _authenticated(request: web.Request, operation: Operation) -> tuple[Caller, Grants]:
    """Returns whose API key signed the token, and what the token grants. Raises `UnknownKey` for an unknown
    key and a wrong signature, `TokenRefused` for a token that has expired."""
    server, token = request.app[SERVER], token_of(request)
    key_id = issuer(token)
    row = await server.find_key_by_id(key_id)
    try:
        granted = None if row is None else grants(token, secret=server.livekit_secret(key_id))
    except TokenRefused:
        if row is not None:
            admitted(request, operation, row)  # counts as a request of its key all the same
        raise
    if row is None or granted is None:
        # Counted as a guess; a signature cannot be guessed, so that a right one never waits.
        guess = f"{key_id} {token}"
        check_guesses(request, guess)
        raise wrong_key(request, guess)
    return admitted(request, operation, row), granted


def _parsed(shape: type[Message], kind: str, body: bytes) -> Message:
    try:
        if kind == PROTOBUF:
            return shape.FromString(body)
        if kind == JSON:
            return json_format.Parse(body.decode(), shape(), ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"malformed {shape.DESCRIPTOR.name}") from error
    raise InvalidRequest(f"Content-Type must be {PROTOBUF} or {JSON}")


def _refused(error: MediaServerError) -> web.Response:
    plain = refusal(error)
    if plain is None:
        raise error
    code = _CODES.get(plain.status, "internal")
    headers = {"Retry-After": plain.headers["Retry-After"]} if "Retry-After" in plain.headers else {}
    return _error(code, str(error), headers)


def _error(code: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    # without a charset, which LiveKit's JS SDK does not take for JSON
    body = json.dumps({"code": code, "msg": message}).encode()
    return web.Response(body=body, status=_STATUS[code], content_type=JSON, headers=headers)
