"""Webhooks against real receivers: signed, in order, again and again, and no receiver waits for another."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from mediaserver.admin.directory import Directory
from mediaserver.queue.records import CallStatus, Outcome
from mediaserver.server import HTTP_CONNECTIONS_PER_HOST, http_client
from mediaserver.store.store import Store
from mediaserver.webhooks import BACKOFF_S, Webhooks, retry_ms
from pipeline.net.http import GuardedHttpClient
from tests.support.http.webhooks import Outcomes, receiver, sending
from tests.support.node.store import (
    SECRET,
    TTL_MS,
    Clock,
    company,
    new_call,
    opened,
    queued,
    settings,
)
from tests.support.waiting import until


async def one_call(store: Store, number: str) -> str:
    """A call from queue to end: nothing else is claimed meanwhile."""
    row = await store.enqueue(new_call(number))
    (claim,) = await store.claim("node", 1, TTL_MS)
    assert await store.arm(claim, TTL_MS)
    await store.progress(claim, CallStatus.RINGING, 1)
    await store.progress(claim, CallStatus.ANSWERED, 2)
    await store.finish(
        claim,
        Outcome(status=CallStatus.COMPLETED, cause="normal", transcript=[{"role": "user", "text": "نعم"}]),
    )
    return row.id


async def test_everything_arrives_signed_once_and_in_order(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as endpoint:
        configured = settings(company("acme", webhooks=(endpoint.url,)))
        async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
            ids = [await one_call(store, f"+9665{place:08d}") for place in range(5)]
            await until(lambda: len(outcomes.seen) == 30)
            assert (await store.counts()).deliveries == {"PENDING": 0, "DEAD": 0}
    for call_id in ids:
        assert [number for seen, number in endpoint.events if seen == call_id] == [1, 2, 3, 4, 5, 6]
    for headers, text in endpoint.requests:
        assert headers["Content-Type"] == "application/json"
        assert Webhook(SECRET).verify(text, headers) == json.loads(text)
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(text.replace("acme", "evil"), headers)
    assert len({headers["webhook-id"] for headers, _ in endpoint.requests}) == 30
    assert any("نعم" in text for _, text in endpoint.requests)


async def test_a_failing_receiver_gets_the_same_event_again_and_nothing_overtakes_it(
    tmp_path: Path, clock: Clock
) -> None:
    async with receiver() as endpoint:
        configured = settings(company("acme", webhooks=(endpoint.url,)))

        async def fail_twice(body: dict[str, Any]) -> int:
            return 500 if len(endpoint.requests) <= 2 else 200

        endpoint.answer = fail_twice
        async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
            call_id = await one_call(store, "+966500000001")
            for attempt in (1, 2):
                await until(lambda attempt=attempt: len(outcomes.seen) == attempt)  # type: ignore[misc]
                clock.advance(BACKOFF_S[attempt - 1] * 1000)
                store.outbox_filled.set()
            await until(lambda: len(outcomes.seen) == 8)
    assert endpoint.events == [(call_id, number) for number in (1, 1, 1, 2, 3, 4, 5, 6)]
    assert outcomes.seen[:3] == ["retried", "retried", "delivered"]
    first, second = endpoint.requests[:2]
    assert first[1] == second[1]
    assert first[0]["webhook-id"] == second[0]["webhook-id"]


async def test_after_a_day_it_is_given_up_and_the_next_event_goes(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as endpoint:
        configured = settings(company("acme", webhooks=(endpoint.url,)))

        async def refuse_the_first(body: dict[str, Any]) -> int:
            return 410 if body["sequence"] == 1 else 200

        endpoint.answer = refuse_the_first
        began_ms = clock.now_ms
        async with opened(tmp_path, clock, configured) as store, sending(store, configured) as outcomes:
            row = await store.enqueue(new_call())
            await store.event(row.id, "turn.completed", {"turn": 1})
            for attempt, pause_s in enumerate(BACKOFF_S, 1):
                await until(lambda attempt=attempt: len(outcomes.seen) == attempt)  # type: ignore[misc]
                clock.advance(pause_s * 1000)
                store.outbox_filled.set()
            await until(lambda: len(outcomes.seen) == len(BACKOFF_S) + 2)
            assert (await store.counts()).deliveries == {"PENDING": 0, "DEAD": 1}
    assert outcomes.seen[-2:] == ["dead", "delivered"]
    assert 23 * 3_600_000 < clock.now_ms - began_ms <= 24 * 3_600_000


async def test_a_receiver_that_never_answers_delays_nobody_else(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as silent, receiver() as prompt:
        configured = settings(company("acme", webhooks=(silent.url, prompt.url)))
        released = asyncio.Event()

        async def never(body: dict[str, Any]) -> int:
            await released.wait()
            return 200

        silent.answer = never
        async with opened(tmp_path, clock, configured) as store, sending(store, configured, timeout_s=60):
            await queued(store, 40)
            await until(lambda: len(prompt.requests) == 40)
            assert len(silent.requests) <= 8
            released.set()
            await until(lambda: len(silent.requests) == 40)


async def test_no_answer_in_time_and_nobody_there_are_tried_again(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as gone:
        nobody = gone.url
    async with receiver() as silent:
        configured = settings(company("acme", webhooks=(silent.url, nobody)))

        async def late(body: dict[str, Any]) -> int:
            await asyncio.sleep(60)
            return 200

        silent.answer = late
        async with (
            opened(tmp_path, clock, configured) as store,
            sending(store, configured, timeout_s=0.2) as outcomes,
        ):
            await queued(store, 1)
            await until(lambda: outcomes.seen == ["retried", "retried"])


async def test_a_target_in_a_private_network_is_not_asked(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as trap:
        configured = settings(company("acme", webhooks=(trap.url,)))
        async with opened(tmp_path, clock, configured) as store, GuardedHttpClient() as http:
            outcomes = Outcomes()
            task = asyncio.create_task(
                Webhooks(store, http, Directory(configured).secrets(), observe=outcomes).run()
            )
            await queued(store, 1)
            await until(lambda: outcomes.seen == ["retried"])
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert trap.requests == []


async def test_stopping_finishes_what_is_under_way(tmp_path: Path, clock: Clock) -> None:
    async with receiver() as endpoint:
        configured = settings(company("acme", webhooks=(endpoint.url,)))
        arrived, released = asyncio.Event(), asyncio.Event()

        async def slowly(body: dict[str, Any]) -> int:
            arrived.set()
            await released.wait()
            return 200

        endpoint.answer = slowly
        async with opened(tmp_path, clock, configured) as store:
            async with sending(store, configured):
                await queued(store, 1)
                await arrived.wait()
                asyncio.get_running_loop().call_later(0.05, released.set)
            assert (await store.counts()).deliveries == {"PENDING": 0, "DEAD": 0}


def test_pauses_grow_and_end() -> None:
    assert [retry_ms(attempt) for attempt in (1, 2, len(BACKOFF_S), len(BACKOFF_S) + 1)] == [
        1000,
        5000,
        28_800_000,
        None,
    ]
    assert list(BACKOFF_S) == sorted(BACKOFF_S)


async def test_no_more_than_16_requests_to_one_host_are_under_way() -> None:
    """However many calls end at a time, and however many tools are asked before calls."""
    under_way, most, full = 0, 0, asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == HTTP_CONNECTIONS_PER_HOST:
            full.set()
        await full.wait()
        await asyncio.sleep(0.2)
        under_way -= 1
        return web.Response()

    configured = settings(company("acme"))
    server = configured.server.model_copy(update={"allow_networks": (ip_network("127.0.0.0/8"),)})
    async with AsyncExitStack() as stack:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        listening = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listening).start()
        http = await stack.enter_async_context(http_client(configured.model_copy(update={"server": server})))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        await asyncio.gather(*(http.request("POST", url, headers={}, body=b"") for _ in range(40)))
    assert most == HTTP_CONNECTIONS_PER_HOST == 16
