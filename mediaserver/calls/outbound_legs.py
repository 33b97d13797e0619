"""Outbound legs besides a call's first: transfers to people, and telephones called into rooms. They follow
the rules of every call: destinations of the company, the trunk's format, do-not-call."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from mediaserver.admin.directory import Directory
from mediaserver.calls.journal import Journal
from mediaserver.calls.signalling.fields import to_send
from mediaserver.calls.signalling.traces import CallTraces
from mediaserver.errors import InvalidNumber, InvalidRequest, StoreError
from mediaserver.numbers.e164 import accepted, format_for_trunk, may_dial, normalise
from mediaserver.queue.extra_legs import NewLeg
from mediaserver.settings import AgentSettings
from mediaserver.settings.agent import ROOM
from mediaserver.store.store import Store
from mediaserver.wiring import caller_id
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from sip.call import Call
from sip.endpoint import Endpoint
from sip.message.uri import Uri
from sip.states import CallState
from sip.trunk import Trunk

CALLED_BEFORE: Final = "the person was called before in this call"
"""The reason for which a number that a REFER or a transfer of the same call led to is not called again."""
log = logging.getLogger(__name__)


class DialRefused(InvalidRequest):
    """The rules refuse the call. `str()` is the reason, for the client."""


class LinesBusy(DialRefused):
    """The call is refused for the moment: a limit of concurrent calls is reached."""


@dataclass(frozen=True, slots=True)
class Route:
    """A number that may be called, with its trunk, caller ID, and the header fields of its INVITE by the
    variable that each carries. `transfer`: the rungs of the trunk. Made by `OutboundLegs.route`."""

    agent: AgentSettings
    number: str
    dial_number: str
    trunk_id: str
    caller_id: str | None
    company_id: str
    send_headers: Mapping[str, str]
    transfer: str = "bridge"
    refer_to: str = "sip"


class OutboundLegs:
    """Places calls over the trunk of an agent. `room` returns how many more calls this node takes."""

    def __init__(
        self,
        directory: Directory,
        store: Store,
        *,
        endpoint: Endpoint,
        journal: Journal,
        room: Callable[[], int],
        traces: CallTraces,
    ) -> None:
        self._directory = directory
        self._endpoint = endpoint
        self._store = store
        self._journal = journal
        self._room = room
        self._traces = traces
        self.rooms: Callable[[str, str], Bridge | None] | None = None
        """Returns the bridge of a company's room by its name, where the room is open on this node; set by the
        owner of the rooms."""

    @property
    def pacer(self) -> Pacer:
        """The pacer of this node's media."""
        return self._endpoint.pacer

    def target(self, agent_id: str, wanted: str) -> str:
        """Returns the number or room that `wanted` names: a name in the agent's `transfer_targets`, or one of
        those targets itself. Raises `DialRefused`."""
        target = self._agent(agent_id).reaches(wanted)
        if not target:
            raise DialRefused("the target is not among the agent's transfer_targets")
        return target

    def named_by(self, agent_id: str, uri: Uri) -> str:
        """Returns the number that the URI of a far end's REFER names, if it is a target of the agent's own
        transfers. Raises `DialRefused`."""
        agent = self._agent(agent_id)
        company = self._directory.company(agent.company)
        wanted = [uri.number]
        with suppress(InvalidNumber):
            wanted.append(normalise(uri.number, company.country if company is not None else None))
        found = [target for each in wanted if (target := agent.reaches(each)) and not target.startswith(ROOM)]
        if not found:
            raise DialRefused("the target is not among the agent's transfer_targets")
        return found[0]

    def people_in(self, agent_id: str, target: str) -> Bridge | None:
        """Returns the bridge of the room that `target` names; None for a number, or a room of the company's
        that is not open on this node."""
        if not target.startswith(ROOM) or self.rooms is None:
            return None
        return self.rooms(self._agent(agent_id).company, target.removeprefix(ROOM))

    async def route(self, agent_id: str, number: str) -> Route:
        """Returns how `number` is called for an agent. Raises `DialRefused` where it may not be."""
        if number.startswith(ROOM):
            raise DialRefused("the room is not open on this node")
        agent = self._agent(agent_id)
        company = self._directory.company(agent.company)
        trunk = self._directory.trunk(agent.trunk) if agent.trunk is not None else None
        if company is None or trunk is None:
            raise DialRefused("No SIP trunk configured for this agent")
        try:
            number = normalise(number, company.country)
        except InvalidNumber as error:
            raise DialRefused(str(error)) from None
        if not may_dial(number, company.prefixes):
            raise DialRefused("Phone number is outside the destinations that your company may call")
        dial_number = format_for_trunk(number, trunk.number_format)
        if not accepted(dial_number, trunk.accepts):
            raise DialRefused("Phone number format does not match SIP trunk configuration")
        if await self._store.may_not_call(agent.company, number):
            raise DialRefused("Phone number is on the do-not-call list")
        shown, sent = caller_id(agent, trunk), trunk.send_headers
        return Route(
            agent,
            number,
            dial_number,
            trunk.id,
            shown,
            company_id=company.id,
            send_headers=sent,
            transfer=trunk.transfer,
            refer_to=trunk.refer_to,
        )

    def refer_to(self, route: Route) -> tuple[Uri, Uri]:
        """Returns the URIs by which the carrier of `route` is asked to call its number, the preferred one
        first. Raises `DialRefused`."""
        sip, tel = self._trunk(route).uri_of(route.dial_number), Uri("tel", route.number)
        return (tel, sip) if route.refer_to == "tel" else (sip, tel)

    async def dial(
        self, route: Route, *, call_id: str, leg_of: str, variables: Mapping[str, str] | None = None
    ) -> Call:
        """Places the call and returns it, ringing or about to ring. It counts among its company's and its
        trunk's calls for as long as it lasts. `leg_of`: the call that it belongs to, of which `variables` go
        into the header fields of the route. Raises `DialRefused` (`LinesBusy`: for the moment), `SipError`,
        OSError."""
        trunk = self._trunk(route)
        if self._room() <= 0:
            raise LinesBusy("this server takes no more calls at the moment")
        leg = await self._place(route, leg_of)
        with ExitStack() as undo:
            undo.callback(self._give_back, leg)
            with self._traces.figures.placing(route.trunk_id):
                call = await trunk.call(
                    route.dial_number,
                    caller_id=route.caller_id,
                    call_id=call_id,
                    ring_timeout_s=route.agent.transfer_ring_s,
                    headers=to_send(route.send_headers, variables or {}, {}),
                )
            undo.pop_all()
        _log("leg placed", leg, sip_call_id=call.sip_call_id)
        self._traces.follow(call, leg_of)
        call.on_state(lambda call, state, now: self._moved(leg, call, state))
        if call.state is CallState.ENDED:
            self._moved(leg, call, call.state)
        return call

    async def _place(self, route: Route, leg_of: str) -> NewLeg:
        leg = NewLeg(
            id=str(uuid.uuid4()),
            call_id=leg_of,
            company_id=route.company_id,
            agent_id=route.agent.id,
            trunk_id=route.trunk_id,
            phone_number=route.number,
        )
        try:
            verdict = await self._store.take_leg(leg)
        except StoreError as error:
            raise LinesBusy("the limits of the company cannot be looked up now") from error
        if verdict.rule is not None:
            raise (DialRefused if verdict.refused else LinesBusy)(verdict.reason)
        return leg

    def _trunk(self, route: Route) -> Trunk:
        trunk = self._endpoint.trunks.get(route.trunk_id)
        if trunk is None:
            raise DialRefused("the trunk cannot be used")
        return trunk

    def _moved(self, leg: NewLeg, call: Call, state: CallState) -> None:
        if state is CallState.ANSWERED:
            _log("leg answered", leg)
        if state is CallState.ENDED:
            _log("leg ended", leg, cause=call.cause, ended_by=call.ended_by, sip_status=call.status)
            self._give_back(leg)

    def _give_back(self, leg: NewLeg) -> None:
        self._journal.note(leg.call_id, "leg left", lambda: self._store.leave_leg(leg.id))

    def _agent(self, agent_id: str) -> AgentSettings:
        agent = self._directory.agent(agent_id)
        if agent is None:
            raise DialRefused("Agent not found")
        return agent


def _log(message: str, leg: NewLeg, **more: object) -> None:
    """Logs what becomes of a telephone beside the one that the call `call_id` began with."""
    told = {"call_id": leg.call_id, "leg_id": leg.id, "company_id": leg.company_id, "agent_id": leg.agent_id}
    log.info(message, extra=told | {"trunk": leg.trunk_id, "phone_number": leg.phone_number} | more)
