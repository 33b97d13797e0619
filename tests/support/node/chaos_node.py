"""A node of the chaos test: the server's dispatch loop on a real store, with a file for a carrier.

    python -m tests.support.node.chaos_node URL CARRIER LEASE_MS ARMING

Every INVITE is a line in the file CARRIER. ARMING "no" dials without arming: the ordinary queue that the test
must be able to convict.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from mediaserver.calls.dispatch import Calls, Dispatch
from mediaserver.errors import StoreError
from mediaserver.queue.records import CallStatus, Claim, Outcome
from mediaserver.store.store import Store

PLACES = 10
TALK_S = 0.08


class Node:
    """Claims calls, dials them, ends them, until it is killed."""

    def __init__(self, store: Store, carrier: Path, *, lease_ms: int, arms: bool) -> None:
        self.name = f"node-{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._store = store
        self._carrier = os.open(carrier, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._lease_ms = lease_ms
        self._arms = arms
        self._live: dict[asyncio.Task[None], str] = {}
        self._dispatch = Dispatch(
            store,
            self.name,
            calls=Calls(
                room=lambda: PLACES - len(self._live),
                start=self._start,
                holds=lambda call_id: call_id in self._live.values(),
                hang_up=self._hang_up,
            ),
            observe=self._observe,
            wake=store.queue_filled,
            lease_ms=lease_ms,
        )

    async def run(self) -> None:
        """Works until killed."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._dispatch.run_claims())
            loops.create_task(self._dispatch.run_leases())

    def _start(self, claim: Claim) -> None:
        task = asyncio.create_task(self._call(claim))
        self._live[task] = claim.call_id
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._live.pop(task)
        self._store.queue_filled.set()
        if task.exception() is not None:
            raise SystemExit(f"a call failed: {task.exception()!r}")

    async def _call(self, claim: Claim) -> None:
        if self._arms and not await self._armed(claim):
            return
        os.write(self._carrier, f"{claim.call_id} {self.name}\n".encode())
        await asyncio.sleep(random.random() * TALK_S)
        status = CallStatus.COMPLETED if self._arms else CallStatus.FAILED
        await written(lambda: self._store.finish(claim, Outcome(status=status, cause="normal")))

    async def _armed(self, claim: Claim) -> bool:
        """As a live call does it (`mediaserver.calls.phone_call`)."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            armed = await self._store.arm(claim, self._lease_ms)
        except StoreError:
            await written(lambda: self._store.release(claim))
            return False
        if armed and loop.time() - asked > self._lease_ms / 2000:
            await written(lambda: self._store.release(claim))
            return False
        return armed

    async def _hang_up(self, call_ids: Iterable[str]) -> None:
        return None

    async def _observe(self) -> None:
        return None


async def written(write: Callable[[], Awaitable[object]]) -> None:
    """Writes, however long the database is away."""
    while True:
        try:
            await write()
        except StoreError:
            await asyncio.sleep(0.2)
        else:
            return


async def opened(url: str) -> Store:
    """The store, as soon as it can be opened."""
    while True:
        try:
            return await Store.open(url, Path())
        except StoreError:
            await asyncio.sleep(0.2)


async def main(url: str, carrier: str, lease_ms: str, arming: str) -> None:
    """Runs a node."""
    store = await opened(url)
    node = Node(store, Path(carrier), lease_ms=int(lease_ms), arms=arming == "yes")
    print(node.name, flush=True)
    await node.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
