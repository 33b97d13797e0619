"""Several nodes on one database, and somebody who kills, stops and unplugs them."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mediaserver.errors import StoreError
from mediaserver.queue.records import NewCall
from mediaserver.queue.requests import NewBatch, Repeatable
from mediaserver.store.store import Store
from tests.support.node.store import agent_of, company, open_at, settings, trunk_of

LEASE_MS = 1500
STOP_S = 2.5
"""Longer than a lease: the node that wakes up holds what is others' by then."""

NODES = 3
WAITING = 150
"""Calls kept in the queue."""

PER_BATCH = 20
COMPANIES = ("acme", "zenith")

UNKNOWN = """
SELECT node FROM attempts WHERE status = 'UNKNOWN'
"""

STUCK_S = 60.0
"""Nodes that have ended no call for so long will end none: forty leases."""


@dataclass
class Process:
    """A node and how it is doing."""

    process: asyncio.subprocess.Process
    name: str = ""

    async def started(self) -> None:
        """Waits until it works."""
        assert self.process.stdout is not None
        self.name = (await self.process.stdout.readline()).decode().strip()


@dataclass
class Story:
    """What happened."""

    killed: set[str] = field(default_factory=set)
    kills: int = 0
    stops: int = 0
    crashes: int = 0
    died: list[int] = field(default_factory=list)
    queued: int = 0


class Chaos:
    """Runs nodes on the database at `url`; `crash` takes the database away and brings it back."""

    def __init__(
        self, url: str, folder: Path, *, arming: bool = True, crash: Callable[[], None] | None = None
    ) -> None:
        self.story = Story()
        self.carrier = folder / "carrier"
        self._url = url
        self._arming = arming
        self._crash = crash
        self._nodes: list[Process] = []

    def dialled(self) -> Counter[str]:
        """How often each call was dialled."""
        if not self.carrier.exists():
            return Counter()
        return Counter(line.split()[0] for line in self.carrier.read_text().splitlines())

    def living(self) -> list[int]:
        """The process of each node that has not ended."""
        return [each.process.pid for each in self._nodes if each.process.returncode is None]

    async def run(
        self, store: Store, *, until: Callable[[], bool], limit_s: float, drained: bool = True
    ) -> None:
        """Lets things happen until `until` is true, at the pace of the machine; then, where it is to be
        `drained`, lets the nodes finish. Raises `AssertionError` where that takes longer than `limit_s`, or
        the nodes get no further."""
        enough = asyncio.Event()
        async with self._alive(), asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(self._feed(store, enough))
            ends = time.monotonic() + limit_s
            while not until():
                assert time.monotonic() < ends, f"too little in {limit_s:.0f} s: {self.story}"
                await self._something()
            enough.set()
            await feeding  # a request that waits for the database may queue calls seconds after `enough`
            if drained:
                await self._drained(store)

    @asynccontextmanager
    async def _alive(self) -> AsyncIterator[None]:
        self._nodes = [await self._spawn() for _ in range(NODES)]
        try:
            yield
        finally:
            for node in self._nodes:
                await self._end(node)

    async def _spawn(self) -> Process:
        node = Process(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.support.node.chaos_node",
                self._url,
                str(self.carrier),
                str(LEASE_MS),
                "yes" if self._arming else "no",
                stdout=asyncio.subprocess.PIPE,
            )
        )
        await node.started()
        return node

    async def _end(self, node: Process) -> None:
        if node.process.returncode is None:
            os.kill(node.process.pid, signal.SIGKILL)
        elif node.process.returncode != -signal.SIGKILL:
            self.story.died.append(node.process.returncode)
        await node.process.wait()

    async def _something(self) -> None:
        """A kill, a stop or a crash, and some time to recover from it."""
        await asyncio.sleep(random.uniform(0.3, 1.2))
        place = random.randrange(NODES)
        what = random.random()
        if self._crash is not None and what < 0.15:
            self.story.crashes += 1
            await asyncio.to_thread(self._crash)
        elif what < 0.4:
            self.story.stops += 1
            await self._stop(self._nodes[place])
        else:
            self.story.kills += 1
            self.story.killed.add(self._nodes[place].name)
            await self._end(self._nodes[place])
            self._nodes[place] = await self._spawn()

    async def _stop(self, node: Process) -> None:
        os.kill(node.process.pid, signal.SIGSTOP)
        await asyncio.sleep(STOP_S)
        os.kill(node.process.pid, signal.SIGCONT)

    async def _feed(self, store: Store, enough: asyncio.Event) -> None:
        """Keeps some calls waiting. A request whose answer was lost is sent again, with the same key."""
        while not enough.is_set():
            try:
                counts = await store.counts()
            except StoreError:
                await asyncio.sleep(0.2)
                continue
            if counts.stages["QUEUED"] < WAITING:
                await self._put(store, COMPANIES[self.story.queued // PER_BATCH % len(COMPANIES)])
            await asyncio.sleep(0.05)

    async def _put(self, store: Store, company_id: str) -> None:
        first, key = self.story.queued, Repeatable(f"request-{self.story.queued}", "0" * 64)
        batch = NewBatch(
            company_id=company_id,
            agent_id=agent_of(company_id),
            webhook_id=f"wh-{first}",
            items=[call_of(company_id, number) for number in range(first, first + PER_BATCH)],
        )
        while True:
            try:
                await store.enqueue_batch(batch, repeatable=key)
            except StoreError:
                await asyncio.sleep(0.2)
            else:
                self.story.queued += PER_BATCH
                return

    async def _drained(self, store: Store) -> None:
        """Waits until no call is open or to be told by a node that lives, as long as they become fewer."""
        fewest, since = await self._untold(store), time.monotonic()
        while fewest:
            await asyncio.sleep(0.3)
            left = await self._untold(store)
            if left < fewest:
                fewest, since = left, time.monotonic()
            assert time.monotonic() < since + STUCK_S, f"{fewest:.0f} calls stay open"

    async def _untold(self, store: Store) -> float:
        """How many calls are open, or UNKNOWN of a node that nobody killed: that one was stopped, or without
        its database, for longer than its lease, and still tells what became of them. Infinitely many where
        the database does not say."""
        try:
            still_open = sum((await store.counts()).stages.values())
            return still_open + len([node for node in await self._unknown() if node not in self.story.killed])
        except (StoreError, OSError):
            return math.inf

    async def _unknown(self) -> list[str]:
        """The node of each call that is UNKNOWN."""
        db = await open_at(self._url)
        try:
            return await db.read(lambda tx: [str(row["node"]) for row in tx.rows(UNKNOWN)])
        finally:
            await db.close()


def call_of(company_id: str, number: int) -> NewCall:
    """A call to a number of its own."""
    text = f"+9665{number:08d}"
    return NewCall(
        company_id=company_id,
        agent_id=agent_of(company_id),
        trunk_id=trunk_of(company_id),
        phone_number=text,
        dial_number=text,
        webhook_id="wh",
    )


async def prepared(url: str, companies: Sequence[str] = COMPANIES) -> Store:
    """The store at `url` with the companies in it."""
    store = await Store.open(url, Path())
    await store.sync_file(settings(*[company(name, concurrent=20) for name in companies]))
    return store
