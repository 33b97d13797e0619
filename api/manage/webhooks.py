"""Serves webhooks over HTTP: the subscriptions to a company's events, their deliveries, and replay."""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from typing import Any

from aiohttp import web

from api.http.auth import SERVER, caller_of
from api.http.bodies import answer, checked, iso_time, json_object, moment, query_of, view_of
from api.http.operation import of_company
from api.manage.common import check_not_of_file, managed_by, one_of, own, page_answer, removed
from api.schemas import managed as models
from api.schemas.camel_case import plain
from mediaserver.admin.admin import new_id
from mediaserver.admin.directory import Subscription
from mediaserver.errors import InvalidRequest, NotFound
from mediaserver.queue.deliveries import DeliveryFilter, DeliveryRow, DeliveryState
from mediaserver.server import Server
from mediaserver.store.managed import Kind

WEBHOOKS = "/api/v1/webhooks"
DELIVERIES = "/api/v1/deliveries"

routes = web.RouteTableDef()


@routes.get(WEBHOOKS)
@of_company(summary="Lists webhooks", query=models.PageQuery, answer=models.WebhookPage)
async def list_webhooks(request: web.Request) -> web.Response:
    """Answers a page of the company's webhooks, ordered by id."""
    things = own(request, request.app[SERVER].directory.webhooks)
    return page_answer(request, models.WebhookPage, "webhooks", things, view)


@routes.post(WEBHOOKS)
@of_company(
    summary="Makes a webhook",
    body=models.NewWebhook,
    answer=models.WebhookView,
    status=201,
    errors=(404, 409),
)
async def make(request: web.Request) -> web.Response:
    """Makes a webhook, which receives the events from now on."""
    wanted = checked(models.NewWebhook, await json_object(request))
    document = wanted.model_dump(exclude_none=True)
    made_up = {} if "secret" in document else {"secret": new_secret()}
    hook = await _save(request, new_id(Kind.WEBHOOK), document | made_up, new=True)
    return answer(view(request.app[SERVER], hook, secret=made_up.get("secret")), status=201)


@routes.get(WEBHOOKS + "/{webhook}")
@of_company(summary="Tells a webhook", answer=models.WebhookView, errors=(404,))
async def get(request: web.Request) -> web.Response:
    """Answers a webhook without its secret; 404 where there is none."""
    return answer(view(request.app[SERVER], _webhook(request)))


@routes.patch(WEBHOOKS + "/{webhook}")
@of_company(
    summary="Changes a webhook. Fields left out stay",
    body=models.WebhookChange,
    answer=models.WebhookView,
    errors=(404, 409),
)
async def change(request: web.Request) -> web.Response:
    """Changes a webhook; pending deliveries go to the new URL as well."""
    hook = _changeable(request)
    wanted = checked(models.WebhookChange, await json_object(request))
    document = plain(hook.settings) | wanted.model_dump(exclude_none=True, include={"url", "events"})
    if wanted.dropPreviousSecret:
        document.pop("previous_secret", None)
    return answer(view(request.app[SERVER], await _save(request, hook.id, document, new=False)))


@routes.post(WEBHOOKS + "/{webhook}/rotate")
@of_company(
    summary="Replaces a webhook's secret; events are signed with both until the old one is dropped",
    answer=models.WebhookView,
    errors=(404, 409),
)
async def rotate(request: web.Request) -> web.Response:
    """Replaces the webhook's secret; the new one is answered this one time."""
    hook = _changeable(request)
    document = plain(hook.settings)
    document |= {"previous_secret": document["secret"], "secret": new_secret()}
    changed = await _save(request, hook.id, document, new=False)
    return answer(view(request.app[SERVER], changed, secret=document["secret"]))


@routes.delete(WEBHOOKS + "/{webhook}")
@of_company(summary="Takes a webhook away", answer=models.Done, errors=(404, 409))
async def remove(request: web.Request) -> web.Response:
    """Removes a webhook; its pending deliveries are dropped."""
    return await removed(request, Kind.WEBHOOK, _webhook(request).id)


def new_secret() -> str:
    """Makes a signing secret: "whsec_" and the base64 of 24 random bytes (Standard Webhooks)."""
    return "whsec_" + b64encode(secrets.token_bytes(24)).decode()


