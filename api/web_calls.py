"""Serves web calls over HTTP: opens a room and makes the token to join it."""

from __future__ import annotations

import re
import uuid

from aiohttp import web

from api.calls import prompt_texts
from api.http.auth import SERVER, Scope, caller_of
from api.http.bodies import answer, checked, json_object
from api.http.operation import of_agent
from api.schemas.calls import WebCallMetadata, WebCallRequestBody, WebCallResponse
from mediaserver.errors import InvalidRequest
from mediaserver.rooms.web_call import WebCallRequest

INVALID_AGENT_ID = "Invalid agentId format"

routes = web.RouteTableDef()

_NOT_IN_A_REF = re.compile(r"[^A-Za-z0-9_.-]")


@routes.post("/api/v1/web-calls/connect")
@of_agent(
    summary="Opens a browser session with an agent",
    body=WebCallRequestBody,
    answer=WebCallResponse,
    scopes=(Scope.WEB_CALLS,),
    errors=(404, 500),
)
async def connect(request: web.Request) -> web.Response:
    """Opens a room for a web call and answers its `serverUrl` and `participantToken`."""
    body = await json_object(request)
    if not is_uuid(body.get("agentId")):
        raise InvalidRequest(INVALID_AGENT_ID)
    wanted = checked(WebCallRequestBody, body)
    metadata = wanted.metadata or WebCallMetadata()
    custom = dict(metadata.model_extra or {})
    if metadata.preCallVariables is not None:
        custom["preCallVariables"] = metadata.preCallVariables
    new = WebCallRequest(
        agent_id=str(uuid.UUID(wanted.agentId)),
        user_ref=_NOT_IN_A_REF.sub("", wanted.userRef or ""),
        variables=prompt_texts(metadata.promptVariables),
        metadata=custom,
    )
    join_grant = await request.app[SERVER].web_calls.connect(caller_of(request).access, new)
    return answer(
        WebCallResponse(
            serverUrl=join_grant.server_url,
            roomName=join_grant.room_name,
            participantToken=join_grant.token,
            participantName=join_grant.identity,
        )
    )


def is_uuid(value: object) -> bool:
    """Whether `value` is a UUID in its canonical form, in either case."""
    try:
        return isinstance(value, str) and str(uuid.UUID(value)) == value.lower()
    except ValueError:
        return False
