"""The log of webhooks, sending them again, and secrets that are replaced."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from mediaserver.errors import LocalError
from mediaserver.queue.deliveries import DeliveryFilter, DeliveryState
from mediaserver.queue.outbox import Result
from mediaserver.store.store import Store
from mediaserver.webhooks import BACKOFF_S, RESPONSE_LIMIT, excerpt
from tests.support.http.webhooks import receiver, sending
from tests.support.node.store import (
    SECRET,
    Clock,
    company,
    new_call,
    opened,
    queued,
    settings,
)
from tests.support.waiting import until

ALL = DeliveryFilter()
NEW_SECRET = "whsec_" + b64encode(b"another secret of ours").decode()


async def give_up(store: Store, *, response: str = "") -> int:
    """Takes everything due and gives it up; how many that were."""
    names = await store.subscriptions()
    taken = await store.take_deliveries(dict.fromkeys(names, 100), lease_ms=1000)
    for delivery in taken:
        failed = Result(delivered=False, status=500, error="answered 500", response=response, duration_ms=7)
        await store.settle_delivery(delivery, failed)
    return len(taken)


async def test_the_log_tells_what_each_attempt_came_to(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as endpoint:
        configured = settings(company("acme", webhooks=(endpoint.url,)))

        async def fail_once(body: dict[str, Any]) -> int:
            return 503 if len(endpoint.requests) == 1 else 201

        endpoint.answer = fail_once
        endpoint.text = "out of order\x00 until noon"
        async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
            call = await store.enqueue(new_call())
            await until(lambda: outcomes.seen == ["retried"])
            clock.advance(BACKOFF_S[0] * 1000)
            store.outbox_filled.set()
            await until(lambda: outcomes.seen == ["retried", "delivered"])
            (row,) = (await store.deliveries("acme", wanted=ALL)).items
            report = await store.delivery("acme", row.id)
            assert await store.delivery("zenith", row.id) is None
    assert (row.call_id, row.kind, row.state, row.attempts) == (
        call.id,
        "call.queued",
        DeliveryState.DELIVERED,
        2,
    )
    assert (row.last_status, row.url) == (201, endpoint.url)
    assert report is not None
    assert json.loads(report.body)["type"] == "call.queued"
    first, second = report.attempts
    assert (first.number, first.status, first.error) == (1, 503, "answered 503")
    assert first.response == "out of order\ufffd until noon"
    assert (second.number, second.status, second.error) == (2, 201, "")
    assert second.ended_at_ms - first.ended_at_ms == BACKOFF_S[0] * 1000
    assert first.duration_ms >= 0


async def test_what_nobody_answered_is_in_the_log_too(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as gone:
        nobody = gone.url
    configured = settings(company("acme", webhooks=(nobody,)))
    async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
        await queued(store, 1)
        await until(lambda: outcomes.seen == ["retried"])
        (row,) = (await store.deliveries("acme", wanted=ALL)).items
        report = await store.delivery("acme", row.id)
    assert report is not None
    (attempt,) = report.attempts
    assert (attempt.status, attempt.error, attempt.response) == (0, "cannot connect", "")


def test_an_answer_is_cut_for_the_log() -> None:
    assert excerpt(b"x" * 5000) == "x" * RESPONSE_LIMIT
    assert excerpt("نعم".encode() + b"\xff\x00") == "نعم\ufffd\ufffd"


async def test_a_list_is_of_one_company_newest_first_and_by_pages(tmp_path: Path, clock: Clock) -> None:
    both = [company(name, webhooks=(f"https://{name}.example/",)) for name in ("acme", "zenith")]
    async with opened(tmp_path, clock, settings(*both)) as store:
        await queued(store, 5)
        await queued(store, 2, "zenith")
        seen, cursor = [], ""
        while True:
            page = await store.deliveries("acme", wanted=ALL, cursor=cursor, limit=2)
            seen += [row.id for row in page.items]
            cursor = page.cursor
            if not cursor:
                break
        assert len(seen) == 5
        assert seen == sorted(seen, reverse=True)
        for wrong in ("x", "-1", "1 OR 1=1"):
            with pytest.raises(LocalError, match="Invalid cursor"):
                await store.deliveries("acme", wanted=ALL, cursor=wrong)


async def test_a_filter_restricts_lists_and_replays_alike(tmp_path: Path, clock: Clock) -> None:
    urls = ("https://a.example/", "https://b.example/")
    async with opened(tmp_path, clock, settings(company("acme", webhooks=urls))) as store:
        began_ms = clock.now_ms
        first, second = await queued(store, 2)
        clock.advance(60_000)
        await store.event(first.id, "turn.completed", {"turn": 1})
        while await give_up(store):
            pass
        rows = (await store.deliveries("acme", wanted=ALL)).items
        assert len(rows) == 6
        one = next(row for row in rows if row.kind == "turn.completed")
        for wanted, count in (
            (DeliveryFilter(delivery_id=one.id), 1),
            (DeliveryFilter(call_id=first.id), 4),
            (DeliveryFilter(call_id=second.id), 2),
            (DeliveryFilter(subscription_id=one.subscription_id), 3),
            (DeliveryFilter(until_ms=began_ms + 60_000), 4),
            (DeliveryFilter(since_ms=began_ms + 60_000), 2),
            (DeliveryFilter(since_ms=began_ms, until_ms=began_ms + 60_001), 6),
            (DeliveryFilter(state=DeliveryState.DEAD), 6),
            (DeliveryFilter(state=DeliveryState.DELIVERED), 0),
            (DeliveryFilter(call_id="' OR 1=1 --"), 0),
        ):
            assert len((await store.deliveries("acme", wanted=wanted)).items) == count, wanted
            assert await store.replay_deliveries("acme", wanted) == count, wanted
            pending = DeliveryFilter(state=DeliveryState.PENDING)
            assert len((await store.deliveries("acme", wanted=pending)).items) == count
            while await give_up(store):
                pass


async def test_a_replay_is_the_companys_own_and_of_settled_ones_only(tmp_path: Path, clock: Clock) -> None:
    both = [company(name, webhooks=(f"https://{name}.example/",)) for name in ("acme", "zenith")]
    async with opened(tmp_path, clock, settings(*both)) as store:
        await queued(store, 1)
        assert await store.replay_deliveries("acme", ALL) == 0  # it is still on its way
        await give_up(store)
        assert await store.replay_deliveries("zenith", ALL) == 0
        assert await store.replay_deliveries("acme", ALL) == 1
        assert await store.replay_deliveries("acme", ALL) == 0


async def test_a_replayed_event_is_the_same_and_has_all_its_attempts_again(
    tmp_path: Path, clock: Clock
) -> None:
    async with receiver() as endpoint:
        configured = settings(company("acme", webhooks=(endpoint.url,)))
        async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
            await queued(store, 1)
            await until(lambda: outcomes.seen == ["delivered"])

            async def refuse(body: dict[str, Any]) -> int:
                return 500

            endpoint.answer = refuse
            assert await store.replay_deliveries("acme", ALL) == 1
            for attempt, pause_s in enumerate(BACKOFF_S, 2):
                await until(lambda attempt=attempt: len(outcomes.seen) == attempt)  # type: ignore[misc]
                clock.advance(pause_s * 1000)
                store.outbox_filled.set()
            await until(lambda: outcomes.seen[-1] == "dead")
            (row,) = (await store.deliveries("acme", wanted=ALL)).items
            report = await store.delivery("acme", row.id)
    assert outcomes.seen.count("retried") == len(BACKOFF_S)
    assert len({(headers["webhook-id"], body) for headers, body in endpoint.requests}) == 1
    assert report is not None
    assert [attempt.number for attempt in report.attempts] == list(range(1, len(BACKOFF_S) + 3))


async def test_a_late_result_of_before_the_replay_changes_nothing(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", webhooks=("https://a.example/",)))) as store:
        await queued(store, 1)
        names = dict.fromkeys(await store.subscriptions(), 10)
        (lost,) = await store.take_deliveries(names, lease_ms=1000)
        clock.advance(1000)
        await give_up(store)
        await store.replay_deliveries("acme", ALL)
        await store.take_deliveries(names, lease_ms=1000)
        await store.settle_delivery(lost, Result(delivered=True, status=200))
        (row,) = (await store.deliveries("acme", wanted=ALL)).items
        assert (row.state, row.attempts) == (DeliveryState.PENDING, 3)


async def test_while_a_secret_is_replaced_either_verifies(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as endpoint:
        acme = company("acme", webhooks=(endpoint.url,))
        acme["webhook"][0] |= {"secret": NEW_SECRET, "previous_secret": SECRET}
        configured = settings(acme)
        async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
            await queued(store, 1)
            await until(lambda: outcomes.seen == ["delivered"])
    ((headers, text),) = endpoint.requests
    for secret in (SECRET, NEW_SECRET):
        assert Webhook(secret).verify(text, headers) == json.loads(text)
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + b64encode(b"somebody else's").decode()).verify(text, headers)


async def test_a_receiver_that_restarts_misses_nothing_and_gets_it_in_order(
    tmp_path: Path, clock: Clock
) -> None:
    async with receiver() as before:
        port = int(before.url.split(":")[2].split("/")[0])
        configured = settings(company("acme", webhooks=(before.url,)))
        async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
            call = await store.enqueue(new_call())
            await until(lambda: outcomes.seen == ["delivered"])
            await before.stop()
            for turn in range(1, 4):
                await store.event(call.id, "turn.completed", {"turn": turn})
            await until(lambda: "retried" in outcomes.seen)
            async with receiver(port) as after:
                clock.advance(3_600_000)
                store.outbox_filled.set()
                await until(lambda: outcomes.seen.count("delivered") == 4)
    assert [sequence for _, sequence in before.events + after.events] == [1, 2, 3, 4]


async def test_an_event_of_before_a_crash_is_sent_by_the_next_process(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as endpoint:
        configured = settings(company("acme", webhooks=(endpoint.url,)))
        async with opened(tmp_path, clock, configured) as store:
            await queued(store, 1)
            await store.take_deliveries(dict.fromkeys(await store.subscriptions(), 10), lease_ms=30_000)
        clock.advance(30_000)
        async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
            async with asyncio.timeout(20):
                await until(lambda: outcomes.seen == ["delivered"])
    assert len(endpoint.requests) == 1