def _webhook(request: web.Request) -> Subscription:
    return one_of(request, request.app[SERVER].directory.webhooks, "webhook", "Webhook not found")


def _changeable(request: web.Request) -> Subscription:
    hook = _webhook(request)
    check_not_of_file(request.app[SERVER], Kind.WEBHOOK, hook.id)
    return hook


async def _save(
    request: web.Request, webhook_id: str, document: dict[str, Any], *, new: bool
) -> Subscription:
    server = request.app[SERVER]
    company_id = caller_of(request).company_id
    return await server.administration.save_webhook(company_id, webhook_id, document, new=new)


def view(server: Server, hook: Subscription, *, secret: str | None = None) -> models.WebhookView:
    """Returns the API's view of a webhook; `secret` only where it was made by this request."""
    return models.WebhookView.model_validate(
        {
            "id": hook.id,
            "companyId": hook.company,
            "url": hook.settings.url,
            "events": list(hook.settings.events),
            "managedBy": managed_by(server, Kind.WEBHOOK, hook.id),
            "rotating": hook.settings.previous_secret is not None,
            "secret": secret,
        }
    )


# Deliveries ------------------------------------------------------------------------------------------------


@routes.get(DELIVERIES)
@of_company(
    summary="Lists deliveries of events to webhooks, newest first",
    query=models.DeliveriesQuery,
    answer=models.DeliveryPage,
)
async def list_deliveries(request: web.Request) -> web.Response:
    """Answers a page of the company's webhook deliveries."""
    query = query_of(request, models.DeliveriesQuery)
    wanted = DeliveryFilter(
        call_id=query.callTaskId,
        subscription_id=query.webhook,
        state=DeliveryState(query.state) if query.state else None,
        since_ms=moment("since", query.since),
        until_ms=moment("until", query.until),
    )
    page = await request.app[SERVER].store.deliveries(
        caller_of(request).company_id, wanted=wanted, cursor=query.cursor, limit=query.limit
    )
    rows = [view_of(models.DeliveryView, row, **_renamed(row)) for row in page.items]
    return answer(models.DeliveryPage(deliveries=rows, cursor=page.cursor or None))


@routes.get(DELIVERIES + "/{delivery}")
@of_company(summary="Tells a delivery with its log", answer=models.DeliveryReportView, errors=(404,))
async def get_delivery(request: web.Request) -> web.Response:
    """Answers a delivery with its body and the outcome of every attempt; 404 where there is none."""
    text = request.match_info["delivery"]
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
    report = await request.app[SERVER].store.delivery(caller_of(request).company_id, number)
    if report is None:
        raise NotFound("Delivery not found")
    told = _renamed(report.row) | {
        "body": json.loads(report.body),
        "log": [view_of(models.DeliveryAttemptView, each) for each in report.attempts],
    }
    return answer(view_of(models.DeliveryReportView, report.row, **told))


@routes.post(DELIVERIES + "/replay")
@of_company(
    summary="Sends settled deliveries again: one, a call's, a webhook's, or those of a time",
    body=models.ReplayBody,
    answer=models.Replayed,
)
async def replay(request: web.Request) -> web.Response:
    """Sends settled deliveries again; each is attempted for a day from now."""
    wanted = checked(models.ReplayBody, await json_object(request))
    chosen = DeliveryFilter(
        delivery_id=wanted.deliveryId or 0,
        call_id=wanted.callTaskId or "",
        subscription_id=wanted.webhook or "",
        since_ms=moment("since", wanted.since or ""),
        until_ms=moment("until", wanted.until or ""),
    )
    if chosen == DeliveryFilter():
        raise InvalidRequest("deliveryId, callTaskId, webhook, since or until: one must be given")
    count = await request.app[SERVER].store.replay_deliveries(caller_of(request).company_id, chosen)
    return answer(models.Replayed(success=True, replayed=count))


def _renamed(row: DeliveryRow) -> dict[str, Any]:
    """Returns what the API calls otherwise; only a pending delivery is due."""
    due_at = iso_time(row.due_at_ms) if row.state is DeliveryState.PENDING else None
    return {"type": row.kind, "callTaskId": row.call_id, "webhook": row.subscription_id, "dueAt": due_at}
