"""Calls are found by what people know of them, on every engine, at a bounded cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mediaserver.queue import search
from mediaserver.queue.personal_data.erasure import Subject
from mediaserver.queue.personal_data.retention import Kept
from mediaserver.queue.records import CallRow, CallStatus, Outcome
from mediaserver.queue.search import CallFilter
from mediaserver.store.store import Store
from tests.support.node.store import (
    AGENT,
    ENGINES,
    TTL_MS,
    Clock,
    agent,
    new_call,
    new_inbound,
    on_engine,
    open_db,
    opened,
    settings,
)

OTHER_AGENT = "5f6d1c34-6f3e-4f0e-9a63-0d8f2f0f7a99"
MARY, BO = "+966500000001", "+966500000002"
MINUTE_MS = 60_000


@pytest.fixture(params=ENGINES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with on_engine(request.param, tmp_path):
        yield tmp_path


@pytest_asyncio.fixture
async def store(folder: Path) -> AsyncIterator[Store]:
    configured = settings(agent=[agent(), agent(id=OTHER_AGENT)])
    async with opened(folder, Clock(), configured) as store:
        yield store


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "caller", "text": text} for text in texts]


async def talked(store: Store, clock: Clock, number: str, duration_ms: int, **changes: Any) -> CallRow:
    """A call to `number` that was answered and is over."""
    outcome = {name: changes.pop(name) for name in ("transcript", "analysis", "cause") if name in changes}
    row = await store.enqueue(new_call(number, **changes))
    [claim] = await store.claim("node", 1, TTL_MS)
    assert await store.arm(claim, sip_call_id="sip-1", ttl_ms=TTL_MS)
    await store.progress(claim, CallStatus.ANSWERED, at_ms=clock.now_ms)
    over: dict[str, Any] = {
        "status": CallStatus.COMPLETED,
        "cause": "agent_hangup",
        "ended_at_ms": clock.now_ms + duration_ms,
    }
    assert await store.finish(claim, Outcome(**(over | outcome)))
    clock.advance(MINUTE_MS)
    return row


async def found(store: Store, **wanted: Any) -> list[str]:
    return [call.id for call in (await store.calls("acme", wanted=CallFilter(**wanted))).items]


async def test_every_filter_finds_its_calls_and_no_others(folder: Path) -> None:
    clock = Clock()
    async with opened(folder, clock) as store:
        first_ms = clock.now_ms
        mary = await talked(
            store,
            clock,
            MARY,
            40_000,
            variables={"name": "Mary O'Neill-Ünal"},
            transcript=said("Am I speaking with Mary?", "Yes. Next Friday, please!"),
            analysis={"disposition": "rescheduled", "latency": {"p50Ms": 610.4, "maxMs": 1940.0}},
        )
        bo = await talked(
            store,
            clock,
            BO,
            5_000,
            variables={"name": "أحمد"},
            transcript=said("مَرْحَبًا بِكَ في العيادة"),
            analysis={"disposition": "voicemail", "latency": {"p50Ms": 500.0, "maxMs": 700.0}},
            cause="remote_hangup",
        )
        waiting = await store.enqueue(new_call(MARY, variables={"name": "Mary"}))
        inbound = new_inbound(
            "00966500000009", agent_id=OTHER_AGENT, called_number="1", sip={"displayName": "Front Desk"}
        )
        desk = (await store.record_inbound(inbound, node="node", ttl_ms=TTL_MS)).call_id
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({}, [desk, waiting.id, bo.id, mary.id]),
            ({"numbers": (MARY, "966500000001")}, [waiting.id, mary.id]),
            ({"digits": "0001"}, [waiting.id, mary.id]),
            ({"name": "o'neill ünal"}, [mary.id]),
            ({"name": "MARY"}, [waiting.id, mary.id]),
            ({"name": "احمد"}, [bo.id]),
            ({"name": "desk"}, [desk]),
            ({"agent_id": OTHER_AGENT}, [desk]),
            ({"agent_id": AGENT, "numbers": (BO,)}, [bo.id]),
            ({"direction": "inbound"}, [desk]),
            ({"disposition": "rescheduled"}, [mary.id]),
            ({"cause": "remote_hangup"}, [bo.id]),
            ({"status": CallStatus.COMPLETED}, [bo.id, mary.id]),
            ({"since_ms": first_ms + 1}, [desk, waiting.id, bo.id]),
            ({"since_ms": first_ms, "until_ms": first_ms + MINUTE_MS}, [mary.id]),
            ({"min_duration_ms": 5_001}, [mary.id]),
            ({"min_duration_ms": 1, "max_duration_ms": 5_000}, [bo.id]),
            ({"min_latency_ms": 1_000}, [mary.id]),
            ({"max_latency_ms": 1_000}, [bo.id]),
            ({"words": "next friday"}, [mary.id]),
            ({"words": "friday next"}, []),
            ({"words": "مرحبا"}, [bo.id]),
            ({"words": "mary", "min_latency_ms": 2_000}, []),
        ]
        for wanted, expected in cases:
            assert await found(store, **wanted) == expected, wanted
        [listed] = (await store.calls("acme", wanted=CallFilter(words="friday"))).items
        assert (listed.name, listed.disposition) == ("Mary O'Neill-Ünal", "rescheduled")
        assert (listed.talked_ms, listed.latency_ms, listed.slowest_ms) == (40_000, 610, 1940)


async def test_a_batch_is_found_and_a_limited_key_sees_its_agents_only(store: Store) -> None:
    mine = await store.enqueue(new_call(MARY, agent_id=OTHER_AGENT, variables={"name": "Mary"}))
    await store.enqueue(new_call(MARY, variables={"name": "Mary"}))
    for wanted in (CallFilter(), CallFilter(name="mary"), CallFilter(numbers=(MARY,))):
        page = await store.calls("acme", wanted=wanted, agents=frozenset({OTHER_AGENT}))
        assert [call.id for call in page.items] == [mine.id]
    theirs = CallFilter(agent_id=AGENT)
    assert (await store.calls("acme", wanted=theirs, agents=frozenset({OTHER_AGENT}))).items == ()
    assert await found(store, batch_id="b-1") == []


async def test_a_page_looks_at_so_many_calls_and_its_cursor_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one call that fits is the oldest: pages before it are empty and say where to go on."""
    monkeypatch.setattr(search, "EXAMINED", 4)
    oldest = await store.enqueue(new_call(MARY, variables={"name": "Mary"}))
    for _ in range(10):
        await store.enqueue(new_call(BO))
    pages, cursor = [], ""
    while True:
        page = await store.calls("acme", wanted=CallFilter(name="mary"), cursor=cursor)
        pages.append([call.id for call in page.items])
        cursor = page.cursor
        if not cursor:
            break
    assert pages == [[], [], [oldest.id]]


