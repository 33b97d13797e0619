"""The loop that pulls the ledger: room, outages, wishes of other nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from mediaserver.calls.dispatch import BATCH, LEASE_MS, Calls, Dispatch
from mediaserver.errors import StoreUnavailable
from mediaserver.queue.records import Claim, Reaped, Renewal
from tests.support import claims


def claim(number: int) -> Claim:
    return claims.claim(call_id=str(number), node="me")


@dataclass
class Queue:
    """A ledger with calls waiting in it."""

    waiting: list[Claim]
    away: bool = False
    limits: list[int] = field(default_factory=list)
    renewals: list[Renewal] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    unheld: frozenset[str] = frozenset()
    reaped: int = 0
    ended: Reaped = field(default_factory=lambda: Reaped((), ()))

    async def claim(self, node: str, limit: int, ttl_ms: int) -> list[Claim]:
        self._answer()
        self.limits.append(limit)
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    async def held(self, node: str) -> list[str]:
        self._answer()
        return self.listed

    async def renew(self, node: str, ttl_ms: int, *, unheld: frozenset[str]) -> list[Renewal]:
        self._answer()
        self.unheld = unheld
        return self.renewals

    async def pending_hangups(self, node: str) -> list[str]:
        self._answer()
        return self.wanted

    async def reap_expired(self) -> Reaped:
        self._answer()
        self.reaped += 1
        return self.ended

    def _answer(self) -> None:
        if self.away:
            raise StoreUnavailable("locked")


class Node:
    """A dispatch loop with a number of places."""

    def __init__(self, queue: Queue, places: int, *, lease_ms: int = LEASE_MS) -> None:
        self.places = places
        self.started: list[str] = []
        self.hung_up: list[str] = []
        self.wake = asyncio.Event()
        self.dispatch = Dispatch(
            queue,
            "me",
            calls=Calls(
                room=lambda: self.places - len(self.started),
                start=lambda taken: self.started.append(taken.call_id),
                holds=lambda call_id: call_id in self.started,
                hang_up=self._hang_up,
            ),
            observe=self._observe,
            wake=self.wake,
            lease_ms=lease_ms,
        )

    async def _hang_up(self, call_ids: Iterable[str]) -> None:
        self.hung_up += call_ids

    async def _observe(self) -> None:
        return None


@asynccontextmanager
async def claiming(node: Node) -> AsyncIterator[None]:
    task = asyncio.create_task(node.dispatch.run_claims())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def soon(node: Node, count: int) -> None:
    async with asyncio.timeout(30):
        while len(node.started) < count:
            await asyncio.sleep(0)


async def test_a_long_queue_is_taken_in_batches_and_in_order() -> None:
    queue = Queue([claim(number) for number in range(40)])
    node = Node(queue, places=100)
    async with claiming(node):
        await soon(node, 40)
    assert node.started == [str(number) for number in range(40)]
    assert max(queue.limits) == BATCH


async def test_no_more_is_claimed_than_there_is_room_for() -> None:
    queue = Queue([claim(number) for number in range(10)])
    node = Node(queue, places=3)
    async with claiming(node):
        await soon(node, 3)
        await asyncio.sleep(0.01)
        assert (node.started, len(queue.waiting)) == (["0", "1", "2"], 7)
        node.places = 4
        node.wake.set()
        await soon(node, 4)
        await asyncio.sleep(0.01)
    assert len(queue.waiting) == 6


async def test_a_node_without_room_claims_nothing() -> None:
    queue = Queue([claim(1)])
    node = Node(queue, places=0)
    async with claiming(node):
        await asyncio.sleep(0.01)
    assert queue.limits == []


async def test_an_outage_is_told_until_it_is_over() -> None:
    queue = Queue([claim(1)], away=True)
    node = Node(queue, places=1)
    async with claiming(node):
        await asyncio.sleep(0.01)
        assert node.dispatch.database_missing == "locked"
        queue.away = False
        node.wake.set()
        await soon(node, 1)
    assert node.dispatch.database_missing == ""


async def test_the_lease_loop_notices_an_outage_too() -> None:
    queue = Queue([], away=True)
    node = Node(queue, places=1)
    await node.dispatch.renew_once()
    assert node.dispatch.database_missing == "locked"


async def test_calls_whose_end_another_node_asked_for_are_hung_up() -> None:
    queue = Queue([], renewals=[Renewal("1", 1, False), Renewal("2", 1, True)])
    node = Node(queue, places=1)
    await node.dispatch.renew_once()
    assert node.hung_up == ["2"]


async def test_calls_whose_end_another_node_asked_for_need_not_wait_for_the_renewal() -> None:
    queue = Queue([], wanted=["7"])
    node = Node(queue, places=1)
    async with claiming(node):
        await asyncio.sleep(0.01)
    assert node.hung_up == ["7"]


async def test_leases_that_ran_out_during_an_outage_are_given_time_to_be_renewed() -> None:
    queue = Queue([])
    node = Node(queue, places=1, lease_ms=60_000)
    await node.dispatch.renew_once()
    assert queue.reaped == 1
    queue.away = True
    await node.dispatch.renew_once()
    queue.away = False
    await node.dispatch.renew_once()
    assert (queue.reaped, node.dispatch.database_missing) == (1, "")


async def test_a_lease_after_the_outage_they_are_reaped_again() -> None:
    queue = Queue([], away=True)
    node = Node(queue, places=1, lease_ms=1)
    await node.dispatch.renew_once()
    queue.away = False
    await asyncio.sleep(0.002)
    await node.dispatch.renew_once()
    assert queue.reaped == 1


async def test_a_claim_that_this_node_never_heard_of_is_left_to_run_out() -> None:
    queue = Queue([claim(1)], listed=["1", "2"])
    node = Node(queue, places=2)
    async with claiming(node):
        await soon(node, 1)
    await node.dispatch.renew_once()
    assert queue.unheld == {"2"}


async def test_calls_that_others_left_behind_end_in_the_log_with_a_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    queue = Queue([], ended=Reaped(("7",), ("8",), ("9",)))
    with caplog.at_level(logging.WARNING, "mediaserver"):
        await Node(queue, places=1).dispatch.renew_once()
    told = [vars(each) for each in caplog.records if each.getMessage() == "call ended"]
    assert [(each["call_id"], each["status"], each["cause"]) for each in told] == [
        ("8", "UNKNOWN", "node_lost"),
        ("9", "CANCELLED", "company_removed"),
    ]
