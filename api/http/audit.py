"""Notes in the audit log who changed, heard, read, exported or erased what.

All is noted before the first octet of the answer leaves. A recording that another node has is noted there.
Placing calls, sessions and speech are no changes of this kind: calls tell of themselves."""

from __future__ import annotations

import json
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from api.http.auth import SERVER, caller_of
from api.http.catalogue import names_of
from api.http.headers import request_id_of
from api.http.operation import operation_of
from mediaserver.queue.personal_data.audit import Audited
from mediaserver.telemetry.logging import mask_numbers

REPORT: Final = "getCall"
"""Noted once it has a transcript: until then clients ask again and again how far a call is."""

TOLD: Final = frozenset({REPORT, "getRecording", "getTrace", "getTraceFile", "getPcap"})
"""Reads of what was said in one call, and of its signalling."""

NOT_CHANGES: Final = frozenset(
    {
        "placeCall",
        "connectWebCall",
        "createParticipantToken",
        "callIntoRoom",
        "generateSpeech",
        "transcribe",
        "searchErasures",
    }
)

SUBJECT: web.RequestKey[str] = web.RequestKey("audit_subject", str)
"""What the handler says that it was done to, where neither the path nor the answer tells."""

NOTED: web.RequestKey[bool] = web.RequestKey("audit_noted", bool)
"""Whether a request is noted already, here or on the node whose answer is passed on."""


@web.middleware
async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Notes what an authenticated request does, where that is to be noted. Raises `StoreError`: what cannot
    be noted is not told."""
    response = await handler(request)
    if response.status < 400 and not request.get(NOTED):
        await _note(request, response)
    return response


async def note_before(request: web.Request, response: web.StreamResponse) -> None:
    """Notes a request whose handler prepares and sends `response` itself, before it does. Raises
    `StoreError`."""
    request[NOTED] = True
    await _note(request, response)


async def _note(request: web.Request, response: web.StreamResponse) -> None:
    operation = operation_of(request.match_info.handler)
    resource = request.match_info.route.resource
    if operation is None or not operation.scopes or resource is None:
        return
    name, _ = names_of(request.method.lower(), resource.canonical)
    told = name in TOLD and (name != REPORT or bool(_body(response).get("transcript")))
    if told or (request.method not in ("GET", "HEAD") and name not in NOT_CHANGES):
        await _add(request, name, request.get(SUBJECT) or _subject(request) or _made(response))


async def _add(request: web.Request, operation: str, subject: str) -> None:
    caller = caller_of(request)
    entry = Audited(
        company_id=caller.company_id,
        key_id=caller.key_id,
        request_id=request_id_of(request),
        operation=operation,
        subject=subject,
    )
    await request.app[SERVER].store.note_audit(entry)


def _subject(request: web.Request) -> str:
    """Returns the ids in the path; of a phone number only its last digits."""
    return " ".join(
        mask_numbers(value) if name == "phoneNumber" else value for name, value in request.match_info.items()
    )


def _made(response: web.StreamResponse) -> str:
    """Returns the id of what a request has made."""
    return str(_body(response).get("id", ""))


def _body(response: web.StreamResponse) -> dict[str, Any]:
    text = response.text if isinstance(response, web.Response) else None
    body = json.loads(text) if text else {}
    return body if isinstance(body, dict) else {}
