"""Serves calls over HTTP: places one or a batch, cancels, lists, tells, ends, and sends the recording."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aiohttp import web

from api.http.auth import SERVER, Scope, caller_of
from api.http.bodies import answer, checked, iso_time, json_object, moment, query_of, view_of
from api.http.node_proxy import fetched
from api.http.operation import About, Operation, of_agent
from api.http.sealed import send_sealed
from api.schemas.base import Attempt, CallPage, CallReport, HangupData, HangupResponse, ListedCall
from api.schemas.base import Decision as DecisionView
from api.schemas.call_search import CallsQuery
from api.schemas.calls import (
    BATCH_LIMIT,
    BatchCall,
    BatchData,
    BatchItem,
    BatchPolicy,
    BatchResponse,
    BatchSummary,
    CancelData,
    CancelRequest,
    CancelResponse,
    OutboundData,
    OutboundRequest,
    OutboundResponse,
    TrialData,
    TrialResponse,
    Variable,
)
from mediaserver.calls.call_api import Trial
from mediaserver.calls.validation import INVALID_NUMBER, CallRequest
from mediaserver.errors import InvalidRequest
from mediaserver.files.sealed import ENDING
from mediaserver.queue.records import AttemptRow, CallRecord, CallRow
from mediaserver.queue.records import CallStatus as Status
from mediaserver.queue.requests import SPACING_MINUTES, Action, BatchReceipt, Repeatable
from mediaserver.queue.search import CallFilter
from mediaserver.queue.search import ListedCall as SearchedCall

BOTH_MODES = '"phoneNumber" or "calls" must be provided, not both'
NO_MODE = '"phoneNumber" or "calls" must be provided'
PER_CALL = "promptVariables/metadata must be per-call for batch requests"
BATCH_SIZE = f'"calls" must have 1 to {BATCH_LIMIT} items'
NOTHING_PENDING = "No pending call found for this number"

IDEMPOTENCY_KEY = "Idempotency-Key"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


routes = web.RouteTableDef()


@routes.post("/api/v1/calls/outbound")
@Operation(
    summary="Places one call, or a batch of up to 100",
    body=OutboundRequest,
    answer=OutboundResponse | BatchResponse | TrialResponse,
    scopes=(Scope.CALLS,),
    about=About.AGENT,
    errors=(404, 409),
    headers={IDEMPOTENCY_KEY: "The same key with the same body gets the same answer, and one call"},
)
async def place_call(request: web.Request) -> web.Response:
    """Places one call or a batch (sections 2.2 to 2.5, 4.1, 4.2 of the specification)."""
    body = await json_object(request)
    check_mode(body)
    repeatable = repeatable_of(request, body)
    wanted = checked(OutboundRequest, body)
    if wanted.calls is not None:
        return await _place_batch(request, wanted, wanted.calls, repeatable)
    return await _place_one(request, wanted, repeatable)


async def _place_one(
    request: web.Request, wanted: OutboundRequest, repeatable: Repeatable | None
) -> web.Response:
    call_api, access = request.app[SERVER].call_api, caller_of(request).access
    new = CallRequest(
        agent_id=wanted.agentId,
        phone_number=wanted.phoneNumber or "",
        variables=prompt_texts(wanted.promptVariables),
        metadata=wanted.metadata or {},
        headers=wanted.headers or {},
    )
    if wanted.dryRun:
        return _tried(await call_api.try_call(access, new), wanted, access.company_id)
    row = await call_api.place_call(access, new, repeatable=repeatable)
    data = view_of(OutboundData, row, callTaskId=row.id)
    return answer(OutboundResponse(success=True, data=data))


def _tried(trial: Trial, wanted: OutboundRequest, company_id: str) -> web.Response:
    result = trial.result
    data = TrialData(
        dryRun=True,
        phoneNumber=trial.phone_number,
        agentId=wanted.agentId,
        companyId=company_id,
        action=result.action.value,
        scheduledFor=iso_time(result.scheduled_for_ms),
        reason=result.reason or None,
    )
    return answer(TrialResponse(success=result.action in _QUEUED, data=data))


async def _place_batch(
    request: web.Request, wanted: OutboundRequest, calls: list[BatchCall], repeatable: Repeatable | None
) -> web.Response:
    call_api, access = request.app[SERVER].call_api, caller_of(request).access
    requests = [
        CallRequest(
            agent_id=wanted.agentId,
            phone_number=call.phoneNumber,
            variables=prompt_texts(call.promptVariables),
            metadata=call.metadata or {},
            headers=call.headers or {},
        )
        for call in calls
    ]
    if wanted.dryRun:
        receipt = await call_api.try_batch(access, wanted.agentId, requests)
    else:
        receipt = await call_api.place_batch(access, wanted.agentId, requests, repeatable=repeatable)
    return answer(batch_answer(receipt, wanted, calls), omit_none=True)


def batch_answer(receipt: BatchReceipt, wanted: OutboundRequest, calls: list[BatchCall]) -> BatchResponse:
    """Returns the outcome of every item of a batch, in request order (section 2.5)."""
    items = [
        BatchItem(
            phoneNumber=call.phoneNumber,
            action=item.action.value,
            scheduledFor=iso_time(item.scheduled_for_ms) if item.action is Action.QUEUED_LATER else None,
            reason=item.reason if item.action in (Action.FAILED, Action.DEDUPED) else None,
            callTaskId=item.call_id or None,
        )
        for call, item in zip(calls, receipt.items, strict=True)
    ]
    now, later = receipt.count(Action.QUEUED_NOW), receipt.count(Action.QUEUED_LATER)
    deduped, failed = receipt.count(Action.DEDUPED), receipt.count(Action.FAILED)
    data = BatchData(
        policy=BatchPolicy.model_validate({"mode": receipt.policy, "spacingMinutes": SPACING_MINUTES}),
        summary=BatchSummary(
            received=len(items), queuedNow=now, queuedLater=later, deduped=deduped, failed=failed
        ),
        items=items,
        webhookId=receipt.webhook_id,
        agentId=wanted.agentId,
        batchId=receipt.batch_id or None,
        total=len(items),
        queued=now + later,
        failed=failed,
        duplicatesRemoved=deduped,
        dryRun=True if wanted.dryRun else None,
    )
    return BatchResponse(success=now + later > 0, data=data)


@routes.post("/api/v1/calls/queue/cancel/{phoneNumber}")
@Operation(
    summary="Cancels what waits to be dialled to a number, however it is written",
    body=CancelRequest,
    body_required=False,
    answer=CancelResponse,
    scopes=(Scope.CALLS,),
    about=About.AGENT,
    errors=(404,),
)
async def cancel(request: web.Request) -> web.Response:
    """Cancels the queued calls to a number (section 4.3). After the answer `cancelled`, no INVITE is sent."""
    wanted = checked(CancelRequest, await json_object(request, optional=True))
    done = await request.app[SERVER].call_api.cancel(
        caller_of(request).access, request.match_info["phoneNumber"], wanted.agentId
    )
    if done.cancelled is None:
        data = CancelData(cancelled=False, phoneNumber=done.phone_number)
        return answer(CancelResponse(success=True, message=NOTHING_PENDING, data=data), omit_none=True)
    data = CancelData(
        cancelled=True,
        phoneNumber=done.phone_number,
        callQueueId=done.cancelled.call.id,
        previousStatus=done.cancelled.previous_status,
        status="CANCELLED",
        batchId=done.cancelled.batch_id or None,
        cancelledCount=1 + len(done.cancelled.others),
    )
    return answer(CancelResponse(success=True, data=data), omit_none=True)


@routes.get("/api/v1/calls")
@of_agent(
    summary="Lists calls, newest first; every filter that is given has to hold",
    query=CallsQuery,
    answer=CallPage,
)
async def list_calls(request: web.Request) -> web.Response:
    """Answers a page of the company's calls, newest first."""
    query = query_of(request, CallsQuery)
    call_api, access = request.app[SERVER].call_api, caller_of(request).access
    numbers, digits = call_api.numbers(access, query.phoneNumber)
    wanted = replace(filter_of(query), numbers=numbers, digits=digits)
    page = await call_api.calls(access, wanted, cursor=query.cursor, limit=query.limit)
    calls = [listed(row) for row in page.items]
    return answer(CallPage(calls=calls, cursor=page.cursor or None))


