"""Holds the calls of this node, by phone and in rooms: finds, drains and ends these, and writes their
outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from mediaserver.admin.directory import Directory
from mediaserver.calls.active_calls import ActiveCalls
from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.inbound import Inbound
from mediaserver.calls.services import CallServices
from mediaserver.engine_pool.pool import Engines
from mediaserver.node.free_memory import after_calls
from mediaserver.rooms.registry import open_room_registry
from sip.endpoint import Endpoint

log = logging.getLogger(__name__)

GOODBYE_S = 2.0
"""Seconds that `end` waits for the far ends to answer the hang-up."""

WRITE_S = 5.0
"""Seconds that `end` waits for the outcomes to be written, more than a reachable database needs."""


class LiveCalls:
    """The calls by phone (`phone`, and `inbound`, which answers) and those in rooms (`rooms`, None without
    rooms.api_secret). Raises `RoomFull`, and OSError where the rooms have no UDP port."""

    def __init__(
        self, directory: Directory, *, endpoint: Endpoint, engines: Engines, services: CallServices, node: str
    ) -> None:
        self.phone = ActiveCalls(directory, endpoint=endpoint, engines=engines, services=services)
        self.inbound = Inbound(
            directory, endpoint=endpoint, services=services, active_calls=self.phone, node=node
        )
        self.rooms = open_room_registry(
            directory,
            engines=engines,
            services=services,
            pacer=endpoint.pacer,
            planes=endpoint.media.planes,
            node=node,
        )
        if self.rooms is not None:
            self.rooms.phone_call = self.phone.call
        self.journal = services.journal
        self.traces = services.traces
        self.events = services.live_events
        self._endpoint = endpoint

    def count(self) -> int:
        """Returns how many calls this node has."""
        return len(self.phone) + (len(self.rooms) if self.rooms is not None else 0)

    async def free_memory(self) -> None:
        """Gives free memory back to the system, now and whenever calls have ended; until cancelled."""
        await after_calls(self.count)

    def find(self, call_id: str) -> CallDetailRecord | None:
        """Returns the record of the call `call_id`, None where this node does not have the call."""
        return self.phone.find(call_id) or (self.rooms.find(call_id) if self.rooms is not None else None)

    def trace(self, call_id: str) -> list[dict[str, Any]]:
        """Returns the traces of the call's telephones that are not in the store yet."""
        return self.traces.live(call_id) if self.traces is not None else []

    def holds(self, call_id: str) -> bool:
        """Whether this node has the call `call_id`."""
        return self.find(call_id) is not None

    async def hang_up(self, call_ids: Iterable[str]) -> None:
        """Ends those calls of `call_ids` that this node has."""
        call_ids = tuple(call_ids)
        await self.phone.hang_up(call_ids)
        if self.rooms is not None:
            await self.rooms.hang_up(call_ids)

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new calls and waits for those in progress; False when `timeout_s` was not enough."""
        self.phone.drain()
        log.info("draining", extra={"calls": len(self.phone)})
        waits = [self.phone.empty(timeout_s)]
        if self.rooms is not None:
            waits.append(self.rooms.drain(timeout_s))
        return all(await asyncio.gather(*waits))

    async def end(self) -> None:
        """Ends every call, closes the endpoint, and writes the outcomes of the calls."""
        if self.rooms is not None:
            await self.rooms.close()
        await self.phone.give_up_all()
        await self.phone.empty(GOODBYE_S)
        await self._endpoint.close()  # ends the rest: calls whose far end answers nothing, not even CANCEL
        await self.phone.empty(WRITE_S)
        await self.phone.close()
        if self.traces is not None:
            self.traces.flush()
        if not await self.journal.flush(WRITE_S):
            lost = {"events": len(self.journal), "calls": self.journal.calls()}
            log.error("call events lost: the database is away", extra=lost)
