"""Batches and repeated requests: what was asked for at once, held back, taken back, asked for again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mediaserver.errors import LocalError, RepeatedDifferently, RuleBroken
from mediaserver.queue.records import CallStatus, Claim, Outcome, Stage, Stopping
from mediaserver.queue.requests import Action, BatchReceipt, BatchStatus, ItemRefused, NewBatch, Repeatable
from mediaserver.store.store import Store
from tests.support.node.store import (
    AGENT,
    TTL_MS,
    Clock,
    agent,
    agent_of,
    company,
    new_call,
    opened,
    query,
    record_of,
    settings,
)

GERMANY = "+4930123456"
"""Where acme may not call."""

NUMBERS = [f"+96650000000{digit}" for digit in range(5)]
DONE = Outcome(status=CallStatus.COMPLETED, cause="normal", sip_status=200)
BUSY = Outcome(status=CallStatus.BUSY, cause="busy", sip_status=486, definite=True)


def spaced(**changes: Any) -> dict[str, Any]:
    return {**company("acme"), "duplicate_policy": "SPACED", **changes}


def batch(*items: str | ItemRefused) -> NewBatch:
    """A batch of acme's to these numbers."""
    calls = [new_call(item, webhook_id="wh-b") if isinstance(item, str) else item for item in items]
    return NewBatch(company_id="acme", agent_id=AGENT, webhook_id="wh-b", items=calls)


def actions(receipt: BatchReceipt) -> list[Action]:
    return [item.action for item in receipt.items]


async def status(store: Store, receipt: BatchReceipt) -> tuple[BatchStatus, int]:
    row = await store.batch("acme", receipt.batch_id)
    assert row is not None
    return row.status, row.open


async def dialled(store: Store, limit: int = 10) -> list[str]:
    """Dials what is due and ends it; the ids."""
    ids = []
    for claim in await store.claim("node", limit, TTL_MS):
        if await store.arm(claim, TTL_MS):
            await store.finish(claim, DONE)
            ids.append(claim.call_id)
    return ids


# Asking -----------------------------------------------------------------------------------------------------


