"""Measures the queue under load, on a database file and on a private PostgreSQL server: `python -m bench
store`.

Three questions: how many calls per second can be queued, in batches and one by one; how long a node waits for
its share of a long queue (p99 of a claim, and of arming a claimed call); and how long the first call of a
small company waits behind a hundred thousand calls of another."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import TypeVar

import click

from bench import report
from bench.support.cluster import Cluster
from mediaserver.calls.dispatch import LEASE_MS, Calls, Dispatch
from mediaserver.db.database import Db, Tx, open_database
from mediaserver.queue.records import CallStatus, Claim, NewCall, Outcome
from mediaserver.queue.requests import NewBatch
from mediaserver.settings import Settings
from mediaserver.store.store import Store

T = TypeVar("T")

SMALL, LARGE = "small", "large"
AGENTS = {SMALL: "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11", LARGE: "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a12"}

PER_BATCH = 100
PER_CLAIM = 16

FILL_PIECE = 100_000

_FILL = """
INSERT INTO calls (id, company_id, agent_id, trunk_id, direction, phone_number, dial_number, webhook_id,
    variables, metadata, is_test, status, stage, created_at_ms, not_before_ms)
WITH RECURSIVE n (i) AS (SELECT CAST(:first AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < :last)
SELECT :prefix || i, :company_id, :agent_id, :company_id, 'outbound', '+9665' || (10000000 + i),
    '+9665' || (10000000 + i), 'wh', '{}', '{}', 0, 'PENDING', 'QUEUED', {now}, {now}
FROM n
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the measurements."""

    enqueued: int
    queue: int
    claims: int
    behind: int


SHORT = Plan(enqueued=2_000, queue=100_000, claims=100, behind=20_000)
FULL = Plan(enqueued=10_000, queue=1_000_000, claims=500, behind=100_000)


def settings() -> Settings:
    """Returns the settings of two companies without limits."""
    names = (SMALL, LARGE)
    return Settings.model_validate(
        {
            "company": [{"id": name, "country": "SA", "max_concurrent_calls": 100_000} for name in names],
            "trunk": [{"id": name, "company": name, "uri": "sip:127.0.0.1"} for name in names],
            "agent": [
                {"id": AGENTS[name], "company": name, "trunk": name, "script": {"start": "a"}}
                for name in names
            ],
        },
        by_alias=True,
    )


def call_of(company_id: str, number: int) -> NewCall:
    """Returns a call to a number of its own."""
    text = f"+9665{number:08d}"
    return NewCall(
        company_id=company_id,
        agent_id=AGENTS[company_id],
        trunk_id=company_id,
        phone_number=text,
        dial_number=text,
        webhook_id="wh",
    )


async def enqueueing(store: Store, count: int) -> dict[str, float]:
    """Measures queued calls per second, in batches and one at a time."""
    began = time.perf_counter()
    for first in range(0, count, PER_BATCH):
        items = [call_of(SMALL, number) for number in range(first, first + PER_BATCH)]
        await store.enqueue_batch(
            NewBatch(company_id=SMALL, agent_id=AGENTS[SMALL], webhook_id="wh", items=items)
        )
    batched = count / (time.perf_counter() - began)
    one_by_one = count // 10
    began = time.perf_counter()
    for number in range(one_by_one):
        await store.enqueue(call_of(SMALL, count + number))
    return {"batched_per_s": batched, "single_per_s": one_by_one / (time.perf_counter() - began)}


async def fill(db: Db, count: int, prefix: str) -> None:
    """Queues `count` calls of the large company by SQL, without the store."""
    for first in range(0, count, FILL_PIECE):
        last = min(count, first + FILL_PIECE) - 1

        def piece(tx: Tx, first: int = first, last: int = last) -> int:
            who = {"prefix": prefix, "company_id": LARGE, "agent_id": AGENTS[LARGE]}
            return tx.run(_FILL, first=first, last=last, **who)

        await db.write(piece)


async def claiming(store: Store, count: int) -> dict[str, float]:
    """Measures milliseconds of a claim, and of arming and ending one call, in a long queue."""
    outcome = Outcome(status=CallStatus.COMPLETED, cause="normal")
    claims_ms, arms_ms, ends_ms = [], [], []
    for _ in range(count):
        spent_ms, claims = await timed(store.claim("node", PER_CLAIM, LEASE_MS))
        claims_ms.append(spent_ms)
        for claim in claims[:2]:
            arms_ms.append((await timed(store.arm(claim, LEASE_MS)))[0])
            ends_ms.append((await timed(store.finish(claim, outcome)))[0])
    return {
        **figures("claim", claims_ms),
        **figures("arm", arms_ms),
        **figures("finish", ends_ms),
    }


async def timed(work: Awaitable[T]) -> tuple[float, T]:
    """Returns the milliseconds that `work` took, and its result."""
    began = time.perf_counter()
    result = await work
    return (time.perf_counter() - began) * 1000, result


def figures(name: str, values_ms: list[float]) -> dict[str, float]:
    """Returns median and 99th percentile."""
    cuts = quantiles(values_ms, n=100)
    return {f"{name}_p50_ms": cuts[49], f"{name}_p99_ms": cuts[98]}


class Caller:
    """A node whose calls take no time, with the start time of each call."""

    def __init__(self, store: Store) -> None:
        self.started: dict[str, float] = {}
        self._news = asyncio.Event()
        self._store = store
        self._calls: set[asyncio.Task[None]] = set()
        self.dispatch = Dispatch(
            store,
            "node",
            calls=Calls(
                room=lambda: 30 - len(self._calls),
                start=self._start,
                holds=lambda call_id: call_id in self.started,
                hang_up=self._hang_up,
            ),
            observe=self._observe,
            wake=store.queue_filled,
            lease_ms=LEASE_MS,
        )

    async def starts(self, call_id: str) -> None:
        """Waits until the call has been started."""
        while call_id not in self.started:
            self._news.clear()
            await self._news.wait()

    async def done(self) -> None:
        """Waits until the last call has ended."""
        await asyncio.gather(*self._calls)

    def _start(self, claim: Claim) -> None:
        self.started[claim.call_id] = time.perf_counter()
        self._news.set()
        task = asyncio.create_task(self._call(claim))
        self._calls.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        self._store.queue_filled.set()

    async def _call(self, claim: Claim) -> None:
        if await self._store.arm(claim, LEASE_MS):
            await self._store.finish(claim, Outcome(status=CallStatus.COMPLETED, cause="normal"))

    async def _hang_up(self, call_ids: Iterable[str]) -> None:
        return None

    async def _observe(self) -> None:
        return None


async def fairness(store: Store, rounds: int = 20) -> dict[str, float]:
    """Measures milliseconds until a small company's call starts while a large company has a long queue."""
    caller = Caller(store)
    running = asyncio.create_task(caller.dispatch.run_claims())
    waits_ms = []
    try:
        for number in range(rounds):
            await asyncio.sleep(0.1)
            asked = time.perf_counter()
            row = await store.enqueue(call_of(SMALL, 90_000_000 + number))
            await asyncio.wait_for(caller.starts(row.id), 30)
            waits_ms.append((caller.started[row.id] - asked) * 1000)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await caller.done()
    return {"fairness_p50_ms": sorted(waits_ms)[rounds // 2], "fairness_max_ms": max(waits_ms)}


async def measure(url: str, folder: Path, plan: Plan) -> dict[str, float]:
    """Measures all figures of one database."""
    db = await open_database(url, folder)
    async with Store(db) as store:
        await store.sync_file(settings())
        result = await enqueueing(store, plan.enqueued)
        await db.write(forget)
        await fill(db, plan.behind, "behind")
        result |= await fairness(store)
        await db.write(forget)
        await fill(db, plan.queue, "queue")
        await db.write(lambda tx: tx.run("ANALYZE"))
        result |= await claiming(store, plan.claims)
    return result


def forget(tx: Tx) -> int:
    """Empties the queue."""
    return tx.run("UPDATE calls SET stage = 'FINISHED' WHERE stage <> 'FINISHED'")


async def both(plan: Plan) -> dict[str, dict[str, float]]:
    """Measures both databases."""
    cluster = Cluster()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return {
                "SQLite": await measure("", Path(folder), plan),
                "PostgreSQL": await measure(cluster.new_database(migrated=False), Path(folder), plan),
            }
    finally:
        cluster.remove()


@click.command()
@click.option("--short", is_flag=True, help="Fill a tenth of the queue, about two minutes.")
def main(short: bool) -> None:
    """The queue: calls in, calls claimed, and who waits for whom."""
    plan = SHORT if short else FULL
    engines = asyncio.run(both(plan))
    names = list(next(iter(engines.values())))
    report.show(
        f"Queue of {plan.queue:,} calls",
        ["", *engines],
        [[name, *(engine[name] for engine in engines.values())] for name in names],
    )
    report.save("store", {"queue": plan.queue, "behind": plan.behind, "engines": engines})
