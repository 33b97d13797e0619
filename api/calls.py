"""Calls over HTTP: place one, look at it, list them, end it, fetch its recording."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ValidationError

from api.auth import SERVER, Scope, authenticate
from api.models import (
    CallPage,
    CallReport,
    CallSummary,
    HangupData,
    HangupResponse,
    OutboundData,
    OutboundRequest,
    OutboundResponse,
)
from mediaserver.placing import CallRequest
from mediaserver.records import CallRecord, CallRow
from mediaserver.refusals import InvalidRequest, NotFound

BOTH_MODES = '"phoneNumber" or "calls" must be provided, not both'
NO_MODE = '"phoneNumber" or "calls" must be provided'
PER_CALL = "promptVariables/metadata must be per-call for batch requests"
NO_BATCH = "Batch calls are not part of this version: send one request per call"

PAGE_LIMIT = 100

routes = web.RouteTableDef()


@routes.post("/api/v1/calls/outbound")
async def place_call(request: web.Request) -> web.Response:
    """Queues one call (sections 2.2, 2.3, 4.1)."""
    caller = await authenticate(request, Scope.CALLS)
    body = await json_object(request)
    check_mode(body)
    wanted = parse_outbound(body)
    row = await request.app[SERVER].place_call(
        caller.company_id,
        CallRequest(
            agent_id=wanted.agentId,
            phone_number=wanted.phoneNumber,
            variables={name: prompt_text(value) for name, value in (wanted.promptVariables or {}).items()},
            metadata=wanted.metadata or {},
        ),
    )
    data = OutboundData(
        callTaskId=row.id,
        webhookId=row.webhook_id,
        phoneNumber=row.phone_number,
        agentId=row.agent_id,
        companyId=row.company_id,
        isTest=row.is_test,
    )
    return answer(OutboundResponse(success=True, data=data))


@routes.get("/api/v1/calls")
async def list_calls(request: web.Request) -> web.Response:
    """The company's calls, newest first, a page at a time."""
    caller = await authenticate(request, Scope.CALLS)
    page = await request.app[SERVER].calls(
        caller.company_id,
        status=request.query.get("status", ""),
        cursor=request.query.get("cursor", ""),
        limit=_limit(request.query.get("limit", "50")),
    )
    calls = [CallSummary.model_validate(summary(row)) for row in page.calls]
    return answer(CallPage(calls=calls, cursor=page.cursor or None))


@routes.get("/api/v1/calls/{callTaskId}")
async def get_call(request: web.Request) -> web.Response:
    """Everything known about a call."""
    caller = await authenticate(request, Scope.CALLS)
    record = await request.app[SERVER].call(caller.company_id, request.match_info["callTaskId"])
    return answer(CallReport.model_validate(report(record, request.app[SERVER].settings.server.public_url)))


@routes.post("/api/v1/calls/{callTaskId}/hangup")
async def hang_up(request: web.Request) -> web.Response:
    """Ends a call in whatever state it is; ending one that is over changes nothing."""
    caller = await authenticate(request, Scope.CALLS)
    call_id = request.match_info["callTaskId"]
    stopping = await request.app[SERVER].hang_up(caller.company_id, call_id)
    data = HangupData.model_validate({"callTaskId": call_id, "outcome": stopping.value})
    return answer(HangupResponse(success=True, data=data))


@routes.get("/api/v1/calls/{callTaskId}/recording")
async def get_recording(request: web.Request) -> web.StreamResponse:
    """The stereo recording (caller left, agent right), whole or by Range."""
    caller = await authenticate(request, Scope.CALLS)
    path = await request.app[SERVER].recording(caller.company_id, request.match_info["callTaskId"])
    if not await asyncio.to_thread(path.is_file):
        raise NotFound("The recording is not on this server")
    return web.FileResponse(path, headers={"Content-Type": "audio/wav", "Cache-Control": "private, no-store"})


async def json_object(request: web.Request) -> dict[str, Any]:
    """The body as a JSON object. Raises `InvalidRequest`."""
    try:
        body = json.loads(await request.read(), parse_constant=_not_json)
    except (ValueError, RecursionError):
        raise InvalidRequest("Request body must be a JSON object") from None
    if not isinstance(body, dict):
        raise InvalidRequest("Request body must be a JSON object")
    return body


def check_mode(body: Mapping[str, Any]) -> None:
    """Single or batch, never both (section 4.1). Raises `InvalidRequest` with the message of section 7.1."""
    single, batch = body.get("phoneNumber") is not None, body.get("calls") is not None
    if single and batch:
        raise InvalidRequest(BOTH_MODES)
    if not single and not batch:
        raise InvalidRequest(NO_MODE)
    if batch and ("promptVariables" in body or "metadata" in body):
        raise InvalidRequest(PER_CALL)
    if batch:
        raise InvalidRequest(NO_BATCH)


def parse_outbound(body: Mapping[str, Any]) -> OutboundRequest:
    """The body of a request for one call. Raises `InvalidRequest` naming the first wrong field."""
    try:
        return OutboundRequest.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"][:2])
        if first["loc"] == ("phoneNumber",):
            raise InvalidRequest("Invalid phone number format") from None
        raise InvalidRequest(f"{name}: {_REASONS.get(first['type'], first['msg'])}") from None


def prompt_text(value: str | int | float | bool | None) -> str:
    """A prompt variable as the prompt shows it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def summary(row: CallRow) -> dict[str, Any]:
    """A call without its content."""
    return {
        "callTaskId": row.id,
        "webhookId": row.webhook_id,
        "agentId": row.agent_id,
        "companyId": row.company_id,
        "batchId": row.batch_id or None,
        "direction": row.direction,
        "phoneNumber": row.phone_number,
        "isTest": row.is_test,
        "status": row.status.value,
        "createdAt": iso_time(row.created_at_ms),
        "dialedAt": iso_time(row.dialing_at_ms),
        "ringingAt": iso_time(row.ringing_at_ms),
        "answeredAt": iso_time(row.answered_at_ms),
        "endedAt": iso_time(row.ended_at_ms),
        "hangupCause": row.cause or None,
        "sipStatus": row.sip_status or None,
        "endedBy": row.ended_by or None,
        "error": row.error or None,
    }


def report(record: CallRecord, public_url: str) -> dict[str, Any]:
    """A call with everything known about it."""
    recording = f"{public_url.rstrip('/')}{record.recording_url}" if record.recording_url else None
    return summary(record) | {
        "promptVariables": dict(record.variables),
        "metadata": dict(record.metadata),
        "transcript": [dict(entry) for entry in record.transcript],
        "turns": [dict(turn) for turn in record.turns],
        "recordingUrl": recording,
        "analysis": dict(record.analysis) or None,
    }


def iso_time(at_ms: int) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in UTC, None for "not yet"."""
    if not at_ms:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def answer(body: BaseModel) -> web.Response:
    """A model as the JSON body of a 200."""
    return web.Response(text=body.model_dump_json(), content_type="application/json")


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= PAGE_LIMIT:
        raise InvalidRequest(f"limit must be a number from 1 to {PAGE_LIMIT}")
    return int(text)


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_REASONS = {"extra_forbidden": "unknown field", "missing": "required"}