async def test_a_batch_is_told_item_by_item(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        receipt = await store.enqueue_batch(
            batch(NUMBERS[0], ItemRefused("Invalid phone number format"), NUMBERS[1], NUMBERS[0], GERMANY)
        )
        assert actions(receipt) == [
            Action.QUEUED_NOW,
            Action.FAILED,
            Action.QUEUED_NOW,
            Action.DEDUPED,
            Action.FAILED,
        ]
        assert [item.reason for item in receipt.items][1:4:2] == [
            "Invalid phone number format",
            "Duplicate phone number in this request",
        ]
        assert (receipt.policy, receipt.count(Action.QUEUED_NOW)) == ("DEDUPE", 2)
        assert await status(store, receipt) == (BatchStatus.QUEUED, 2)
        record = await record_of(store, receipt.items[2].call_id)
        assert (record.batch_id, record.phone_number) == (receipt.batch_id, NUMBERS[1])
    events = await query(tmp_path, "SELECT body FROM outbox ORDER BY position")
    assert {json.loads(event["body"])["webhookId"] for event in events} == {"wh-b"}


async def test_spaced_duplicates_are_ten_minutes_apart(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(spaced())) as store:
        receipt = await store.enqueue_batch(batch(NUMBERS[0], NUMBERS[0], NUMBERS[1], NUMBERS[0]))
        assert actions(receipt) == [
            Action.QUEUED_NOW,
            Action.QUEUED_LATER,
            Action.QUEUED_NOW,
            Action.QUEUED_LATER,
        ]
        start = clock.now_ms
        assert [item.scheduled_for_ms for item in receipt.items] == [0, start + 600_000, 0, start + 1_200_000]
        assert len(await dialled(store)) == 2
        clock.advance(599_999)
        assert await dialled(store) == []
        clock.advance(1)
        assert await dialled(store) == [receipt.items[1].call_id]
        clock.advance(600_000)
        assert await dialled(store) == [receipt.items[3].call_id]
        assert await status(store, receipt) == (BatchStatus.COMPLETED, 0)


async def test_the_contact_limit_counts_within_a_batch_and_says_when_it_resets(
    tmp_path: Path, clock: Clock
) -> None:
    limited = spaced(contact_limit={"calls": 2, "per_minutes": 60})
    async with opened(tmp_path, clock, settings(limited)) as store:
        receipt = await store.enqueue_batch(batch(*[NUMBERS[0]] * 3))
        assert actions(receipt) == [Action.QUEUED_NOW, Action.QUEUED_LATER, Action.FAILED]
        assert receipt.items[2].reason.endswith("limit resets at 2027-01-15T09:00:00.000Z")
        assert actions(await store.enqueue_batch(batch(NUMBERS[0]))) == [Action.FAILED]


async def test_a_batch_of_which_nothing_is_queued_is_none(store: Store) -> None:
    receipt = await store.enqueue_batch(batch(GERMANY))
    assert (receipt.batch_id, actions(receipt)) == ("", [Action.FAILED])
    assert (await store.batches("acme")).items == ()


async def test_a_dry_run_answers_the_same_and_queues_nothing(tmp_path: Path, clock: Clock) -> None:
    limited = spaced(contact_limit={"calls": 2, "per_minutes": 60})
    async with opened(tmp_path, clock, settings(limited)) as store:
        asked = batch(NUMBERS[0], NUMBERS[0], NUMBERS[0], NUMBERS[1], GERMANY)
        foretold = await store.dry_run(asked)
        assert await query(tmp_path, "SELECT id FROM calls") == []
        assert await query(tmp_path, "SELECT kind FROM outbox") == []
        receipt = await store.enqueue_batch(asked)
    assert [(item.action, item.reason, item.scheduled_for_ms) for item in foretold.items] == [
        (item.action, item.reason, item.scheduled_for_ms) for item in receipt.items
    ]
    assert {item.call_id for item in foretold.items} == {""}


# Life -------------------------------------------------------------------------------------------------------


async def test_a_batch_goes_from_scheduled_to_completed(tmp_path: Path, clock: Clock) -> None:
    configured = settings({**company("acme"), "calling_windows": ["* 12:00-20:00"]})
    async with opened(tmp_path, clock, configured) as store:
        receipt = await store.enqueue_batch(batch(NUMBERS[0], NUMBERS[1]))
        assert actions(receipt) == [Action.QUEUED_LATER] * 2
        assert await status(store, receipt) == (BatchStatus.SCHEDULED, 2)
        clock.advance(3_600_000)
        assert await status(store, receipt) == (BatchStatus.QUEUED, 2)
        assert [row.id for row in (await store.batches("acme", status=BatchStatus.QUEUED)).items] == [
            receipt.batch_id
        ]
        assert len(await dialled(store, 1)) == 1
        assert await status(store, receipt) == (BatchStatus.ONGOING, 1)
        assert len(await dialled(store)) == 1
        assert await status(store, receipt) == (BatchStatus.COMPLETED, 0)
    (event,) = await query(tmp_path, "SELECT body FROM outbox WHERE kind = 'batch.completed'")
    data = json.loads(event["body"])["data"]
    assert (data["batchId"], data["status"], data["calls"]) == (
        receipt.batch_id,
        "COMPLETED",
        {"COMPLETED": 2},
    )
    assert data["callTaskId"]


async def test_a_paused_batch_dials_nothing_until_it_is_resumed(store: Store, clock: Clock) -> None:
    receipt = await store.enqueue_batch(batch(*NUMBERS[:3]))
    (claim,) = await store.claim("node", 1, TTL_MS)
    (other,) = await store.claim("node", 1, TTL_MS)
    assert await store.arm(other, TTL_MS)
    paused = await store.pause_batch("acme", receipt.batch_id)
    assert paused is not None
    assert paused.status is BatchStatus.PAUSED
    assert not await store.arm(claim, TTL_MS)
    assert await store.claim("node", 5, TTL_MS) == []
    await store.finish(other, DONE)
    assert await status(store, receipt) == (BatchStatus.PAUSED, 2)
    clock.advance(10 * TTL_MS)
    await store.reap_expired()
    assert await store.claim("node", 5, TTL_MS) == []
    resumed = await store.resume_batch("acme", receipt.batch_id)
    assert resumed is not None
    assert resumed.status is BatchStatus.ONGOING
    assert len(await dialled(store)) == 2
    assert await status(store, receipt) == (BatchStatus.COMPLETED, 0)
    assert await store.pause_batch("acme", receipt.batch_id) == await store.batch("acme", receipt.batch_id)


async def test_a_retry_of_a_paused_batch_waits_with_it(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(agent=[agent(retry={"busy": [60]})])) as store:
        receipt = await store.enqueue_batch(batch(NUMBERS[0]))
        (claim,) = await store.claim("node", 1, TTL_MS)
        assert await store.arm(claim, TTL_MS)
        await store.pause_batch("acme", receipt.batch_id)
        assert await store.finish(claim, BUSY)
        clock.advance(120_000)
        assert await store.claim("node", 1, TTL_MS) == []
        await store.resume_batch("acme", receipt.batch_id)
        assert len(await dialled(store)) == 1


async def test_a_cancelled_batch_dials_nothing_more(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(agent=[agent(retry={"busy": [60]})])) as store:
        receipt = await store.enqueue_batch(batch(*NUMBERS[:3]))
        live, claim = await store.claim("node", 2, TTL_MS)
        assert await store.arm(live, TTL_MS)
        cancelled = await store.cancel_batch("acme", receipt.batch_id)
        assert cancelled is not None
        assert (cancelled.status, cancelled.open) == (BatchStatus.CANCELLED, 1)
        assert not await store.arm(claim, TTL_MS)
        assert await store.finish(live, BUSY)  # and no retry
        assert await status(store, receipt) == (BatchStatus.CANCELLED, 0)
        clock.advance(3_600_000)
        assert await dialled(store) == []
        assert await store.resume_batch("acme", receipt.batch_id) == await store.batch(
            "acme", receipt.batch_id
        )
    (event,) = await query(tmp_path, "SELECT body FROM outbox WHERE kind = 'batch.completed'")
    assert json.loads(event["body"])["data"]["calls"] == {"CANCELLED": 2, "BUSY": 1}


async def test_another_companys_batch_is_not_there(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme"), company("zenith"))) as store:
        receipt = await store.enqueue_batch(batch(NUMBERS[0]))
        assert await store.batch("zenith", receipt.batch_id) is None
        assert await store.pause_batch("zenith", receipt.batch_id) is None
        assert await store.cancel_batch("zenith", receipt.batch_id) is None
        assert await status(store, receipt) == (BatchStatus.QUEUED, 1)


async def test_batches_are_listed_newest_first_a_page_at_a_time(store: Store) -> None:
    ids = [(await store.enqueue_batch(batch(number))).batch_id for number in NUMBERS[:3]]
    first = await store.batches("acme", limit=2)
    rest = await store.batches("acme", limit=2, cursor=first.cursor)
    assert [row.id for row in (*first.items, *rest.items)] == ids[::-1]
    assert rest.cursor == ""
    with pytest.raises(LocalError, match="cursor"):
        await store.batches("acme", cursor="x")


# Cancelling by number ---------------------------------------------------------------------------------------


async def test_every_pending_call_to_a_number_is_cancelled(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(spaced())) as store:
        receipt = await store.enqueue_batch(batch(NUMBERS[0], NUMBERS[0], NUMBERS[1]))
        (claim,) = await store.claim("node", 1, TTL_MS)
        assert claim.phone_number == NUMBERS[0]
        cancelled = await store.cancel_pending("acme", NUMBERS[0])
        assert cancelled is not None
        assert (cancelled.call.id, cancelled.previous_status, cancelled.batch_id, cancelled.others) == (
            receipt.items[0].call_id,
            "PENDING",
            receipt.batch_id,
            (receipt.items[1].call_id,),
        )
        assert not await store.arm(claim, TTL_MS)
        assert await store.cancel_pending("acme", NUMBERS[0]) is None
        clock.advance(3_600_000)
        assert await dialled(store) == [receipt.items[2].call_id]


async def test_a_cancellation_may_be_one_agents_and_is_one_companys(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme"), company("zenith"))) as store:
        await store.enqueue(new_call(NUMBERS[0]))
        assert await store.cancel_pending("zenith", NUMBERS[0]) is None
        assert await store.cancel_pending("acme", NUMBERS[0], agents=frozenset({agent_of("zenith")})) is None
        assert await store.cancel_pending("acme", NUMBERS[0], agents=frozenset({AGENT})) is not None


async def test_a_call_that_is_being_dialled_is_not_pending(store: Store) -> None:
    await store.enqueue(new_call(NUMBERS[0]))
    (claim,) = await store.claim("node", 1, TTL_MS)
    assert await store.arm(claim, TTL_MS)
    assert await store.cancel_pending("acme", NUMBERS[0]) is None
    assert await store.request_hangup("acme", claim.call_id) is Stopping.REQUESTED
    assert await store.pending_hangups("node") == [claim.call_id]
    assert await store.pending_hangups("other") == []


# Again ------------------------------------------------------------------------------------------------------


async def test_the_same_request_makes_the_same_call(store: Store, tmp_path: Path) -> None:
    key = Repeatable("k1", "a" * 64)
    assert await store.remembered("acme", key) is None
    rows = await asyncio.gather(*[store.enqueue(new_call(), repeatable=key) for _ in range(8)])
    assert len({row.id for row in rows}) == 1
    known = await store.remembered("acme", key)
    assert known is not None
    assert known.call is not None
    assert known.call.id == rows[0].id
    assert len(await query(tmp_path, "SELECT id FROM calls")) == 1
    for other in (Repeatable("k1", "b" * 64),):
        with pytest.raises(RepeatedDifferently):
            await store.enqueue(new_call(), repeatable=other)
        with pytest.raises(RepeatedDifferently):
            await store.remembered("acme", other)


async def test_the_same_batch_gets_the_same_answer(tmp_path: Path, clock: Clock) -> None:
    key = Repeatable("k1", "a" * 64)
    async with opened(tmp_path, clock, settings(spaced())) as store:
        asked = batch(NUMBERS[0], NUMBERS[0], ItemRefused("no"), GERMANY)
        first = await store.enqueue_batch(asked, repeatable=key)
        clock.advance(60_000)
        assert await store.enqueue_batch(asked, repeatable=key) == first
        known = await store.remembered("acme", key)
        assert known is not None
        assert known.batch == first
        assert len(await query(tmp_path, "SELECT id FROM calls")) == 2


async def test_a_key_is_one_companys_and_lasts_a_day(tmp_path: Path, clock: Clock) -> None:
    key = Repeatable("k1", "a" * 64)
    async with opened(tmp_path, clock, settings(company("acme"), company("zenith"))) as store:
        first = await store.enqueue(new_call(), repeatable=key)
        assert await store.remembered("zenith", key) is None
        clock.advance(24 * 3_600_000)
        second = await store.enqueue(new_call(), repeatable=key)
        assert second.id != first.id


async def test_a_refused_request_may_be_sent_again(store: Store) -> None:
    key = Repeatable("k1", "a" * 64)
    with pytest.raises(RuleBroken):
        await store.enqueue(new_call(GERMANY), repeatable=key)
    assert await store.remembered("acme", key) is None
    row = await store.enqueue(new_call(), repeatable=key)
    assert row.stage is Stage.QUEUED


# Races ------------------------------------------------------------------------------------------------------


@pytest.mark.nightly("ci")
async def test_cancelling_and_dialling_a_thousand_times_never_both_happen(
    tmp_path: Path, clock: Clock
) -> None:
    """Every number is cancelled while a node arms it: one of the two comes first."""
    concurrent = 40
    configured = settings(company("acme", concurrent=1000))
    async with opened(tmp_path, clock, configured) as store:
        outcomes: list[tuple[bool, bool]] = []
        for start in range(0, 1000, concurrent):
            numbers = [f"+9665{place:08d}" for place in range(start, start + concurrent)]
            await store.enqueue_batch(batch(*numbers))
            claims = await store.claim("node", concurrent, TTL_MS)
            assert len(claims) == concurrent
            outcomes += await asyncio.gather(
                *[race(store, claim, cancel_first=place % 2 == 0) for place, claim in enumerate(claims)]
            )
    assert len(outcomes) == 1000
    assert all(cancelled != armed for cancelled, armed in outcomes)
    assert {cancelled for cancelled, _ in outcomes} == {True, False}


async def race(store: Store, claim: Claim, *, cancel_first: bool) -> tuple[bool, bool]:
    """Whether the call was cancelled, and whether it was armed."""
    if cancel_first:
        cancelled, armed = await asyncio.gather(
            store.cancel_pending("acme", claim.phone_number), store.arm(claim, TTL_MS)
        )
    else:
        armed, cancelled = await asyncio.gather(
            store.arm(claim, TTL_MS), store.cancel_pending("acme", claim.phone_number)
        )
    if armed:
        await store.finish(claim, DONE)
    return cancelled is not None, armed
