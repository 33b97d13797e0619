"""Serves the participants of a company's rooms over HTTP: lists, admits by token, dials, removes."""

from __future__ import annotations

from aiohttp import web

from api.http.auth import SERVER, Scope, caller_of
from api.http.bodies import answer, checked, json_object
from api.http.operation import of_agent
from api.schemas import calls as models
from mediaserver.errors import Conflict, InvalidRequest
from mediaserver.rooms.errors import RoomClosed, RoomFull
from mediaserver.rooms.moderation import Moderation, Shown
from mediaserver.rooms.open_room import OpenRoom
from mediaserver.rooms.participant import Participant, Permissions
from mediaserver.rooms.tokens import Grant

ROOM = "/api/v1/rooms/{roomName}"
EITHER = (Scope.WEB_CALLS, Scope.CALLS)
PARTICIPANTS = ROOM + "/participants"

routes = web.RouteTableDef()


@routes.get(PARTICIPANTS)
@of_agent(
    summary="Lists who is in a room, the agent included",
    answer=models.ParticipantList,
    scopes=EITHER,
    errors=(404,),
)
async def list_participants(request: web.Request) -> web.Response:
    """Answers the participants of a room. `callStatus` of a phone is dialing, ringing or active."""
    people = _room(request).room.participants.values()
    return answer(models.ParticipantList(participants=[_view(each) for each in people]))


@routes.post(PARTICIPANTS)
@of_agent(
    summary="Calls a number into a room, over the trunk of its agent",
    body=models.CallInBody,
    answer=models.ParticipantView,
    scopes=(Scope.CALLS,),
    errors=(404, 409),
)
async def call_in(request: web.Request) -> web.Response:
    """Dials a number into a room, under the dialling rules of every call; answers as soon as the INVITE is
    sent."""
    opened = _room(request)
    wanted = checked(models.CallInBody, await json_object(request))
    try:
        shown = Shown(name=wanted.name or "")
        participant = await _moderation(request).call_in(opened, wanted.phoneNumber, shown)
    except (RoomClosed, RoomFull) as error:
        raise Conflict(str(error)) from None
    return answer(_view(participant))


@routes.delete(PARTICIPANTS + "/{identity}")
@of_agent(
    summary="Puts somebody out of a room; a telephone is hung up",
    answer=models.Removed,
    scopes=EITHER,
    errors=(404,),
)
async def remove(request: web.Request) -> web.Response:
    """Removes a participant. The agent cannot be removed: ending the call ends it."""
    await _moderation(request).remove(_room(request), request.match_info["identity"])
    return answer(models.Removed(success=True))


@routes.post(ROOM + "/tokens")
@of_agent(
    summary="Makes a token for one more participant: a colleague, or a supervisor who only listens",
    body=models.TokenBody,
    answer=models.TokenView,
    scopes=(Scope.WEB_CALLS,),
    errors=(404,),
)
async def make_token(request: web.Request) -> web.Response:
    """Makes a participant token, with which a client may join during 15 minutes."""
    opened, room_registry = _room(request), request.app[SERVER].room_registry
    wanted = checked(models.TokenBody, await json_object(request))
    if wanted.identity == opened.room.agent.identity:
        raise InvalidRequest("That identity is the agent's")
    grant = Grant(
        room=opened.room.name,
        identity=wanted.identity,
        name=wanted.name or wanted.identity,
        permissions=Permissions(
            publish=wanted.canPublish, publish_data=wanted.canPublish, hidden=wanted.hidden
        ),
    )
    return answer(
        models.TokenView(serverUrl=room_registry.server_url(), participantToken=room_registry.mint(grant))
    )


def _room(request: web.Request) -> OpenRoom:
    room_registry = request.app[SERVER].room_registry
    return room_registry.opened(caller_of(request).access, request.match_info["roomName"])


def _moderation(request: web.Request) -> Moderation:
    room_registry = request.app[SERVER].room_registry
    return Moderation(room_registry, room_registry.outbound_legs)


def _view(participant: Participant) -> models.ParticipantView:
    return models.ParticipantView(
        identity=participant.identity,
        name=participant.name,
        kind=participant.kind.value,
        state=participant.state.value,
        canPublish=participant.permissions.publish,
        phoneNumber=participant.attributes.get("sip.phoneNumber"),
        callStatus=participant.attributes.get("sip.callStatus"),
    )
