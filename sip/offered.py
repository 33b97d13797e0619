"""Queues incoming calls for the application, and times how long each waits for a response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from sip.call import Call
from sip.dialog.dialog import DialogSetId
from sip.dialog.invite import Offered
from sip.stack.admission import Admitted
from sip.states import CallState
from sip.telephones.forking import AnyInvite
from sip.trunk import Trunk


class OfferedCalls:
    """Calls in state OFFERED; `len` counts those that are neither answered nor refused. Bounded by
    `max_calls`. Those that take the place of one in `calls`, the calls of `trunks`, are offered to whose that
    is."""

    def __init__(
        self, calls: Mapping[DialogSetId, tuple[AnyInvite, Call]], trunks: Mapping[str, Trunk]
    ) -> None:
        self._calls, self._trunks = calls, trunks
        self._queue: asyncio.Queue[Call | None] = asyncio.Queue()
        self._since: dict[Call, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def admitted_as(self, replaced: DialogSetId) -> Admitted | None:
        """Returns over which trunk an INVITE comes that is to take the place of a call: over that call's."""
        _, call = self._calls.get(replaced, (None, None))
        trunk = self._trunks.get(call.trunk_id) if call is not None else None
        return None if trunk is None else Admitted(trunk.settings.id, trunk.invite_settings)

    def put(self, call: Call, now: float, *, replaces: DialogSetId | None = None) -> None:
        """Offers `call` to the application, and notes since when it waits; one that is to take the place of
        another to that one's owner."""
        if replaces is not None:
            _, old = self._calls.get(replaces, (None, None))
            status = 481 if old is None else old.on_replace(old, call)
            if status and isinstance(call.invite, Offered):
                call.invite.reject(status, now)
            return
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
