"""Serves the supervisors of live calls over HTTP: tokens, roles, words to the agent."""

from __future__ import annotations

from aiohttp import web

from api.http.audit import SUBJECT
from api.http.auth import SERVER, Scope, caller_of
from api.http.bodies import answer, checked, json_object
from api.http.operation import of_agent
from api.schemas import supervisors as models
from api.schemas.calls import Removed
from mediaserver.rooms.participant import Participant
from mediaserver.rooms.supervisors import Supervisors

SUPERVISORS = "/api/v1/calls/{callTaskId}/supervisors"
ONE = SUPERVISORS + "/{identity}"

routes = web.RouteTableDef()


@routes.post(SUPERVISORS)
@of_agent(
    summary="Makes a token with which a supervisor joins a live call",
    body=models.SupervisorBody,
    answer=models.SupervisorToken,
    status=201,
    scopes=(Scope.CALLS,),
    errors=(404, 409),
)
async def invite(request: web.Request) -> web.Response:
    """Makes a token for one supervisor, good for joining during 15 minutes. A role can be changed later."""
    call_id = await _call(request)
    wanted = checked(models.SupervisorBody, await json_object(request))
    access = caller_of(request).access
    made = _supervisors(request).invite(
        access, call_id, wanted.role, identity=wanted.identity or "", name=wanted.name or ""
    )
    request[SUBJECT] = f"{call_id} {made.identity} {wanted.role}"
    return answer(
        models.SupervisorToken(
            identity=made.identity,
            role=wanted.role,
            roomName=made.room_name,
            serverUrl=made.server_url,
            participantToken=made.token,
        ),
        status=201,
    )


@routes.get(SUPERVISORS)
@of_agent(
    summary="Lists the supervisors in a live call",
    answer=models.SupervisorList,
    scopes=(Scope.CALLS,),
    errors=(404, 409),
)
async def list_supervisors(request: web.Request) -> web.Response:
    """Answers the supervisors who have joined, with their roles."""
    call_id = await _call(request)
    found = _supervisors(request).of_call(caller_of(request).access, call_id)
    return answer(models.SupervisorList(supervisors=[_view(each) for each in found]))


@routes.patch(ONE)
@of_agent(
    summary="Gives a supervisor another role: listens, whispers, speaks to all, takes over, hands back",
    body=models.RoleBody,
    answer=models.SupervisorView,
    scopes=(Scope.CALLS,),
    errors=(404, 409),
)
async def change_role(request: web.Request) -> web.Response:
    """Changes the role at once. From `take_over` to any other is the hand-back to the agent."""
    call_id, identity = await _call(request), request.match_info["identity"]
    wanted = checked(models.RoleBody, await json_object(request))
    supervisors = _supervisors(request)
    found = supervisors.change(caller_of(request).access, call_id, identity, wanted.role)
    request[SUBJECT] = f"{call_id} {identity} {wanted.role}"
    return answer(_view(found, role=wanted.role))


@routes.delete(ONE)
@of_agent(
    summary="Puts a supervisor out of a call; the agent has the caller back",
    answer=Removed,
    scopes=(Scope.CALLS,),
    errors=(404, 409),
)
async def remove(request: web.Request) -> web.Response:
    """Removes a supervisor who has joined."""
    call_id, identity = await _call(request), request.match_info["identity"]
    role = await _supervisors(request).remove(caller_of(request).access, call_id, identity)
    request[SUBJECT] = f"{call_id} {identity} {role.value}"
    return answer(Removed(success=True))


@routes.post("/api/v1/calls/{callTaskId}/whisper")
@of_agent(
    summary="Tells the agent of a live call something that the caller does not hear",
    body=models.WhisperBody,
    answer=Removed,
    scopes=(Scope.CALLS,),
    errors=(404, 409),
)
async def whisper(request: web.Request) -> web.Response:
    """Gives the agent's model an instruction, which it has from its next answer on."""
    call_id = await _call(request)
    wanted = checked(models.WhisperBody, await json_object(request))
    _supervisors(request).whisper(caller_of(request).access, call_id, wanted.text)
    request[SUBJECT] = f"{call_id} whisper"
    return answer(Removed(success=True))


def _supervisors(request: web.Request) -> Supervisors:
    return Supervisors(request.app[SERVER].room_registry)


async def _call(request: web.Request) -> str:
    """Returns the id of a call that the key reaches. Raises `NotFound`."""
    call_id = request.match_info["callTaskId"]
    await request.app[SERVER].call_api.call(caller_of(request).access, call_id)
    return call_id


def _view(participant: Participant, *, role: str = "") -> models.SupervisorView:
    shown = {
        "identity": participant.identity,
        "name": participant.name,
        "role": role or participant.role.value,
    }
    return models.SupervisorView.model_validate(shown)
