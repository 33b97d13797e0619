"""Runs the live phone calls of this node: one task each, capacity, and the ways to end them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

from mediaserver.admin.directory import Directory
from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.phone_call import PhoneCall, PhoneCallState
from mediaserver.calls.services import CallProfile, CallServices
from mediaserver.calls.trunk_hunt import Line, line_of, lines_of
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import InvalidRequest
from mediaserver.queue.records import CallStatus, Claim, Outcome
from mediaserver.settings import AgentSettings
from pipeline.errors import EngineMissing
from sip.call import Call
from sip.endpoint import Endpoint

log = logging.getLogger(__name__)

PATIENCE = 10
"""Claims of a call until a node that lacks its agent, trunk or engine ends it: an agent made on another node
is known here within seconds, and an engine may still be loading."""

PAUSE_MS = 1000
"""Milliseconds until a call that this node could not place may be claimed again."""


class ActiveCalls:
    """Runs calls. The store's queue is woken whenever one has ended."""

    def __init__(
        self, directory: Directory, *, endpoint: Endpoint, engines: Engines, services: CallServices
    ) -> None:
        self._directory = directory
        self._endpoint = endpoint
        self._engines = engines
        self._services = services
        self._live: dict[str, PhoneCall] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._draining = False

    def __len__(self) -> int:
        return len(self._live)

    def room(self) -> int:
        """Returns how many more calls this node takes."""
        return self._directory.sip.max_calls - max(len(self._live), len(self._endpoint.calls))

    def held_for(self, company_id: str) -> int:
        """Returns how many calls of a company this node has."""
        return sum(live.cdr.claim.company_id == company_id for live in self._live.values())

    def find(self, call_id: str) -> CallDetailRecord | None:
        """Returns the record of the live call `call_id`, None where this node does not have it."""
        live = self._live.get(call_id)
        return live.cdr if live is not None else None

    def dial(self, claim: Claim) -> None:
        """Starts a claimed call; returns at once."""
        if self._draining:
            self._release(claim, "this node takes no more calls")
            return
        agent = self._directory.agent(claim.agent_id)
        settings = self._directory.trunk(claim.trunk_id)
        if agent is None or settings is None or claim.trunk_id not in self._endpoint.trunks:
            self._refuse(claim, "the agent or its trunk is not configured any more")
            return
        try:
            profile = CallProfile.of(agent, self._engines)
        except EngineMissing as missing:
            self._refuse(claim, str(missing))
            return
        live = PhoneCall(claim, profile, self._services)
        number, dial_number = claim.phone_number, claim.dial_number
        first = line_of(self._directory, agent, settings, number=number, dial_number=dial_number)
        self._start(live, live.dial(self._endpoint, (first, *self._spare(agent, claim))))

    def _spare(self, agent: AgentSettings, claim: Claim) -> list[Line]:
        """Returns the further trunks that carry the number of a claim."""
        with suppress(InvalidRequest):
            lines = lines_of(self._directory, agent, claim.phone_number)
            return [line for line in lines if line.trunk.id != claim.trunk_id]
        return []

    def check(self, agent: AgentSettings) -> None:
        """Checks that `agent` can take calls on this node. Raises `EngineMissing`."""
        self._engines.agent_engines(agent.id)

    def take(self, claim: Claim, agent: AgentSettings, call: Call) -> None:
        """Answers an inbound call that was recorded; returns at once. Raises `EngineMissing`."""
        live = PhoneCall(
            claim, CallProfile.of(agent, self._engines), self._services, state=PhoneCallState.PLACING
        )
        self._start(live, live.take(call))

    async def hang_up(self, call_ids: Iterable[str]) -> None:
        """Ends those calls of `call_ids` that this node has."""
        live = [self._live[call_id] for call_id in call_ids if call_id in self._live]
        await asyncio.gather(*(each.hang_up() for each in live), return_exceptions=True)

    def drain(self) -> None:
        """Stops dialling claimed calls: those that are not armed go back to the queue."""
        self._draining = True
        for live in self._live.values():
            live.give_back()

    async def give_up_all(self) -> None:
        """Ends every call, because the node stops."""
        self.drain()
        live = tuple(self._live.values())
        await asyncio.gather(*(each.give_up() for each in live), return_exceptions=True)

    async def empty(self, timeout_s: float) -> bool:
        """Waits until all calls have ended; False when `timeout_s` was not enough."""
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_s)
        return not self._tasks

    async def close(self) -> None:
        """Cancels calls whose outcome could not be written; the ledger marks them UNKNOWN."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, live: PhoneCall, run: Coroutine[Any, Any, None]) -> None:
        self._live[live.cdr.call_id] = live
        self._services.metrics.active_calls.set(len(self._live))
        task = asyncio.create_task(run, name=f"call {live.cdr.call_id}")
        self._tasks[live.cdr.call_id] = task
        task.add_done_callback(lambda done: self._over(live, done))

    def _over(self, live: PhoneCall, task: asyncio.Task[None]) -> None:
        self._live.pop(live.cdr.call_id, None)
        self._tasks.pop(live.cdr.call_id, None)
        self._services.metrics.active_calls.set(len(self._live))
        if not task.cancelled() and task.exception() is not None:
            log.error("call task failed", extra={"call_id": live.cdr.call_id}, exc_info=task.exception())
        self._services.store.queue_filled.set()

    def _refuse(self, claim: Claim, reason: str) -> None:
        if claim.epoch < PATIENCE:
            self._release(claim, reason, pause_ms=PAUSE_MS)
            return
        log.error("call cannot be placed here", extra={"call_id": claim.call_id, "reason": reason})
        outcome = Outcome(status=CallStatus.FAILED, cause="not_configured", error=reason)
        CallDetailRecord(claim, self._services).finish(outcome, "outbound")

    def _release(self, claim: Claim, reason: str, *, pause_ms: int = 0) -> None:
        log.warning("call given back", extra={"call_id": claim.call_id, "reason": reason})
        store = self._services.store
        self._services.journal.note(
            claim.call_id, "release", lambda: store.release(claim, pause_ms=pause_ms), essential=True
        )
