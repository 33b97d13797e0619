"""Queues incoming calls for the application, and times how long each waits for a response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sip.call import Call
from sip.states import CallState


class OfferedCalls:
    """Calls in state OFFERED; `len` counts those that are neither answered nor refused. Bounded by
    `max_calls`."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Call | None] = asyncio.Queue()
        self._since: dict[Call, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def put(self, call: Call, now: float) -> None:
        """Offers `call` to the application, and notes since when it waits."""
        self._since[call] = now
        call.on_state(self._decided)
        self._queue.put_nowait(call)

    def end(self) -> None:
        """Ends `taken`, after the calls offered before."""
        self._queue.put_nowait(None)

    async def taken(self) -> AsyncIterator[Call]:
        """Yields each call that has not ended, until `end`."""
        while (call := await self._queue.get()) is not None:
            if call.cause is None:
                yield call
            del call  # the reference would keep the call alive until the next one
        self.end()  # for the next iterator of `taken`

    def longest_wait_s(self, now: float) -> float:
        """Returns the seconds since which the longest-waiting caller has had no response, 0 where none
        waits."""
        since = next(iter(self._since.values()), None)
        return 0.0 if since is None else now - since

    def _decided(self, call: Call, state: CallState, now: float) -> None:
        self._since.pop(call, None)
