"""Writes what happens to calls to the database: in order, and never on the media path.

A call notes an event with `note`, which is synchronous and returns at once. One task writes a call's events
in the order noted, and the next events of several calls together: a database commits them for the price of
one. Events that only inform (a turn) wait up to `GATHERED_S` for company; those that decide a call's outcome
(`essential`) and those that make room for a call do not. While the database is away the calls go on and the
events wait, at most `limit` of them. Beyond that, events that only inform are dropped and counted. The
essential ones are kept; every live call has at most a handful."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice

from mediaserver.errors import StoreUnavailable
from pipeline.errors import boundary

log = logging.getLogger(__name__)

Write = Callable[[], Awaitable[object]]

LIMIT = 20_000
"""Events kept while the database is away: 100 calls with a turn every four seconds for over ten minutes."""

TOGETHER = 16
"""Calls whose next event is written at the same time."""

LOOK_AHEAD = 128
"""How many waiting entries are searched for calls whose events can be written together."""

GATHERED_S = 0.25
"""How long an event that only informs waits for others, to be committed with them."""

RETRY_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts; the last one repeats."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One event to be written: `write` may run more than once, until it returned or failed permanently."""

    call_id: str
    name: str
    write: Write
    done: Callable[[], None] | None = None


class Journal:
    """Writes call events in order. `run` is its task; `flush` waits until everything noted is written."""

    def __init__(
        self,
        *,
        limit: int = LIMIT,
        dropped: Callable[[], object] | None = None,
        retry_s: tuple[float, ...] = RETRY_S,
    ) -> None:
        self._limit = limit
        self._dropped = dropped
        self._retry_s = retry_s
        self._entries: deque[Entry] = deque()
        self._noted = asyncio.Event()
        self._pressing = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.failing = False

    def __len__(self) -> int:
        return len(self._entries)

    def calls(self) -> list[str]:
        """Returns the calls with events that are not written yet."""
        return list(dict.fromkeys(entry.call_id for entry in self._entries))

    def note(
        self,
        call_id: str,
        name: str,
        write: Write,
        *,
        essential: bool = False,
        at_once: bool = False,
        done: Callable[[], None] | None = None,
    ) -> bool:
        """Queues an event; `done` is called when the event was written or given up. `at_once`: it waits for
        no company, since it makes room for a call. False: given up at once."""
        if len(self._entries) >= self._limit and not essential:
            if self._dropped is not None:
                self._dropped()
            return False
        self._entries.append(Entry(call_id, name, write, done))
        self._empty.clear()
        self._noted.set()
        if essential or at_once:
            self._pressing.set()
        return True

    async def run(self) -> None:
        """Writes entries until cancelled; after a failure it pauses by `RETRY_S` and goes on."""
        attempt = 0
        while True:
            await self._noted.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHERED_S):
                    await self._pressing.wait()
            while self._entries:
                if await self._write_some():
                    attempt, self.failing = 0, False
                    continue
                self.failing = True
                await asyncio.sleep(self._retry_s[min(attempt, len(self._retry_s) - 1)])
                attempt += 1
            self._noted.clear()
            self._pressing.clear()
            self._empty.set()

    async def _write_some(self) -> bool:
        """Writes the next events; True when all of them were written."""
        following = self._following()
        written = await asyncio.gather(*(self._write(entry) for entry in following))
        for entry, done in zip(following, written, strict=True):
            if done:
                self._over(entry)
        return all(written)

    def _following(self) -> list[Entry]:
        """Returns the events to write next: the first of each of some calls, or a single one while the
        database is away."""
        firsts: dict[str, Entry] = {}
        for entry in islice(self._entries, 1 if self.failing else LOOK_AHEAD):
            firsts.setdefault(entry.call_id, entry)
            if len(firsts) == TOGETHER:
                break
        return list(firsts.values())

    def _over(self, entry: Entry) -> None:
        self._entries.remove(entry)
        if entry.done is not None:
            entry.done()

    async def flush(self, timeout_s: float) -> bool:
        """Waits until everything noted so far is written; False when `timeout_s` was not enough."""
        self._pressing.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        return self._empty.is_set()

    async def _write(self, entry: Entry) -> bool:
        """Writes an event. True: written, or given up for good; False: to be tried later."""
        with boundary(log, "call event lost", **self._fields(entry)):
            try:
                await entry.write()
            except StoreUnavailable:
                if not self.failing:
                    log.exception("database away, call events wait", extra=self._fields(entry))
                self.failing = True
                return False
        return True

    def _fields(self, entry: Entry) -> dict[str, object]:
        return {"call_id": entry.call_id, "event": entry.name, "waiting": len(self._entries)}
