"""The dispatch ledger: nobody is dialled twice, nothing is lost, whatever dies and whenever.

The last tests kill real processes; their carrier is a file that every INVITE appends a line to.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mediaserver.db.database import SCHEMA, migrations, statements
from mediaserver.errors import LocalError
from mediaserver.queue import calls, cancel, enqueue, finish, history, ledger, outbox, rules
from mediaserver.queue.decisions import Rule
from mediaserver.queue.records import (
    TRANSITIONS,
    CallStatus,
    Claim,
    Outcome,
    Stage,
    Stopping,
)
from mediaserver.settings import Settings
from mediaserver.store.store import Store
from tests.support.node.store import (
    ENGINES,
    TTL_MS,
    Clock,
    company,
    new_call,
    new_inbound,
    on_engine,
    opened,
    query,
    queued,
    record_of,
    settings,
    trunk,
    url_of,
)

DONE = Outcome(status=CallStatus.COMPLETED, cause="normal", sip_status=200)


async def status_of(store: Store, call_id: str) -> tuple[CallStatus, Stage]:
    record = await record_of(store, call_id)
    return record.status, record.stage


async def armed(store: Store) -> Claim:
    await store.enqueue(new_call())
    (claim,) = await store.claim("node", 1, TTL_MS)
    assert await store.arm(claim, TTL_MS)
    return claim


async def kinds(tmp_path: Path) -> list[str]:
    return [row["kind"] for row in await query(tmp_path, "SELECT kind FROM outbox ORDER BY position")]


# Claims -----------------------------------------------------------------------------------------------------


async def test_one_call_is_claimed_once(store: Store) -> None:
    rows = await queued(store, 10)
    taken = await asyncio.gather(*[store.claim(f"node{place}", 3, TTL_MS) for place in range(6)])
    ids = [claim.call_id for claims in taken for claim in claims]
    assert sorted(ids) == sorted(row.id for row in rows)
    assert await store.claim("late", 3, TTL_MS) == []


async def test_first_come_first_dialled(store: Store) -> None:
    rows = await queued(store, 5)
    assert [claim.call_id for claim in await store.claim("node", 3, TTL_MS)] == [row.id for row in rows[:3]]


async def test_a_scheduled_call_waits_for_its_time(store: Store, clock: Clock) -> None:
    row = await store.enqueue(new_call(not_before_ms=clock.now_ms + 600_000))
    clock.advance(599_999)
    assert await store.claim("node", 5, TTL_MS) == []
    clock.advance(1)
    assert [claim.call_id for claim in await store.claim("node", 5, TTL_MS)] == [row.id]


async def test_a_company_with_a_long_queue_delays_nobody_elses(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme"), company("zenith"))) as store:
        await queued(store, 50)
        (late,) = await queued(store, 1, "zenith")
        claims = await store.claim("node", 2, TTL_MS)
        assert late.id in [claim.call_id for claim in claims]
        assert {claim.company_id for claim in claims} == {"acme", "zenith"}


async def test_a_company_has_no_more_calls_than_its_limit(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=2))) as store:
        await queued(store, 5)
        first, second = await store.claim("node", 5, TTL_MS)
        assert await store.claim("other", 5, TTL_MS) == []
        assert await store.arm(first, TTL_MS)
        assert await store.arm(second, TTL_MS)
        assert await store.claim("node", 5, TTL_MS) == []
        await store.finish(first, DONE)
        assert len(await store.claim("node", 5, TTL_MS)) == 1


async def test_a_limit_lowered_meanwhile_is_seen_when_arming(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=2))) as store:
        await queued(store, 2)
        first, second = await store.claim("node", 5, TTL_MS)
        await store.sync_file(settings(company("acme", concurrent=1)))
        assert await store.arm(first, TTL_MS)
        assert not await store.arm(second, TTL_MS)
        assert await status_of(store, second.call_id) == (CallStatus.PENDING, Stage.QUEUED)
        await store.finish(first, DONE)
        assert await store.claim("node", 5, TTL_MS) == []
        clock.advance(1000)
        (again,) = await store.claim("node", 5, TTL_MS)
        assert again.call_id == second.call_id
        assert await store.arm(again, TTL_MS)


async def test_a_released_claim_is_there_for_another_node(store: Store) -> None:
    await queued(store, 1)
    (claim,) = await store.claim("draining", 5, TTL_MS)
    assert await store.release(claim)
    assert not await store.release(claim)
    assert not await store.arm(claim, TTL_MS)
    (other,) = await store.claim("other", 5, TTL_MS)
    assert other.epoch > claim.epoch
    assert await store.arm(other, TTL_MS)


async def test_a_claim_released_for_a_while_is_taken_by_nobody_until_then(store: Store, clock: Clock) -> None:
    await queued(store, 1)
    (claim,) = await store.claim("lacking", 5, TTL_MS)
    assert await store.release(claim, pause_ms=1000)
    clock.advance(999)
    assert await store.claim("other", 5, TTL_MS) == []
    clock.advance(1)
    (other,) = await store.claim("other", 5, TTL_MS)
    assert await store.arm(other, TTL_MS)


# Arming -----------------------------------------------------------------------------------------------------


async def test_the_attempt_is_on_disk_before_the_invite_may_leave(store: Store, tmp_path: Path) -> None:
    claim = await armed(store)
    (attempt,) = await query(tmp_path, "SELECT * FROM attempts")
    assert (attempt["call_id"], attempt["ended_at_ms"], attempt["epoch"]) == (
        claim.call_id,
        0,
        claim.epoch,
    )


async def test_arming_twice_dials_once(store: Store) -> None:
    await queued(store, 1)
    (claim,) = await store.claim("node", 1, TTL_MS)
    results = await asyncio.gather(*[store.arm(claim, TTL_MS) for _ in range(5)])
    assert sorted(results) == [False, False, False, False, True]
    assert await status_of(store, claim.call_id) == (CallStatus.DIALING, Stage.ARMED)


async def test_a_node_that_slept_past_its_lease_cannot_dial(store: Store, clock: Clock) -> None:
    await queued(store, 1)
    (claim,) = await store.claim("sleeper", 1, TTL_MS)
    clock.advance(TTL_MS + 1)
    assert not await store.arm(claim, TTL_MS)
    reaped = await store.reap_expired()
    assert reaped.requeued == (claim.call_id,)
    (other,) = await store.claim("other", 1, TTL_MS)
    assert not await store.arm(claim, TTL_MS)
    assert await store.arm(other, TTL_MS)
    assert not await store.progress(claim, CallStatus.RINGING, clock.now_ms)
    assert not await store.finish(claim, DONE)
    assert await status_of(store, claim.call_id) == (CallStatus.DIALING, Stage.ARMED)


# After arming -----------------------------------------------------------------------------------------------


async def test_an_expired_lease_with_an_attempt_is_unknown_and_never_dialled_again(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock) as store:
        claim = await armed(store)
        assert (await store.reap_expired()).unknown == ()
        clock.advance(TTL_MS)
        assert (await store.reap_expired()).unknown == (claim.call_id,)
        assert await status_of(store, claim.call_id) == (CallStatus.UNKNOWN, Stage.FINISHED)
        clock.advance(10 * TTL_MS)
        assert (await store.reap_expired()).requeued == ()
        assert await store.claim("node", 5, TTL_MS) == []
        record = await store.call("acme", claim.call_id)
    assert record is not None
    assert [attempt.status for attempt in record.attempts] == [CallStatus.UNKNOWN]
    assert await kinds(tmp_path) == ["call.queued", "call.dialing", "call.unknown"]


SPARE = {"dial_number": "+966500000001", "trunk_id": "spare"}


def two_trunks(**options: Any) -> Settings:
    return settings(trunk=[trunk(**options), trunk(id="spare")])


async def test_a_node_that_slept_past_its_lease_moves_no_call_to_another_trunk(
    tmp_path: Path, clock: Clock
) -> None:
    """Whoever looks after lost calls may be about to say that nobody knows what became of it."""
    async with opened(tmp_path, clock, two_trunks()) as store:
        claim = await armed(store)
        clock.advance(TTL_MS)
        assert not await store.reroute(claim, **SPARE)
        assert (await store.reap_expired()).unknown == (claim.call_id,)
        assert not await store.reroute(claim, **SPARE)


async def test_a_call_that_went_over_another_trunk_counts_for_the_pace_of_both(
    tmp_path: Path, clock: Clock
) -> None:
    """A carrier that refuses at once does not get more calls per second for it."""
    async with opened(tmp_path, clock, two_trunks(calls_per_second=2)) as store:
        await queued(store, 4)
        one, two = await store.claim("node", 4, TTL_MS)
        for claim in (one, two):
            assert await store.arm(claim, TTL_MS)
            clock.advance(100)
            assert await store.reroute(claim, **SPARE)
        assert await store.claim("node", 4, TTL_MS) == []
        clock.advance(850)
        (three,) = await store.claim("node", 4, TTL_MS)
        assert await store.arm(three, TTL_MS)
        clock.advance(950)
        assert await store.reroute(three, **SPARE)
    kept = await query(tmp_path, "SELECT trunk_id FROM passed_over")
    assert len(kept) == 1, "what counts no more is deleted"


async def test_a_node_that_slept_through_its_call_may_still_say_how_it_went(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock) as store:
        claim = await armed(store)
        await store.progress(claim, CallStatus.RINGING, clock.now_ms)
        clock.advance(TTL_MS)
        assert (await store.reap_expired()).unknown == (claim.call_id,)
        assert await store.progress(claim, CallStatus.ANSWERED, clock.now_ms)
        assert await status_of(store, claim.call_id) == (CallStatus.UNKNOWN, Stage.FINISHED)
        stranger = replace(claim, node="other")
        assert not await store.finish(stranger, DONE)
        assert await store.finish(claim, replace(DONE, transcript=[{"role": "agent", "text": "Hello"}]))
        assert not await store.finish(claim, DONE)
        record = await store.call("acme", claim.call_id)
        assert await store.claim("node", 5, TTL_MS) == []
    assert record is not None
    assert (record.status, record.transcript) == (CallStatus.COMPLETED, [{"role": "agent", "text": "Hello"}])
    assert [attempt.status for attempt in record.attempts] == [CallStatus.COMPLETED]
    assert (await kinds(tmp_path))[2:] == [
        "call.ringing",
        "call.unknown",
        "call.completed",
        "transcript.completed",
    ]


async def test_a_call_that_was_armed_and_certainly_not_dialled_goes_back(
    tmp_path: Path, clock: Clock
) -> None:
    async with opened(tmp_path, clock) as store:
        claim = await armed(store)
        assert await store.release(claim)
        assert not await store.release(claim)
        (again,) = await store.claim("other", 5, TTL_MS)
        assert again.call_id == claim.call_id
        assert not await store.release(claim)
        assert await store.arm(again, TTL_MS)
        record = await store.call("acme", claim.call_id)
    assert record is not None
    assert [(attempt.number, attempt.cause) for attempt in record.attempts] == [(1, "not_dialled"), (2, "")]
    assert [decision.rule for decision in record.decisions] == [Rule.NOT_DIALLED]


async def test_a_renewed_lease_lives_on(store: Store, clock: Clock) -> None:
    claim = await armed(store)
    for _ in range(5):
        clock.advance(TTL_MS - 1)
        (renewal,) = await store.renew("node", TTL_MS)
        assert (renewal.call_id, renewal.epoch, renewal.hang_up) == (claim.call_id, claim.epoch, False)
        assert await store.renew("other", TTL_MS) == []
    assert (await store.reap_expired()).unknown == ()
    assert await store.finish(claim, DONE)
    assert await store.renew("node", TTL_MS) == []


async def test_a_claim_whose_node_never_heard_of_it_runs_out(store: Store, clock: Clock) -> None:
    known, lost = await queued(store, 2)
    await store.claim("node", 2, TTL_MS)
    assert sorted(await store.held("node")) == sorted([known.id, lost.id])
    clock.advance(TTL_MS - 1)
    (renewal,) = await store.renew("node", TTL_MS, unheld=frozenset({lost.id}))
    assert renewal.call_id == known.id
    clock.advance(1)
    assert (await store.reap_expired()).requeued == (lost.id,)
    assert await store.held("node") == [known.id]


async def test_a_database_that_was_away_longer_than_the_lease_ends_no_live_call(
    store: Store, clock: Clock
) -> None:
    claim = await armed(store)
    clock.advance(10 * TTL_MS)
    assert len(await store.renew("node", TTL_MS)) == 1
    assert (await store.reap_expired()).unknown == ()
    assert await store.finish(claim, DONE)


async def test_states_go_forward_only(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock) as store:
        claim = await armed(store)
        for status in (CallStatus.ANSWERED, CallStatus.RINGING, CallStatus.ANSWERED, CallStatus.DIALING):
            assert await store.progress(claim, status, clock.now_ms)
        assert await status_of(store, claim.call_id) == (CallStatus.ANSWERED, Stage.ARMED)
        with pytest.raises(LocalError, match="not progress"):
            await store.progress(claim, CallStatus.COMPLETED, clock.now_ms)
    assert await kinds(tmp_path) == ["call.queued", "call.dialing", "call.answered"]


@pytest.mark.parametrize(
    ("status", "event"),
    [
        (CallStatus.COMPLETED, "call.completed"),
        (CallStatus.NO_ANSWER, "call.failed"),
        (CallStatus.BUSY, "call.failed"),
        (CallStatus.FAILED, "call.failed"),
        (CallStatus.CANCELLED, "call.cancelled"),
    ],
)
async def test_a_call_ends_once_with_its_event(
    tmp_path: Path, clock: Clock, status: CallStatus, event: str
) -> None:
    async with opened(tmp_path, clock) as store:
        claim = await armed(store)
        assert await store.finish(claim, Outcome(status=status, cause="some", sip_status=486))
        assert not await store.finish(claim, DONE)
        assert not await store.progress(claim, CallStatus.ANSWERED, clock.now_ms)
        record = await store.call("acme", claim.call_id)
    assert record is not None
    assert (record.status, record.ended_at_ms, record.sip_status) == (status, clock.now_ms, 486)
    assert await kinds(tmp_path) == ["call.queued", "call.dialing", event]


async def test_a_call_that_could_not_be_dialled_at_all_fails(store: Store) -> None:
    await queued(store, 1)
    (claim,) = await store.claim("node", 1, TTL_MS)
    with pytest.raises(LocalError, match="PENDING cannot become COMPLETED"):
        await store.finish(claim, DONE)
    assert await store.finish(claim, Outcome(status=CallStatus.FAILED, cause="no_engine", error="no voice"))
    assert not await store.arm(claim, TTL_MS)


def test_every_status_has_its_successors_and_ends_have_none() -> None:
    assert set(TRANSITIONS) == set(CallStatus)
    assert {status for status in CallStatus if status.final} == {
        CallStatus.COMPLETED,
        CallStatus.NO_ANSWER,
        CallStatus.BUSY,
        CallStatus.FAILED,
        CallStatus.CANCELLED,
        CallStatus.UNKNOWN,
    }
    assert all(CallStatus.PENDING not in following for following in TRANSITIONS.values())


# Cancelling -------------------------------------------------------------------------------------------------


async def test_a_cancelled_call_is_never_dialled(store: Store, clock: Clock) -> None:
    waiting, claimed = await queued(store, 2)
    assert await store.request_hangup("acme", waiting.id) is Stopping.CANCELLED
    (claim,) = await store.claim("node", 5, TTL_MS)
    assert claim.call_id == claimed.id
    assert await store.request_hangup("acme", claimed.id) is Stopping.CANCELLED
    assert not await store.arm(claim, TTL_MS)
    assert not await store.finish(claim, Outcome(status=CallStatus.FAILED, cause="late"))
    assert await store.request_hangup("acme", claimed.id) is Stopping.ENDED
    clock.advance(10 * TTL_MS)
    await store.reap_expired()
    assert await store.claim("node", 5, TTL_MS) == []
    assert await status_of(store, claimed.id) == (CallStatus.CANCELLED, Stage.FINISHED)


async def test_a_live_calls_owner_is_told_to_hang_up(store: Store) -> None:
    claim = await armed(store)
    assert await store.request_hangup("acme", claim.call_id) is Stopping.REQUESTED
    (renewal,) = await store.renew("node", TTL_MS)
    assert renewal.hang_up
    assert await store.finish(claim, Outcome(status=CallStatus.CANCELLED, cause="cancelled"))


async def test_cancelling_and_arming_at_once_never_both_succeed(tmp_path: Path, clock: Clock) -> None:
    async with opened(tmp_path, clock, settings(company("acme", concurrent=1000))) as store:
        await queued(store, 200)
        for claim in await store.claim("node", 200, TTL_MS):
            stopping, dialled = await asyncio.gather(
                store.request_hangup("acme", claim.call_id), store.arm(claim, TTL_MS)
            )
            assert (stopping, dialled) in ((Stopping.CANCELLED, False), (Stopping.REQUESTED, True))


# With many calls --------------------------------------------------------------------------------------------


def plans() -> list[tuple[str, str]]:
    """How SQLite would run every statement of the ledger and the outbox: its name and a step of its plan."""
    database = sqlite3.connect(":memory:")
    database.create_function("now_ms", 0, lambda: 0)
    for _, _, text in migrations(SCHEMA):
        for statement in statements(text):
            told = statement.replace("{serial}", "INTEGER PRIMARY KEY").replace("{identity}", "''")
            database.execute(told)
    steps = []
    for module in (ledger, finish, rules, cancel, outbox, calls, enqueue, history):
        for name, text in vars(module).items():
            if isinstance(text, str) and re.match(r"\s*(SELECT|UPDATE|INSERT)\b", text):
                sql = text.replace("{now}", "now_ms()").replace("{skip_locked}", "").replace("{lock}", "")
                sql = sql.replace("{identity}", "''")
                values = dict.fromkeys(re.findall(r":(\w+)", sql), 0)
                rows = database.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
                steps += [(f"{module.__name__}.{name}", row[3]) for row in rows]
    database.close()
    return steps


def test_no_statement_goes_through_all_calls_ever_made() -> None:
    steps = plans()
    assert len({name for name, _ in steps}) > 10
    # Companies, trunks and nodes are few; what grows with every call is calls, attempts, outbox, deliveries.
    few = {"c", "t", "companies", "lane", "h", "n", "nodes", "b", "CONSTANT"}
    assert [step for step in steps if step[1].startswith("SCAN") and step[1].split()[1] not in few] == []


def test_counting_a_companys_live_calls_does_not_look_at_its_dead_ones() -> None:
    counting = [plan for name, plan in plans() if name.endswith(("_ARMED", "_LANES")) and "SEARCH h " in plan]
    assert len(counting) > 3
    assert all(re.search("(company|trunk)_id=. AND stage=.", plan) for plan in counting)


# Inbound ----------------------------------------------------------------------------------------------------


async def test_an_inbound_call_rings_is_answered_and_ends(tmp_path: Path, clock: Clock) -> None:
    call = new_inbound("+966500000009", called_number="+966110000000")
    async with opened(tmp_path, clock) as store:
        claim = await store.record_inbound(call, node="node", ttl_ms=TTL_MS)
        assert await status_of(store, claim.call_id) == (CallStatus.RINGING, Stage.ARMED)
        assert await store.claim("other", 5, TTL_MS) == []
        assert await store.progress(claim, CallStatus.ANSWERED, clock.now_ms)
        assert len(await store.renew("node", TTL_MS)) == 1
        assert await store.finish(claim, DONE)
        record = await store.call("acme", claim.call_id)
    assert record is not None
    assert (record.direction, record.phone_number, record.attempts) == ("inbound", "+966500000009", ())
    assert await kinds(tmp_path) == ["call.ringing", "call.answered", "call.completed"]


async def test_an_inbound_call_whose_node_died_is_unknown(store: Store, clock: Clock) -> None:
    call = new_inbound("x", trunk_id="t", called_number="y")
    claim = await store.record_inbound(call, node="node", ttl_ms=TTL_MS)
    clock.advance(TTL_MS)
    assert (await store.reap_expired()).unknown == (claim.call_id,)


# kill -9 ----------------------------------------------------------------------------------------------------

# A node: claims, arms, dials (appends to the carrier's file) and finishes, and stops dead at `point`. With
# `armed = no` it dials without arming: the ordinary queue that the tests must be able to convict.
NODE = """
import asyncio, os, sys
from pathlib import Path
from mediaserver.queue.records import CallStatus, Outcome
from mediaserver.store.store import Store

