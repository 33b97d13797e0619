"""Notes in the audit log who changed, heard, exported or erased what.

All is noted before the first octet of the answer leaves. A recording that another node has is noted there.
Placing calls, sessions and speech are no changes of this kind: calls tell of themselves."""

from __future__ import annotations

import json
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from api.http.auth import SERVER, caller_of
from api.http.catalogue import names_of
from api.http.headers import request_id_of
from api.http.operation import operation_of
from mediaserver.logging import mask_numbers
from mediaserver.queue.audit import Audited

HEARD: Final = "getRecording"
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


@web.middleware
async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Notes what an authenticated request does, where that is to be noted. Raises `StoreError`: what cannot
    be noted is not told."""
    operation = operation_of(request.match_info.handler)
    resource = request.match_info.route.resource
    if operation is None or not operation.scopes or resource is None:
        return await handler(request)
    name, _ = names_of(request.method.lower(), resource.canonical)
    response = await handler(request)
    noted = name == HEARD or (request.method != "GET" and name not in NOT_CHANGES)
    if noted and response.status < 400 and not response.prepared:
        await _note(request, name, request.get(SUBJECT) or _subject(request) or _made(response))
    return response


async def _note(request: web.Request, operation: str, subject: str) -> None:
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
    text = response.text if isinstance(response, web.Response) else None
    body = json.loads(text) if text else {}
    return str(body.get("id", "")) if isinstance(body, dict) else ""
