"""What happens to calls, on its way to the database: in order, and never on the media path.

A call notes an event by a synchronous, immediate `note`; one task writes them in the order noted. While the
database is away the calls go on and the events wait, at most `limit` of them: beyond that, events that only
inform (a turn) are given up and counted, while those that decide what a call became (`essential`) are kept,
of which every live call has at most a handful.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mediaserver.errors import StoreUnavailable

log = logging.getLogger(__name__)

Write = Callable[[], Awaitable[object]]

LIMIT = 20_000
"""Events kept while the database is away: 100 calls with a turn every four seconds for over ten minutes."""

RETRY_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts; the last one repeats."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One event to be written: `write` may run more than once, until it has returned or failed for good."""

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
        self._empty = asyncio.Event()
        self._empty.set()
        self.failing = False

    def __len__(self) -> int:
        return len(self._entries)

    def note(
        self,
        call_id: str,
        name: str,
        write: Write,
        *,
        essential: bool = False,
        done: Callable[[], None] | None = None,
    ) -> bool:
        """Takes an event; `done` is called when it was written or given up. False: given up at once."""
        if len(self._entries) >= self._limit and not essential:
            if self._dropped is not None:
                self._dropped()
            return False
        self._entries.append(Entry(call_id, name, write, done))
        self._empty.clear()
        self._noted.set()
        return True

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._noted.wait()
            while self._entries:
                await self._write(self._entries[0])
                entry = self._entries.popleft()
                if entry.done is not None:
                    entry.done()
            self._noted.clear()
            self._empty.set()

    async def flush(self, timeout_s: float) -> bool:
        """Waits until everything noted so far is written; False when `timeout_s` was not enough."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        return self._empty.is_set()

    async def _write(self, entry: Entry) -> None:
        attempt = 0
        while True:
            try:
                await entry.write()
            except StoreUnavailable:
                if not self.failing:
                    log.exception("database away, call events wait", extra=self._fields(entry))
                self.failing = True
                await asyncio.sleep(self._retry_s[min(attempt, len(self._retry_s) - 1)])
                attempt += 1
            except Exception:
                log.exception("call event lost", extra=self._fields(entry))
                return
            else:
                self.failing = False
                return

    def _fields(self, entry: Entry) -> dict[str, object]:
        return {"call_id": entry.call_id, "event": entry.name, "waiting": len(self._entries)}
