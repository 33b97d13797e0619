"""Serves personal data over HTTP: erasures, exports, legal holds, and the audit log."""

from __future__ import annotations

from aiohttp import web

from api.calls import report
from api.http.audit import SUBJECT
from api.http.auth import SERVER, caller_of
from api.http.bodies import answer, checked, iso_time, json_object, query_of, view_of
from api.http.operation import of_company
from api.schemas import data as models
from api.schemas.managed import Done, PageQuery
from api.traces import ladder
from mediaserver.db.database import position_of
from mediaserver.errors import NotFound
from mediaserver.queue.personal_data.erasure import Erasure, Subject
from mediaserver.queue.personal_data.holds import Hold

ERASURES = "/api/v1/erasures"
HOLDS = "/api/v1/holds"

routes = web.RouteTableDef()


@routes.post(ERASURES)
@of_company(
    summary="Erases a call, or everything of a number; the erasure stays as the proof",
    body=models.SubjectBody,
    answer=models.ErasureView,
    status=201,
    errors=(404, 409),
)
async def erase(request: web.Request) -> web.Response:
    """Erases a call or a number's calls: rows, events, recordings. 409 under a legal hold."""
    caller = caller_of(request)
    wanted = checked(models.SubjectBody, await json_object(request))
    subject = _subject(request, wanted)
    erasure = await request.app[SERVER].personal_data.erase(caller.company_id, subject, key_id=caller.key_id)
    return answer(erasure_view(caller.company_id, erasure), status=201)


@routes.get(ERASURES)
@of_company(summary="Lists erasures, newest first", query=PageQuery, answer=models.ErasurePage)
async def list_erasures(request: web.Request) -> web.Response:
    """Answers a page of the company's erasures."""
    query, company_id = query_of(request, PageQuery), caller_of(request).company_id
    page = await request.app[SERVER].personal_data.erasures(
        company_id, cursor=query.cursor, limit=query.limit
    )
    views = [erasure_view(company_id, each) for each in page.items]
    return answer(models.ErasurePage(erasures=views, cursor=page.cursor or None))


@routes.get(ERASURES + "/{erasureId}")
@of_company(summary="Tells an erasure", answer=models.ErasureView, errors=(404,))
async def get_erasure(request: web.Request) -> web.Response:
    """Answers an erasure, with what of it still waits; 404 where there is none."""
    company_id = caller_of(request).company_id
    erasure = await request.app[SERVER].personal_data.erasure(company_id, request.match_info["erasureId"])
    return answer(erasure_view(company_id, erasure))


@routes.post(ERASURES + "/search")
@of_company(
    summary="Finds the erasures of a number, by its fingerprint",
    body=models.NumberBody,
    answer=models.ErasurePage,
)
async def find_erasures(request: web.Request) -> web.Response:
    """Answers the erasures of a number, which is stored nowhere."""
    company_id = caller_of(request).company_id
    wanted = checked(models.NumberBody, await json_object(request))
    data = request.app[SERVER].personal_data
    subject = data.subject(company_id, phone_number=wanted.phoneNumber)
    page = await data.erasures(company_id, fingerprint=subject.fingerprint, limit=100)
    views = [erasure_view(company_id, each) for each in page.items]
    return answer(models.ErasurePage(erasures=views, cursor=page.cursor or None))


@routes.post("/api/v1/exports")
@of_company(summary="Tells what is known of a number", body=models.NumberBody, answer=models.ExportView)
async def export(request: web.Request) -> web.Response:
    """Answers the calls with a number and whatever is kept of them: attempts, words, signalling, and the
    events that webhooks were told."""
    company_id = caller_of(request).company_id
    wanted = checked(models.NumberBody, await json_object(request))
    server = request.app[SERVER]
    subject = server.personal_data.subject(company_id, phone_number=wanted.phoneNumber)
    request[SUBJECT] = subject.fingerprint
    known = await server.personal_data.export(company_id, subject)
    public_url = server.settings.server.public_url
    return answer(
        models.ExportView(
            phoneNumber=known.phone_number,
            calls=[report(call, public_url) for call in known.calls],
            traces=[ladder(call_id, legs) for call_id, legs in known.traces.items() if legs],
            events=list(known.events),
            doNotCall=known.do_not_call,
            more=known.more,
        )
    )


@routes.post(HOLDS)
@of_company(
    summary="Puts a legal hold on a call or a number: nothing of it is swept or erased",
    body=models.HoldBody,
    answer=models.HoldView,
    status=201,
    errors=(404,),
)
async def put_hold(request: web.Request) -> web.Response:
    """Puts a legal hold on a call, or on all calls with a number, also those to come."""
    company_id = caller_of(request).company_id
    wanted = checked(models.HoldBody, await json_object(request))
    data = request.app[SERVER].personal_data
    hold = await data.hold(company_id, _subject(request, wanted), reason=wanted.reason)
    return answer(hold_view(company_id, hold), status=201)


@routes.get(HOLDS)
@of_company(summary="Lists legal holds", answer=models.HoldList)
async def list_holds(request: web.Request) -> web.Response:
    """Answers the company's legal holds, the oldest first."""
    company_id = caller_of(request).company_id
    holds = await request.app[SERVER].store.held_data(company_id)
    return answer(models.HoldList(holds=[hold_view(company_id, each) for each in holds]))


@routes.delete(HOLDS + "/{holdId}")
@of_company(summary="Lifts a legal hold", answer=Done, errors=(404,))
async def lift_hold(request: web.Request) -> web.Response:
    """Lifts a legal hold; what is due is swept with the next sweep."""
    company_id = caller_of(request).company_id
    if not await request.app[SERVER].store.lift_hold(company_id, request.match_info["holdId"]):
        raise NotFound("Hold not found")
    return answer(Done(success=True))


@routes.get("/api/v1/audit")
@of_company(
    summary="Tells who changed, heard, exported and erased what, newest first",
    query=models.AuditQuery,
    answer=models.AuditPage,
)
async def list_audit(request: web.Request) -> web.Response:
    """Answers a page of the company's audit log."""
    query = query_of(request, models.AuditQuery)
    page = await request.app[SERVER].store.audit(
        caller_of(request).company_id,
        subject=query.subject,
        before=position_of(query.cursor),
        limit=query.limit,
    )
    entries = [view_of(models.AuditView, each, at=iso_time(each.created_at_ms)) for each in page.items]
    return answer(models.AuditPage(entries=entries, cursor=page.cursor or None))


def _subject(request: web.Request, wanted: models.SubjectBody) -> Subject:
    return request.app[SERVER].personal_data.subject(
        caller_of(request).company_id,
        phone_number=wanted.phoneNumber or "",
        call_id=wanted.callTaskId or "",
    )


def erasure_view(company_id: str, erasure: Erasure) -> models.ErasureView:
    """Returns the API's view of an erasure."""
    return view_of(
        models.ErasureView,
        erasure,
        companyId=company_id,
        recordings=erasure.files,
        openRecordings=erasure.open_files,
        completedAt=iso_time(erasure.ended_at_ms),
    )


def hold_view(company_id: str, hold: Hold) -> models.HoldView:
    """Returns the API's view of a legal hold."""
    return view_of(models.HoldView, hold, companyId=company_id, callTaskId=hold.call_id or None)
