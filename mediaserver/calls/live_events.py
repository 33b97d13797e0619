"""What happens in the calls of this node, told to whoever listens: bounded, and free where nobody does.

A call tells by a method that appends to the queues of those who may know; nothing waits, and nothing is made
into text before somebody reads it. An event is kept in a ring for a reader who comes back (`Last-Event-ID`),
for `RESUME_S`: what a call said is not here when it is erased. The ring goes on for as long after the last
reader has left; without readers nothing at all is kept."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mediaserver.admin.access import Access
from mediaserver.errors import TooMany, Unavailable

WAITING = 500
"""The most events that wait for one reader; the oldest goes, and the reader is told how many went."""

RING = 2000
"""The most events kept for readers that come back."""

RESUME_S = 60.0
"""How long an event is kept, and how long events are kept at all after the last reader has left."""

READERS = 100
READERS_OF_COMPANY = 20
"""The most readers at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEvent:
    """Something that happened in a call. `number` counts the events of this run of the node."""

    number: int
    kind: str
    at_ms: int
    call_id: str
    company_id: str
    agent_id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """Events that a reader has not got: `count` of them, or (None) nobody knows how many."""

    count: int | None


class LiveReader:
    """One reader's queue. `get` waits for what has come."""

    def __init__(self, access: Access, wanted: Callable[[LiveEvent], bool]) -> None:
        self.access = access
        self._wanted = wanted
        self._waiting: deque[LiveEvent] = deque()
        self._lost = 0
        self._unknown = False
        self._came = asyncio.Event()
        self.closed = False

    def put(self, event: LiveEvent) -> None:
        """Queues `event` if the reader may know of it and wants to."""
        if not (self.access.reaches(event) and self._wanted(event)):
            return
        if len(self._waiting) == WAITING:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(event)
        self._came.set()

    def gap(self) -> None:
        """Notes that what was asked for is not kept any more."""
        self._unknown = True
        self._came.set()

    def close(self) -> None:
        """Ends the reading: `get` returns at once from now on."""
        self.closed = True
        self._came.set()

    async def get(self) -> list[LiveEvent | Lost]:
        """Returns what has come, the loss before it, waiting for the first; [] when the reading has ended."""
        await self._came.wait()
        self._came.clear()
        found: list[LiveEvent | Lost] = []
        if self._unknown or self._lost:
            found.append(Lost(None if self._unknown else self._lost))
        found += self._waiting
        self._waiting.clear()
        self._lost, self._unknown = 0, False
        return found


@dataclass
class LiveEvents:
    """The events of this node's calls. `clock`: seconds of a clock that never goes back."""

    clock: Callable[[], float] = time.monotonic
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """Names this run of the node: events of another are not in the ring."""

    def __post_init__(self) -> None:
        self._readers: list[LiveReader] = []
        self._ring: deque[tuple[float, LiveEvent]] = deque(
            maxlen=RING
        )  # with the time until which it is kept
        self._number = 0
        self._until = 0.0
        self._closed = False

    @property
    def heard(self) -> bool:
        """Whether anybody listens, or may come back; nothing need be told otherwise."""
        if self._readers:
            return True
        if self._ring and self.clock() >= self._until:
            self._ring.clear()
        return self._until > self.clock()

    def _forget(self, now: float) -> None:
        while self._ring and self._ring[0][0] <= now:
            self._ring.popleft()

    def tell(self, kind: str, of: Any, at_ms: int, data: Mapping[str, Any]) -> None:
        """Tells of an event in a call; `of` is its claim."""
        if not self.heard:
            return
        self._number += 1
        event = LiveEvent(
            number=self._number,
            kind=kind,
            at_ms=at_ms,
            call_id=of.call_id,
            company_id=of.company_id,
            agent_id=of.agent_id,
            data=data,
        )
        now = self.clock()
        self._forget(now)
        self._ring.append((now + RESUME_S, event))
        for reader in self._readers:
            reader.put(event)

    def listen(
        self, access: Access, *, after: str = "", wanted: Callable[[LiveEvent], bool] = lambda event: True
    ) -> LiveReader:
        """Opens a reader, which `leave` closes. `after`: the id of the last event that it had. Raises
        `TooMany`, and `Unavailable` while the node stops."""
        if self._closed:
            raise Unavailable("The server is stopping")
        theirs = sum(each.access.company_id == access.company_id for each in self._readers)
        if len(self._readers) >= READERS or theirs >= READERS_OF_COMPANY:
            raise TooMany("Too many readers of live events", retry_after_s=10)
        if self._number and not self.heard:
            self._number += 1  # stands for what nobody was told meanwhile
        reader = LiveReader(access, wanted)
        if after:
            self._catch_up(reader, after)
        self._readers.append(reader)
        return reader

    def leave(self, reader: LiveReader) -> None:
        """Takes a reader off the list; `tell` no longer fills its queue."""
        if reader in self._readers:
            self._readers.remove(reader)
            self._until = self.clock() + RESUME_S

    def close(self) -> None:
        """Ends every reading, because the node stops."""
        self._closed = True
        for reader in self._readers:
            reader.close()

    def id_of(self, event: LiveEvent) -> str:
        """Returns the id by which a reader goes on after `event`."""
        return f"{self.run}-{event.number}"

    def _catch_up(self, reader: LiveReader, after: str) -> None:
        run, _, number = after.rpartition("-")
        known = run == self.run and number.isascii() and number.isdigit() and len(number) < 16
        last = int(number) if known else -1
        self._forget(self.clock())
        oldest = self._ring[0][1].number if self.heard and self._ring else self._number + 1
        if not oldest - 1 <= last <= self._number:
            reader.gap()
            return
        for _, event in self._ring:
            if event.number > last:
                reader.put(event)