@routes.get("/api/v1/calls/{callTaskId}")
@of_agent(summary="Tells everything about a call", answer=CallReport, errors=(404,))
async def get_call(request: web.Request) -> web.Response:
    """Answers the record of a call: attempts, transcript, turns, decisions and analysis. 404 where there is
    none."""
    server = request.app[SERVER]
    record = await server.call_api.call(caller_of(request).access, request.match_info["callTaskId"])
    return answer(report(record, server.settings.server.public_url))


@routes.post("/api/v1/calls/{callTaskId}/hangup")
@of_agent(summary="Ends a call in whatever state it is", answer=HangupResponse, errors=(404,))
async def hang_up(request: web.Request) -> web.Response:
    """Ends a call in any state; a call that has ended stays as it is."""
    call_id = request.match_info["callTaskId"]
    stopping = await request.app[SERVER].call_api.hang_up(caller_of(request).access, call_id)
    data = HangupData.model_validate({"callTaskId": call_id, "outcome": stopping.value})
    return answer(HangupResponse(success=True, data=data))


@routes.get("/api/v1/calls/{callTaskId}/recording")
@of_agent(
    summary="The stereo recording: caller left, agent right; whole, or by Range",
    media=("audio/wav",),
    ranges=True,
    errors=(404,),
)
async def get_recording(request: web.Request) -> web.StreamResponse:
    """Answers the stereo recording (caller left, agent right) as WAV, whole or by Range; fetches it from the
    node that made it where the file is not here."""
    recording = await request.app[SERVER].call_api.recording(
        caller_of(request).access, request.match_info["callTaskId"]
    )
    headers = {"Content-Type": "audio/wav", "Cache-Control": "private, no-store"}
    path, files = recording.path, request.app[SERVER].sealed_files
    sealed = path if path.name.endswith(ENDING) else path.with_name(path.name + ENDING)
    if await asyncio.to_thread(sealed.is_file):
        return await send_sealed(request, files, sealed, headers)
    if path == sealed or not await asyncio.to_thread(path.is_file):
        return await fetched(request, recording.node_url)
    return web.FileResponse(path, headers=headers)


