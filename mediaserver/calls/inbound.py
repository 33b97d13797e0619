"""Inbound calls: which agent answers a number, and the row in the database before the agent does.

While the database is away calls are answered all the same, by the last known configuration, and written when
the database is back (`mediaserver.calls.journal`). The configuration file is always known. Settings
managed over the API are those that this node last read, and are used for `KNOWN_S` at most."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence

from mediaserver.admin.directory import Directory
from mediaserver.calls.active_calls import ActiveCalls
from mediaserver.calls.services import CallServices
from mediaserver.calls.signalling.fields import received, variables
from mediaserver.errors import MediaServerError, RuleBroken, StoreError
from mediaserver.numbers.users import USER
from mediaserver.queue.ledger import inbound_claim
from mediaserver.queue.records import Claim, NewInboundCall
from mediaserver.settings import AgentSettings
from mediaserver.store.managed import Kind
from pipeline.errors import EngineMissing, boundary
from sip.call import Call
from sip.endpoint import Endpoint
from sip.errors import SipError
from sip.trunk import Trunk

log = logging.getLogger(__name__)

_UNAVAILABLE = 503
"""The SIP status that lets a carrier try its next route (RFC 3261 21.5.4)."""

_BUSY = 486
"""The SIP status for a caller whose company or trunk is at its limit: no other route would help, and after a
503 the carrier would send this server nothing for a while, for any company."""

PATIENCE_S = 1.0
"""Longest time that a caller waits for the database, in seconds: a hundred times what a write needs."""

AWAY_S = 5.0
"""Seconds after such a time-out in which no caller waits for the database."""

KNOWN_S = 15 * 60.0
"""Seconds for which settings managed over the API are used without a confirmation by the database."""


class Unknown(MediaServerError):
    """The database is away, and its last known state is too old, or refuses the call."""


class Inbound:
    """Answers inbound calls with the agent of the called number."""

    def __init__(
        self,
        directory: Directory,
        *,
        endpoint: Endpoint,
        services: CallServices,
        active_calls: ActiveCalls,
        node: str,
    ) -> None:
        self._directory = directory
        self._endpoint = endpoint
        self._services = services
        self._active_calls = active_calls
        self._node = node
        self._away_until = 0.0
        endpoint.gate.trunk_for = self.trunk_for
        endpoint.gate.user_reaches = self.user_reaches

    def trunk_for(self, called_number: str, trunks: Sequence[Trunk]) -> Trunk | None:
        """Returns the trunk over which an agent answers this number, of those that the caller's address
        belongs to, None where no agent does; called before an inbound call is accepted."""
        by_id = {trunk.settings.id: trunk for trunk in trunks}
        agent = self._directory.numbers.agent(called_number, list(by_id), int(time.time() * 1000))
        return by_id[agent.trunk] if agent is not None and agent.trunk is not None else None

    def user_reaches(self, name: str, called_number: str, line: Trunk) -> bool:
        """Whether an agent that the user may call answers this number; called before a user's call is
        accepted."""
        return self._agent_for(name, called_number, line.settings.id) is not None

    def _agent_for(self, user: str, called_number: str, trunk_id: str) -> AgentSettings | None:
        """Returns the agent that answers a call, `user` "" for one that came over a trunk."""
        agent = self._directory.numbers.agent(called_number, [trunk_id], int(time.time() * 1000))
        if agent is None or not user:
            return agent
        known = self._directory.user(agent.company, user)
        return agent if known is not None and known.reaches(agent.id) else None

    async def run(self) -> None:
        """Takes calls until cancelled, each in a task: none waits for another's row."""
        async with asyncio.TaskGroup() as tasks:
            async for call in self._endpoint.incoming():
                tasks.create_task(self._admit(call), name=f"admit {call.id}")
                del call  # not kept until the next call comes

    async def _admit(self, call: Call) -> None:
        with boundary(log, "inbound call lost", call_id=call.id) as failure:
            await self._put_through(call)
        if failure.error is not None:
            await self._turn_away(call, 500, "it failed")

    async def _put_through(self, call: Call) -> None:
        trunk_id = call.trunk_id
        agent, trunk = (
            self._agent_for(call.user, call.local_number, trunk_id),
            self._directory.trunk(trunk_id),
        )
        if agent is None or trunk is None:
            await self._turn_away(call, 404, "no agent has this number")
            return
        new = NewInboundCall(
            company_id=agent.company,
            agent_id=agent.id,
            trunk_id=trunk_id,
            phone_number=f"{USER}{call.user}" if call.user else call.remote_number,
            called_number=call.local_number,
            webhook_id=str(uuid.uuid4()),
            ringing_at_ms=int(time.time() * 1000),
            variables=variables(call, trunk),
            sip=received(call, trunk),
        )
        try:
            self._active_calls.check(agent)
            claim = await self._recorded(new)
            self._active_calls.take(claim, agent, call)
        except RuleBroken as full:
            await self._turn_away(call, _BUSY, full.rule)
        except (EngineMissing, Unknown) as error:
            await self._turn_away(call, _UNAVAILABLE, str(error))

    async def _recorded(self, new: NewInboundCall) -> Claim:
        """Writes the call to the database, now or later. Raises `Unknown`."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._away_until:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await self._write(new)
            except (StoreError, TimeoutError) as error:
                reason = str(error) or "it does not answer"
                log.error("inbound calls are answered without the database", extra={"reason": reason})
                self._away_until = loop.time() + AWAY_S
        self._check_known(new)
        journal = self._services.journal
        journal.note(new.call_id, "ringing", lambda: self._write(new, is_up=True), essential=True)
        return inbound_claim(new, self._node)

    async def _write(self, new: NewInboundCall, *, is_up: bool = False) -> Claim:
        store, ttl_ms = self._services.store, self._services.lease_ms
        return await store.record_inbound(new, node=self._node, ttl_ms=ttl_ms, is_up=is_up)

    def _check_known(self, new: NewInboundCall) -> None:
        """Checks with this node's own knowledge what the database would check. Raises `Unknown`."""
        age_s = asyncio.get_running_loop().time() - self._directory.confirmed_at
        if age_s > KNOWN_S and not self._directory.of_file(Kind.AGENT, new.agent_id):
            raise Unknown("the database is away, and what it last said is too old")
        company = self._directory.company(new.company_id)
        if company is None or self._active_calls.held_for(company.id) >= company.max_concurrent_calls:
            raise Unknown("the company is at its limit of concurrent calls")

    async def _turn_away(self, call: Call, code: int, reason: str) -> None:
        told = {"call_id": call.id, "trunk": call.trunk_id, "code": code, "reason": reason}
        log.warning("inbound call turned away", extra=told)
        self._services.metrics.trunks.follow(call)
        try:
            await call.reject(code)
        except SipError as error:
            log.info("inbound call was gone already", extra={"call_id": call.id, "reason": str(error)})