async def test_pages_of_a_filter_are_complete_and_without_repetition(store: Store) -> None:
    ids = [(await store.enqueue(new_call(MARY, variables={"name": f"Mary {n}"}))).id for n in range(7)]
    seen, cursor = [], ""
    for _ in range(4):
        page = await store.calls("acme", wanted=CallFilter(name="mary"), cursor=cursor, limit=2)
        seen += [call.id for call in page.items]
        cursor = page.cursor
    assert (seen, cursor) == (ids[::-1], "")


async def test_what_was_erased_or_swept_is_found_by_nothing_that_was_said(folder: Path) -> None:
    clock = Clock()
    async with opened(folder, clock) as store:
        erased, swept = [
            await talked(
                store, clock, number, 1, variables={"name": "Mary"}, transcript=said("friday"), analysis={}
            )
            for number in (MARY, BO)
        ]
        assert await found(store, words="friday", name="mary") == [swept.id, erased.id]
        await store.erase("acme", Subject(call_id=erased.id), key_id="key")
        assert await found(store, words="friday") == [swept.id]
        clock.advance(3 * 24 * 60 * MINUTE_MS)
        assert await store.sweep("acme", Kept.TRANSCRIPTS, days=1) == 1
        assert await found(store, words="friday") == []
        assert await found(store, name="mary") == []


@pytest.mark.parametrize(("variables", "left"), [({}, 0), ({"name": "Mary"}, 1)])
async def test_a_name_that_a_telephone_showed_goes_with_the_signalling(
    folder: Path, variables: dict[str, str], left: int
) -> None:
    clock = Clock()
    async with opened(folder, clock) as store:
        call = new_inbound(
            MARY,
            called_number="+14155550100",
            variables=variables,
            sip={"displayName": "Mary"},
            ringing_at_ms=clock.now_ms,
        )
        claim = await store.record_inbound(call, node="node", ttl_ms=TTL_MS)
        over = Outcome(status=CallStatus.COMPLETED, cause="normal", ended_at_ms=clock.now_ms)
        assert await store.finish(claim, over)
        assert len(await found(store, name="mary")) == 1
        clock.advance(3 * 24 * 60 * MINUTE_MS)
        assert await store.sweep("acme", Kept.SIGNALLING, days=1) == 1
        assert len(await found(store, name="mary")) == left


PLANS = [
    (CallFilter(), "calls_listed"),
    (CallFilter(since_ms=1, until_ms=2, status=CallStatus.FAILED), "calls_listed"),
    (CallFilter(agent_id=AGENT, words="friday"), "calls_of_agent"),
    (CallFilter(numbers=(MARY,)), "calls_of_number"),
    (CallFilter(batch_id="b"), "calls_of_batch"),
]


@pytest.mark.parametrize(("wanted", "index"), PLANS)
async def test_each_walk_goes_along_its_index(folder: Path, wanted: CallFilter, index: str) -> None:
    """Both planners walk the filter's own index, backwards, and sort nothing on the way to the limit."""
    async with opened(folder, Clock()):
        pass
    db = await open_db(folder)
    leading, values = search._leading("acme", wanted, (5, 5))
    order = "c.created_at_ms DESC, c.position DESC"
    walk = f"SELECT c.position FROM calls c WHERE {leading} ORDER BY {order} LIMIT 9"
    try:
        if type(db).__name__ == "Sqlite":
            rows = await db.read(
                lambda tx: [row["detail"] for row in tx.rows(f"EXPLAIN QUERY PLAN {walk}", **values)]
            )
        else:
            rows = await db.write(lambda tx: _explained(tx, walk, values))
    finally:
        await db.close()
    plan = "\n".join(rows)
    assert index in plan, plan
    assert "TEMP B-TREE" not in plan, plan
    assert "Sort" not in plan, plan


def _explained(tx: Any, walk: str, values: dict[str, Any]) -> list[str]:
    tx.run("SET LOCAL enable_seqscan = off")  # an empty table is read whole otherwise
    tx.run("SET LOCAL enable_bitmapscan = off")
    tx.run("SET LOCAL enable_sort = off")
    return [row["QUERY PLAN"] for row in tx.rows(f"EXPLAIN {walk}", **values)]