database, carrier, point, arming = sys.argv[1:5]

async def stop_here(name):
    if name == point:
        print("stopped", flush=True)
        await asyncio.sleep(3600)

async def main():
    store = await Store.open(database, Path("."))
    (claim,) = await store.claim(f"node-{os.getpid()}", 1, 300)
    await stop_here("claimed")
    if arming == "yes" and not await store.arm(claim, 300):
        return
    await stop_here("armed")
    with open(carrier, "a") as file:
        file.write(claim.dial_number + "\\n")
    await stop_here("dialled")
    await store.finish(claim, Outcome(status=CallStatus.COMPLETED, cause="normal"))
    await stop_here("finished")
    await store.close()

asyncio.run(main())
"""


async def run_node(tmp_path: Path, point: str, *, arming: bool = True) -> None:
    """Runs a node until it stops at `point`, and kills it there; "" runs it to its end."""
    node = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        NODE,
        url_of(tmp_path),
        str(tmp_path / "carrier"),
        point,
        "yes" if arming else "no",
        stdout=asyncio.subprocess.PIPE,
    )
    assert node.stdout is not None
    if point:
        assert (await node.stdout.readline()).strip() == b"stopped"
        node.kill()
    await node.wait()


async def reaped_until(store: Store, call_id: str, stage: Stage) -> None:
    """Reaps until the dead node's lease has run out on the real clock."""
    async with asyncio.timeout(20):
        while (await status_of(store, call_id))[1] is not stage:
            await store.reap_expired()
            await asyncio.sleep(0.05)


