"""Who may be dialled, and when: asked when a call is queued, and again when it is about to be dialled."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mediaserver.errors import RuleBroken
from mediaserver.queue.decisions import Rule
from mediaserver.queue.records import CallStatus, Claim, Outcome, Stage
from mediaserver.queue.requests import Action
from mediaserver.store.store import Store
from tests.support.node.store import (
    TTL_MS,
    Clock,
    agent,
    agent_of,
    company,
    new_call,
    opened,
    query,
    queued,
    record_of,
    settings,
    trunk,
)

NUMBER = "+966500000001"
BUSY = Outcome(status=CallStatus.BUSY, cause="busy", sip_status=486, ended_by="remote", definite=True)
DONE = Outcome(status=CallStatus.COMPLETED, cause="normal", sip_status=200)


def acme(**changes: Any) -> dict[str, Any]:
    return {**company("acme"), **changes}


async def claimed(store: Store) -> Claim:
    (claim,) = await store.claim("node", 1, TTL_MS)
    return claim


async def refused(store: Store, rule: Rule) -> str:
    with pytest.raises(RuleBroken) as caught:
        await store.enqueue(new_call(NUMBER))
    assert caught.value.rule == rule
    return str(caught.value)


# Never ------------------------------------------------------------------------------------------------------


async def test_a_destination_outside_the_prefixes_is_never_queued(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(acme(dial_prefixes=["1415"]))) as store:
        await refused(store, Rule.DIAL_PREFIX)
        await store.enqueue(new_call("+14155550100"))
    assert len(await query(tmp_path, "SELECT id FROM calls")) == 1


@pytest.mark.parametrize(
    ("after", "rule"),
    [
        ({"company": [acme(dial_prefixes=["1"])]}, Rule.DIAL_PREFIX),
        ({"company": [acme(caller_ids=["+966112222222"])]}, Rule.CALLER_ID),
        ({"company": [acme()], "trunk": [], "agent": []}, Rule.NOT_CONFIGURED),
    ],
)
async def test_what_is_forbidden_meanwhile_is_not_dialled(
    tmp_path: Path, clock: Clock, after: dict[str, Any], rule: Rule
) -> None:
    numbered = agent(phone_number="+966111111111")
    async with opened(tmp_path, clock, settings(acme(), agent=[numbered])) as store:
        row = await store.enqueue(new_call(NUMBER))
        claim = await claimed(store)
        tables = {"agent": [numbered], "trunk": [trunk()], **after}
        await store.sync_file(settings(*tables.pop("company"), **tables))
        assert not await store.arm(claim, TTL_MS)
        found = await record_of(store, row.id)
    assert (found.status, found.stage, found.cause) == (CallStatus.FAILED, Stage.FINISHED, rule)
    assert (found.attempts, [decision.rule for decision in found.decisions]) == ((), [rule])
    events = await query(tmp_path, "SELECT kind FROM outbox ORDER BY position")
    assert [event["kind"] for event in events] == ["call.queued", "call.failed"]


async def test_who_asked_not_to_be_called_is_not(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme"), company("zenith"))) as store:
        row = await store.enqueue(new_call(NUMBER))
        assert await store.add_do_not_call("acme", [NUMBER, "+966500000002"], reason="asked") == 2
        assert await store.add_do_not_call("acme", [NUMBER]) == 0
        await refused(store, Rule.DO_NOT_CALL)
        assert not await store.arm(await claimed(store), TTL_MS)
        assert (await record_of(store, row.id)).cause == Rule.DO_NOT_CALL
        await store.enqueue(new_call(NUMBER, company_id="zenith"))
        page = await store.do_not_call("acme", limit=1)
        assert [(each.phone_number, each.reason) for each in page.items] == [(NUMBER, "asked")]
        rest = await store.do_not_call("acme", cursor=page.cursor)
        assert ([each.phone_number for each in rest.items], rest.cursor) == (["+966500000002"], "")
        assert await store.remove_do_not_call("acme", NUMBER)
        assert not await store.remove_do_not_call("acme", NUMBER)
        await store.enqueue(new_call(NUMBER))


async def test_nobody_shows_a_number_that_another_company_lists(tmp_path: Path, clock: Clock) -> None:
    shown = "+966111111111"
    configured = settings(
        acme(),
        {**company("zenith"), "caller_ids": [shown]},
        agent=[agent(phone_number=shown), agent("zenith", phone_number=shown)],
    )
    async with opened(tmp_path, clock, configured) as store:
        await refused(store, Rule.CALLER_ID)
        await store.enqueue(new_call(NUMBER, company_id="zenith"))


async def test_the_trunks_number_counts_where_the_agent_has_none(tmp_path: Path, clock: Clock) -> None:
    owned = acme(caller_ids=["+966111111111"])
    async with opened(tmp_path, clock, settings(owned, trunk=[trunk(caller_id="0111111111")])) as store:
        await store.enqueue(new_call(NUMBER))
        await store.sync_file(settings(owned, trunk=[trunk(caller_id="0112222222")]))
        await refused(store, Rule.CALLER_ID)


# Not now ----------------------------------------------------------------------------------------------------


async def test_a_contact_is_called_no_more_often_than_allowed(tmp_path: Path, clock: Clock) -> None:
    limited = acme(contact_limit={"calls": 2, "per_minutes": 60})
    async with opened(tmp_path, clock, settings(limited)) as store:
        await store.enqueue(new_call(NUMBER))
        claim = await claimed(store)
        assert await store.arm(claim, TTL_MS)
        await store.finish(claim, DONE)
        clock.advance(600_000)
        await store.enqueue(new_call(NUMBER))  # not dialled yet, and counts all the same
        reason = await refused(store, Rule.CONTACT_LIMIT)
        assert reason == "Contact was called too recently: limit resets at 2027-01-15T09:00:00.000Z"
        await store.enqueue(new_call("+966500000002"))
        clock.advance(49 * 60_000)
        await refused(store, Rule.CONTACT_LIMIT)
        clock.advance(60_000)
        await store.enqueue(new_call(NUMBER))


async def test_the_contact_limit_holds_when_dialling_too(store: Store, clock: Clock) -> None:
    for _ in range(3):
        await store.enqueue(new_call(NUMBER))
    await store.sync_file(settings(acme(contact_limit={"calls": 1, "per_minutes": 30})))
    claims = await store.claim("node", 3, TTL_MS)
    armed = [await store.arm(claim, TTL_MS) for claim in claims]
    assert armed == [True, False, False]
    waiting = await record_of(store, claims[1].call_id)
    assert waiting.stage is Stage.QUEUED
    assert waiting.next_attempt_at_ms == clock.now_ms + 30 * 60_000
    (decision,) = waiting.decisions
    assert (decision.rule, decision.until_ms, decision.times) == (
        Rule.CONTACT_LIMIT,
        waiting.not_before_ms,
        1,
    )
    assert await store.claim("node", 3, TTL_MS) == []
    clock.advance(30 * 60_000)
    again = await store.claim("node", 3, TTL_MS)
    assert [await store.arm(claim, TTL_MS) for claim in again] == [True, False]


async def test_two_requests_at_once_do_not_both_take_the_last_place(tmp_path: Path, clock: Clock) -> None:
    limited = acme(contact_limit={"calls": 1, "per_minutes": 30})
    async with opened(tmp_path, clock, settings(limited)) as store:
        results = await asyncio.gather(
            *[store.enqueue(new_call(NUMBER)) for _ in range(12)], return_exceptions=True
        )
    assert sum(not isinstance(result, BaseException) for result in results) == 1
    assert sum(isinstance(result, RuleBroken) for result in results) == 11


async def test_nobody_is_called_outside_their_hours(tmp_path: Path, clock: Clock) -> None:
    # The clock stands at Friday 11:00 in Riyadh.
    async with opened(tmp_path, clock, settings(acme(calling_windows=["sat-thu 09:00-20:00"]))) as store:
        row = await store.enqueue(new_call(NUMBER))
        assert row.not_before_ms == clock.now_ms + 22 * 3_600_000
        result = await store.dry_run_call(new_call(NUMBER))
        assert (result.action, result.rule) == (Action.QUEUED_LATER, Rule.CALLING_WINDOW)
        clock.advance(22 * 3_600_000 - 1)
        assert await store.claim("node", 1, TTL_MS) == []
        clock.advance(1)
        assert await store.arm(await claimed(store), TTL_MS)


async def test_hours_that_end_while_a_call_waits_hold_it_back(tmp_path: Path, clock: Clock) -> None:
    configured = settings(
        acme(calling_windows=["* 00:00-24:00"]), agent=[agent(calling_windows=["* 09:00-12:00"])]
    )
    async with opened(tmp_path, clock, configured) as store:
        row = await store.enqueue(new_call(NUMBER))
        clock.advance(3_600_000)
        assert not await store.arm(await claimed(store), TTL_MS)
        found = await record_of(store, row.id)
        assert found.next_attempt_at_ms == clock.now_ms + 21 * 3_600_000
        assert [decision.rule for decision in found.decisions] == [Rule.CALLING_WINDOW]


async def test_a_trunk_has_no_more_calls_than_its_carrier_allows(tmp_path: Path, clock: Clock) -> None:
    configured = settings(acme(), trunk=[trunk(max_concurrent_calls=2)])
    async with opened(tmp_path, clock, configured) as store:
        await queued(store, 5)
        first, second = await store.claim("node", 5, TTL_MS)
        assert await store.claim("other", 5, TTL_MS) == []
        assert await store.arm(first, TTL_MS)
        await store.sync_file(settings(acme(), trunk=[trunk(max_concurrent_calls=1)]))
        assert not await store.arm(second, TTL_MS)
        assert (await record_of(store, second.call_id)).decisions[0].rule is Rule.TRUNK_LIMIT
        await store.finish(first, DONE)
        assert await store.arm(await claimed(store), TTL_MS)


async def test_a_full_trunk_holds_up_no_other(tmp_path: Path, clock: Clock) -> None:
    other = {"id": "second", "company": "acme", "uri": "sip:127.0.0.1"}
    configured = settings(acme(), trunk=[trunk(max_concurrent_calls=1), other])
    async with opened(tmp_path, clock, configured) as store:
        await queued(store, 30)
        late = await store.enqueue(new_call("+966511111111", trunk_id="second"))
        claims = await store.claim("node", 5, TTL_MS)
        assert late.id in [claim.call_id for claim in claims]
        assert sorted(claim.trunk_id for claim in claims) == ["carrier", "second"]


async def test_a_trunk_dials_no_faster_than_its_carrier_allows(tmp_path: Path, clock: Clock) -> None:
    configured = settings(acme(), trunk=[trunk(calls_per_second=2)])
    async with opened(tmp_path, clock, configured) as store:
        await queued(store, 6)
        started: list[int] = []
        for _ in range(30):
            for claim in await store.claim("node", 16, TTL_MS):
                if await store.arm(claim, TTL_MS):
                    started.append(clock.now_ms)
                    await store.finish(claim, DONE)
            clock.advance(100)
    assert len(started) == 6
    assert all(third - first >= 1000 for first, third in zip(started, started[2:], strict=False))


async def test_the_rate_holds_for_claims_taken_before(store: Store, clock: Clock) -> None:
    await queued(store, 3)
    claims = await store.claim("node", 3, TTL_MS)
    await store.sync_file(settings(acme(), trunk=[trunk(calls_per_second=1)]))
    assert [await store.arm(claim, TTL_MS) for claim in claims] == [True, False, False]
    waiting = await record_of(store, claims[1].call_id)
    assert (waiting.decisions[0].rule, waiting.not_before_ms) == (Rule.TRUNK_RATE, clock.now_ms + 1000)


async def test_nodes_that_arm_at_once_keep_the_limit(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(acme(max_concurrent_calls=20))) as store:
        await queued(store, 20)
        claims = await store.claim("node", 20, TTL_MS)
        await store.sync_file(settings(acme(max_concurrent_calls=5)))
        armed = await asyncio.gather(*[store.arm(claim, TTL_MS) for claim in claims])
    assert sum(armed) == 5


# Again ------------------------------------------------------------------------------------------------------


def retrying(**table: list[float]) -> dict[str, Any]:
    return agent(retry=table)


async def test_a_busy_number_is_tried_again_as_the_table_says(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(acme(), agent=[retrying(busy=[60, 300])])) as store:
        row = await store.enqueue(new_call(NUMBER))
        for pause_s in (60, 300):
            claim = await claimed(store)
            assert await store.arm(claim, TTL_MS)
            assert await store.progress(claim, CallStatus.RINGING, clock.now_ms)
            assert await store.finish(claim, BUSY)
            waiting = await record_of(store, row.id)
            assert (waiting.status, waiting.stage) == (CallStatus.PENDING, Stage.QUEUED)
            assert waiting.next_attempt_at_ms == clock.now_ms + pause_s * 1000
            assert not await store.finish(claim, BUSY)
            clock.advance(pause_s * 1000)
        last = await claimed(store)
        assert await store.arm(last, TTL_MS)
        assert await store.finish(last, BUSY)
        found = await record_of(store, row.id)
    assert (found.status, found.next_attempt_at_ms) == (CallStatus.BUSY, 0)
    assert [attempt.cause for attempt in found.attempts] == ["busy"] * 3
    assert [decision.reason for decision in found.decisions] == [
        "Attempt ended busy: retry 2 of 2 for that cause"
    ]
    assert found.decisions[0].times == 2
    kinds = [event["kind"] for event in await query(tmp_path, "SELECT kind FROM outbox ORDER BY position")]
    assert kinds == [
        *["call.queued", "call.dialing", "call.ringing"] * 2,
        *["call.queued", "call.dialing", "call.failed"],
    ]
    sequences = await query(tmp_path, "SELECT sequence FROM outbox ORDER BY position")
    assert [event["sequence"] for event in sequences] == list(range(1, 10))


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(status=CallStatus.BUSY, cause="busy", sip_status=486),  # not definite
        Outcome(
            status=CallStatus.NO_ANSWER, cause="no_answer", sip_status=408, definite=True
        ),  # no such line
        Outcome(status=CallStatus.UNKNOWN, cause="busy", definite=False),
    ],
)
async def test_what_may_have_rung_is_never_dialled_again(
    tmp_path: Path, clock: Clock, outcome: Outcome
) -> None:
    async with opened(tmp_path, clock, settings(acme(), agent=[retrying(busy=[60])])) as store:
        row = await store.enqueue(new_call(NUMBER))
        claim = await claimed(store)
        assert await store.arm(claim, TTL_MS)
        assert await store.finish(claim, outcome)
        clock.advance(3_600_000)
        await store.reap_expired()
        assert await store.claim("node", 5, TTL_MS) == []
        assert (await record_of(store, row.id)).status is outcome.status


async def test_an_answered_call_is_not_retried_and_a_call_that_was_hung_up_neither(
    tmp_path: Path, clock: Clock
) -> None:
    table = retrying(remote_error=[1], busy=[1])
    async with opened(tmp_path, clock, settings(acme(), agent=[table])) as store:
        answered, stopped = await queued(store, 2)
        for claim in await store.claim("node", 2, TTL_MS):
            assert await store.arm(claim, TTL_MS)
            if claim.call_id == answered.id:
                await store.progress(claim, CallStatus.ANSWERED, clock.now_ms)
                failed = Outcome(status=CallStatus.FAILED, cause="remote_error", definite=True)
                assert await store.finish(claim, failed)
            else:
                await store.request_hangup("acme", stopped.id)
                assert await store.finish(claim, BUSY)
        assert (await record_of(store, answered.id)).status is CallStatus.FAILED
        assert (await record_of(store, stopped.id)).status is CallStatus.BUSY


async def test_a_retry_waits_for_the_hours_of_the_called_party(tmp_path: Path, clock: Clock) -> None:
    configured = settings(acme(calling_windows=["* 09:00-12:00"]), agent=[retrying(busy=[7200])])
    async with opened(tmp_path, clock, configured) as store:
        row = await store.enqueue(new_call(NUMBER))
        claim = await claimed(store)
        assert await store.arm(claim, TTL_MS)
        assert await store.finish(claim, BUSY)
        assert (await record_of(store, row.id)).next_attempt_at_ms == clock.now_ms + 22 * 3_600_000


async def test_an_attempt_that_was_never_dialled_counts_for_nothing(tmp_path: Path, clock: Clock) -> None:
    limited = acme(contact_limit={"calls": 1, "per_minutes": 30})
    async with opened(tmp_path, clock, settings(limited)) as store:
        await store.enqueue(new_call(NUMBER))
        claim = await claimed(store)
        assert await store.arm(claim, TTL_MS)
        assert await store.release(claim)
        assert await store.arm(await claimed(store), TTL_MS)


async def test_the_agent_of_another_company_is_not_configured_for_this_one(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock, settings(company("acme"), company("zenith"))) as store:
        with pytest.raises(RuleBroken):
            await store.enqueue(new_call(NUMBER, agent_id=agent_of("zenith")))
