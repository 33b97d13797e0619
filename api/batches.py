"""Serves batches of calls and the do-not-call list over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from api.http.auth import SERVER, Scope, caller_of
from api.http.bodies import answer, checked, json_object, query_of, view_of
from api.http.operation import Operation, of_agent
from api.schemas import managed as models
from mediaserver.calls.validation import read_number
from mediaserver.errors import NotFound
from mediaserver.queue.requests import BatchRow, BatchStatus

USERS = (Scope.CALLS, Scope.ADMIN)
BATCHES = "/api/v1/batches"
DO_NOT_CALL = "/api/v1/do-not-call"
UNKNOWN_BATCH = "Batch not found"

routes = web.RouteTableDef()


@routes.get(BATCHES)
@of_agent(summary="Lists batches, newest first", query=models.BatchesQuery, answer=models.BatchPage)
async def list_batches(request: web.Request) -> web.Response:
    """Answers a page of the company's batches."""
    query, access = query_of(request, models.BatchesQuery), caller_of(request).access
    page = await request.app[SERVER].store.batches(
        access.company_id,
        status=BatchStatus(query.status) if query.status else None,
        cursor=query.cursor,
        limit=query.limit,
        agents=access.agents,
    )
    return answer(models.BatchPage(batches=[view(row) for row in page.items], cursor=page.cursor or None))


@routes.get(BATCHES + "/{batchId}")
@of_agent(summary="Tells a batch", answer=models.BatchView, errors=(404,))
async def get(request: web.Request) -> web.Response:
    """Answers the batch that the path names; 404 where there is none."""
    return answer(view(await _batch(request)))


@routes.post(BATCHES + "/{batchId}/pause")
@of_agent(summary="Holds back what of a batch is not dialled yet", answer=models.BatchView, errors=(404,))
async def pause(request: web.Request) -> web.Response:
    """Holds back the calls of a batch that are not dialled yet; calls in progress go on."""
    return await _changed(request, request.app[SERVER].store.pause_batch)


@routes.post(BATCHES + "/{batchId}/resume")
@of_agent(summary="Lets a paused batch go on", answer=models.BatchView, errors=(404,))
async def resume(request: web.Request) -> web.Response:
    """Lets a paused batch go on; a batch that is not paused stays as it is."""
    return await _changed(request, request.app[SERVER].store.resume_batch)


@routes.post(BATCHES + "/{batchId}/cancel")
@of_agent(summary="Cancels what of a batch is not dialled yet", answer=models.BatchView, errors=(404,))
async def cancel(request: web.Request) -> web.Response:
    """Cancels the calls of a batch that are not dialled yet; calls in progress go on."""
    return await _changed(request, request.app[SERVER].store.cancel_batch)


async def _batch(request: web.Request) -> BatchRow:
    access, batch_id = caller_of(request).access, request.match_info["batchId"]
    batch = await request.app[SERVER].store.batch(access.company_id, batch_id)
    return access.agents_thing(batch, UNKNOWN_BATCH)


async def _changed(
    request: web.Request, verb: Callable[[str, str], Awaitable[BatchRow | None]]
) -> web.Response:
    batch, access = await _batch(request), caller_of(request).access
    row = await verb(access.company_id, batch.id)
    return answer(view(access.agents_thing(row, UNKNOWN_BATCH)))


def view(row: BatchRow) -> models.BatchView:
    """Returns the API's view of a batch."""
    return view_of(models.BatchView, row, batchId=row.id)


# Do not call -----------------------------------------------------------------------------------------------


@routes.get(DO_NOT_CALL)
@Operation(
    summary="Lists the numbers that are never dialled",
    query=models.PageQuery,
    answer=models.DoNotCallList,
    scopes=USERS,
)
async def list_numbers(request: web.Request) -> web.Response:
    """Answers a page of the company's do-not-call list, ordered by number."""
    query = query_of(request, models.PageQuery)
    page = await request.app[SERVER].store.do_not_call(
        caller_of(request).company_id, cursor=query.cursor, limit=query.limit
    )
    rows = [view_of(models.DoNotCallRow, each) for each in page.items]
    return answer(models.DoNotCallList(numbers=rows, cursor=page.cursor or None))


@routes.post(DO_NOT_CALL)
@Operation(
    summary="Puts numbers on the list",
    body=models.DoNotCallBody,
    answer=models.DoNotCallAdded,
    scopes=USERS,
)
async def add(request: web.Request) -> web.Response:
    """Adds numbers to the company's do-not-call list. Queued calls to these numbers fail when they are due.
    One malformed number: none is added."""
    wanted = checked(models.DoNotCallBody, await json_object(request))
    company = request.app[SERVER].directory.company(caller_of(request).company_id)
    numbers = [read_number(each, company) for each in wanted.phoneNumbers]
    added = await request.app[SERVER].store.add_do_not_call(
        caller_of(request).company_id, numbers, reason=wanted.reason
    )
    return answer(models.DoNotCallAdded(success=True, added=added))


@routes.delete(DO_NOT_CALL + "/{phoneNumber}")
@Operation(summary="Takes a number off the list", answer=models.Done, scopes=USERS, errors=(404,))
async def remove(request: web.Request) -> web.Response:
    """Removes a number, in any spelling, from the company's do-not-call list; 404 where it is not listed."""
    company_id = caller_of(request).company_id
    number = read_number(request.match_info["phoneNumber"], request.app[SERVER].directory.company(company_id))
    if not await request.app[SERVER].store.remove_do_not_call(company_id, number):
        raise NotFound("The number is not on the list")
    return answer(models.Done(success=True))
