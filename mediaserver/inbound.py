"""Calls that come to us: which agent answers a number, and the row in the store before it does."""

from __future__ import annotations

import logging
import uuid

from mediaserver.directory import Directory
from mediaserver.errors import InvalidNumber, RuleBroken, StoreError
from mediaserver.numbers import normalise
from mediaserver.records import NewInboundCall
from mediaserver.settings import AgentSettings
from mediaserver.store import Store
from mediaserver.switchboard import Switchboard
from pipeline.errors import EngineMissing
from sip.call import Call
from sip.endpoint import Endpoint
from sip.errors import SipError
from sip.trunk import Trunk

log = logging.getLogger(__name__)

_UNAVAILABLE = 503
"""Lets a carrier try its next route (RFC 3261 21.5.4)."""

_BUSY = 486
"""To a caller whose company or trunk is at its limit: no other route would help, and after a 503 the carrier
would leave this server alone for a while, with everybody's calls."""


class NumberPlan:
    """Which agent answers which number on which trunk."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def agent(self, called_number: str, trunk_id: str) -> AgentSettings | None:
        """The agent that answers `called_number`, spelt as the carrier does, on `trunk_id`."""
        trunk = self._directory.trunk(trunk_id)
        company = self._directory.company(trunk.company) if trunk is not None else None
        try:
            number = normalise(called_number, company.country if company is not None else None)
        except InvalidNumber:
            return None
        return self._directory.answering(trunk_id, number)


class Inbound:
    """Takes calls from the phone and puts them through to their agent."""

    def __init__(
        self,
        plan: NumberPlan,
        *,
        endpoint: Endpoint,
        store: Store,
        switchboard: Switchboard,
        node: str,
        lease_ms: int,
    ) -> None:
        self._plan = plan
        self._endpoint = endpoint
        self._store = store
        self._switchboard = switchboard
        self._node = node
        self._lease_ms = lease_ms
        endpoint.serves = self.serves

    def serves(self, called_number: str, trunk: Trunk) -> bool:
        """Whether anybody answers this number: asked by the phone before it lets a call in."""
        return self._plan.agent(called_number, trunk.settings.id) is not None

    async def run(self) -> None:
        """Takes calls until cancelled."""
        async for call in self._endpoint.incoming():
            await self._admit(call)

    async def _admit(self, call: Call) -> None:
        trunk_id = call.trunk.settings.id
        agent = self._plan.agent(call.local_number, trunk_id)
        if agent is None:
            await self._turn_away(call, 404, "no agent has this number")
            return
        new = NewInboundCall(
            company_id=agent.company,
            agent_id=agent.id,
            trunk_id=trunk_id,
            phone_number=call.remote_number,
            called_number=call.local_number,
            webhook_id=str(uuid.uuid4()),
            sip_call_id=call.sip_call_id,
        )
        try:
            self._switchboard.check(agent)
            claim = await self._store.record_inbound(new, node=self._node, ttl_ms=self._lease_ms)
            self._switchboard.take(claim, agent, call)
        except RuleBroken as full:
            await self._turn_away(call, _BUSY, full.rule)
        except (StoreError, EngineMissing) as error:
            await self._turn_away(call, _UNAVAILABLE, str(error))

    async def _turn_away(self, call: Call, code: int, reason: str) -> None:
        log.warning("inbound call turned away", extra={"call_id": call.id, "code": code, "reason": reason})
        try:
            await call.reject(code)
        except SipError as error:
            log.info("inbound call was gone already", extra={"call_id": call.id, "reason": str(error)})
