"""The outbox: every event is laid aside for who wants it, in order, and stays until it is settled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mediaserver.queue.outbox import Result, iso, matches
from mediaserver.queue.records import Delivery
from mediaserver.store.store import Store
from tests.support.node.store import (
    Clock,
    company,
    new_call,
    opened,
    query,
    queued,
    settings,
)

LEASE_MS = 30_000
URL, OTHER_URL = "https://a.example/1", "https://b.example/2"


async def take(store: Store, room: int = 10) -> list[Delivery]:
    """Everything due, of all subscriptions."""
    names = await store.subscriptions()
    return list(await store.take_deliveries(dict.fromkeys(names, room), lease_ms=LEASE_MS))


def kind(delivery: Delivery) -> str:
    name: str = json.loads(delivery.body)["type"]
    return name


@pytest.mark.parametrize(
    ("pattern", "event", "wanted"),
    [
        ("*", "call.queued", True),
        ("call.*", "call.queued", True),
        ("call.queued", "call.queued", True),
        ("call.queued", "call.completed", False),
        ("call.*", "turn.completed", False),
        ("call.*", "callback.done", False),
    ],
)
def test_patterns(pattern: str, event: str, wanted: bool) -> None:
    assert matches(pattern, event) is wanted


def test_times_are_iso_in_utc() -> None:
    assert iso(1_800_000_000_123) == "2027-01-15T08:00:00.123Z"


async def test_an_event_goes_to_every_subscription_that_wants_it(tmp_path: Path, clock: Clock) -> None:
    acme = company("acme", webhooks=(URL, OTHER_URL))
    acme["webhook"][1]["events"] = ["turn.completed"]
    zenith = company("zenith", webhooks=("https://z.example/3",))
    async with opened(tmp_path, clock, settings(acme, zenith)) as store:
        row = await store.enqueue(new_call())
        (queued_event,) = await take(store)
        assert (queued_event.url, kind(queued_event), queued_event.attempt) == (URL, "call.queued", 1)
        await store.settle_delivery(queued_event, Result(delivered=True))
        await store.event(row.id, "turn.completed", {"turn": 1})
        both = await take(store)
        assert {delivery.url for delivery in both} == {URL, OTHER_URL}
        assert len({delivery.event_id for delivery in both}) == 1


async def test_of_one_call_the_next_waits_for_the_one_before(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", webhooks=(URL,)))) as store:
        first, second = await queued(store, 2)
        await store.event(first.id, "turn.completed", {"turn": 1})
        await store.event(second.id, "turn.completed", {"turn": 1})
        taken = await take(store)
        assert [(delivery.call_id, kind(delivery)) for delivery in taken] == [
            (first.id, "call.queued"),
            (second.id, "call.queued"),
        ]
        assert await take(store) == []
        await store.settle_delivery(taken[1], Result(delivered=True))
        (after,) = await take(store)
        assert (after.call_id, kind(after)) == (second.id, "turn.completed")


async def test_no_more_is_taken_than_there_is_room(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", webhooks=(URL,)))) as store:
        await queued(store, 9)
        assert len(await take(store, 4)) == 4
        assert len(await take(store, 4)) == 4
        assert len(await take(store, 0)) == 0
        assert len(await take(store, 4)) == 1


async def test_what_died_with_its_process_is_due_again_when_the_lease_ends(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock, settings(company("acme", webhooks=(URL,)))) as store:
        await queued(store, 1)
        (lost,) = await take(store)
        clock.advance(LEASE_MS - 1)
        assert await take(store) == []
        clock.advance(1)
        (again,) = await take(store)
        assert (again.id, again.body, again.event_id, again.attempt) == (lost.id, lost.body, lost.event_id, 2)
        # The first sender is back, late: what it knows is of an attempt that is over.
        await store.settle_delivery(lost, Result(delivered=False))
        await store.settle_delivery(again, Result(delivered=True, status=204, duration_ms=12))
    (row,) = await query(tmp_path, "SELECT state, attempts, last_status, last_duration_ms FROM deliveries")
    assert row == {"state": "DELIVERED", "attempts": 2, "last_status": 204, "last_duration_ms": 12}


async def test_a_failure_is_due_again_after_its_pause_and_given_up_in_the_end(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock, settings(company("acme", webhooks=(URL,)))) as store:
        row = await store.enqueue(new_call())
        await store.event(row.id, "turn.completed", {"turn": 1})
        (delivery,) = await take(store)
        await store.settle_delivery(delivery, Result(delivered=False, status=500, retry_ms=5000))
        clock.advance(4999)
        assert await take(store) == []
        clock.advance(1)
        (delivery,) = await take(store)
        await store.settle_delivery(delivery, Result(delivered=False, error="cannot connect"))
        assert (await store.counts()).deliveries == {"DEAD": 1, "PENDING": 1}
        (following,) = await take(store)
        assert kind(following) == "turn.completed"


async def test_what_was_waiting_for_a_removed_subscription_is_given_up(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", webhooks=(URL, OTHER_URL)))) as store:
        await queued(store, 2)
        await store.sync_file(settings(company("acme", webhooks=(OTHER_URL,))))
        assert (await store.counts()).deliveries == {"DEAD": 2, "PENDING": 2}
        assert {delivery.url for delivery in await take(store)} == {OTHER_URL}


async def test_sequence_numbers_are_contiguous_per_call(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        rows = await queued(store, 3)
        for turn in range(1, 6):
            for row in rows:
                await store.event(row.id, "turn.completed", {"turn": turn})
    for row in rows:
        events = await query(
            tmp_path, "SELECT sequence FROM outbox WHERE call_id = :id ORDER BY position", id=row.id
        )
        assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5, 6]


async def test_an_event_cannot_pretend_to_be_of_another_call(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        row = await store.enqueue(new_call())
        await store.event(row.id, "turn.completed", {"callTaskId": "other", "companyId": "other", "turn": 1})
    events = await query(tmp_path, "SELECT body FROM outbox ORDER BY position")
    data = json.loads(events[-1]["body"])["data"]
    assert (data["callTaskId"], data["companyId"], data["turn"]) == (row.id, "acme", 1)