@pytest.fixture(params=ENGINES)
async def real(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    with on_engine(request.param, tmp_path):
        async with await Store.open(url_of(tmp_path), tmp_path) as store:
            await store.sync_file(settings())
            yield store


def dialled(tmp_path: Path) -> list[str]:
    path = tmp_path / "carrier"
    return path.read_text().split() if path.exists() else []


async def test_killed_between_claim_and_arm_it_is_dialled_once_by_another(
    tmp_path: Path, real: Store
) -> None:
    row = await real.enqueue(new_call())
    await run_node(tmp_path, "claimed")
    await reaped_until(real, row.id, Stage.QUEUED)
    await run_node(tmp_path, "")
    assert dialled(tmp_path) == ["+966500000001"]
    assert await status_of(real, row.id) == (CallStatus.COMPLETED, Stage.FINISHED)


@pytest.mark.parametrize(("point", "times"), [("armed", 0), ("dialled", 1)])
async def test_killed_between_arm_and_finish_it_is_not_dialled_again(
    tmp_path: Path, real: Store, point: str, times: int
) -> None:
    row = await real.enqueue(new_call())
    await run_node(tmp_path, point)
    await reaped_until(real, row.id, Stage.FINISHED)
    assert await status_of(real, row.id) == (CallStatus.UNKNOWN, Stage.FINISHED)
    assert await real.claim("other", 5, TTL_MS) == []
    assert len(dialled(tmp_path)) == times


async def test_killed_after_the_end_nothing_is_lost(tmp_path: Path, real: Store) -> None:
    row = await real.enqueue(new_call())
    await run_node(tmp_path, "finished")
    assert await status_of(real, row.id) == (CallStatus.COMPLETED, Stage.FINISHED)
    events = await query(tmp_path, "SELECT body FROM outbox ORDER BY position")
    assert [json.loads(event["body"])["type"] for event in events] == [
        "call.queued",
        "call.dialing",
        "call.completed",
    ]


async def test_a_queue_that_does_not_arm_dials_twice(tmp_path: Path, real: Store) -> None:
    """The negative control: the same kill, without arming, must be seen as a second call to the same
    person."""
    row = await real.enqueue(new_call())
    await run_node(tmp_path, "dialled", arming=False)
    await reaped_until(real, row.id, Stage.QUEUED)
    await run_node(tmp_path, "")
    assert Counter(dialled(tmp_path)) == {"+966500000001": 2}