def filter_of(query: CallsQuery) -> CallFilter:
    """Returns what a query asks for, but for the number. Raises `InvalidRequest`."""
    wanted = CallFilter(
        status=Status(query.status) if query.status else None,
        batch_id=query.batchId,
        agent_id=query.agentId.lower(),
        name=query.name,
        direction=query.direction or "",
        disposition=query.disposition,
        cause=query.hangupCause,
        since_ms=moment("since", query.since),
        until_ms=moment("until", query.until),
        min_duration_ms=query.minDurationMs,
        max_duration_ms=query.maxDurationMs or 0,
        min_latency_ms=query.minLatencyMs,
        max_latency_ms=query.maxLatencyMs or 0,
        words=query.words,
    )
    if wanted.until_ms and wanted.until_ms < wanted.since_ms:
        raise InvalidRequest("until: must not lie before since")
    for name, low, high in (
        ("DurationMs", wanted.min_duration_ms, wanted.max_duration_ms),
        ("LatencyMs", wanted.min_latency_ms, wanted.max_latency_ms),
    ):
        if high and high < low:
            raise InvalidRequest(f"max{name}: must not be less than min{name}")
    return wanted


def check_mode(body: Mapping[str, Any]) -> None:
    """Checks that a request is for a single call or for a batch, never both. Raises `InvalidRequest`."""
    number, calls = body.get("phoneNumber"), body.get("calls")
    if number is not None and calls is not None:
        raise InvalidRequest(BOTH_MODES)
    if number is None and calls is None:
        raise InvalidRequest(NO_MODE)
    per_call = (body.get("promptVariables"), body.get("metadata"))
    if calls is not None and per_call != (None, None):  # generated clients send null for what was not given
        raise InvalidRequest(PER_CALL)
    if calls is not None and body.get("headers") is not None:
        raise InvalidRequest("headers must be per-call for batch requests")
    if isinstance(calls, list) and not 1 <= len(calls) <= BATCH_LIMIT:
        raise InvalidRequest(BATCH_SIZE)
    if number is not None and not (isinstance(number, str) and len(number) <= 64):
        raise InvalidRequest(INVALID_NUMBER)


def repeatable_of(request: web.Request, body: Mapping[str, Any]) -> Repeatable | None:
    """Returns the Idempotency-Key with the SHA-256 of the canonical JSON body; None without the header.
    Raises `InvalidRequest`."""
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is None:
        return None
    if _KEY.fullmatch(key) is None:
        raise InvalidRequest(f"{IDEMPOTENCY_KEY} must have 1 to 255 visible ASCII characters")
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return Repeatable(key, hashlib.sha256(canonical.encode()).hexdigest())


def prompt_texts(variables: Mapping[str, Variable] | None) -> dict[str, str]:
    """Returns prompt variables as texts: null as "", booleans in lower case."""
    return {name: _prompt_text(value) for name, value in (variables or {}).items()}


def _prompt_text(value: Variable) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _renamed(row: CallRow) -> dict[str, Any]:
    """Returns what the API calls otherwise than the rows do."""
    return {
        "callTaskId": row.id,
        "dialedAt": iso_time(row.dialing_at_ms),
        "hangupCause": row.cause or None,
    }


def listed(row: SearchedCall) -> ListedCall:
    """Returns a call as lists show it, with what it was searched by."""
    return view_of(ListedCall, row, durationMs=row.talked_ms or None, **_renamed(row))


def report(record: CallRecord, public_url: str) -> CallReport:
    """Returns the whole record of a call; `public_url` completes recording links that begin with "/"."""
    recording = record.recording_url or None
    if recording is not None and recording.startswith("/"):  # earlier versions stored the path only
        recording = f"{public_url.rstrip('/')}{recording}"
    return view_of(
        CallReport,
        record,
        promptVariables=record.variables,
        transcript=list(record.transcript),
        turns=list(record.turns),
        attempts=[attempt(row) for row in record.attempts],
        decisions=[view_of(DecisionView, each) for each in record.decisions],
        recordingUrl=recording,
        analysis=record.analysis or None,
        **_renamed(record),
    )


def attempt(row: AttemptRow) -> Attempt:
    """Returns one attempt to dial; it may have ended before an INVITE was sent."""
    return view_of(Attempt, row, dialedNumber=row.dial_number, hangupCause=row.cause or None)


_QUEUED = (Action.QUEUED_NOW, Action.QUEUED_LATER)
