"""Outbound legs besides a call's first: transfers to people, and telephones called into rooms. They follow
the rules of every call: destinations of the company, the trunk's format, do-not-call."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from mediaserver.admin.directory import Directory
from mediaserver.calls.journal import Journal
from mediaserver.calls.signalling.fields import to_send
from mediaserver.calls.signalling.stir import StirSigner
from mediaserver.calls.signalling.traces import CallTraces
from mediaserver.calls.trunk_hunt import NO_TRUNK, Line, TrunkHunt, lines_of, signed
from mediaserver.errors import InvalidNumber, InvalidRequest, StoreError
from mediaserver.numbers.e164 import may_dial, normalise
from mediaserver.numbers.users import USER, user_named
from mediaserver.queue.extra_legs import NewLeg
from mediaserver.settings import AgentSettings, CompanySettings, TrunkSettings
from mediaserver.settings.agent import ROOM
from mediaserver.store.store import Store
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from sip.call import Call
from sip.endpoint import Endpoint
from sip.message.uri import Uri
from sip.states import CallState

CALLED_BEFORE: Final = "the person was called before in this call"
"""The reason for which a number that a REFER or a transfer of the same call led to is not called again."""
log = logging.getLogger(__name__)


class DialRefused(InvalidRequest):
    """The rules refuse the call. `str()` is the reason, for the client."""


class LinesBusy(DialRefused):
    """The call is refused for the moment: a limit of concurrent calls is reached."""


@dataclass(frozen=True, slots=True)
class Route:
    """A number that may be called, and the trunks that carry it, in order. Made by `OutboundLegs.route`."""

    agent: AgentSettings
    number: str
    lines: tuple[Line, ...]

    @property
    def trunk(self) -> TrunkSettings:
        """The trunk that is tried first, whose rungs a transfer may take."""
        return self.lines[0].trunk


class OutboundLegs:
    """Places calls over the trunk of an agent. `room` returns how many more calls this node takes."""

    def __init__(
        self,
        directory: Directory,
        store: Store,
        endpoint: Endpoint,
        journal: Journal,
        *,
        room: Callable[[], int],
        traces: CallTraces,
        signer: StirSigner,
    ) -> None:
        self._directory = directory
        self._endpoint = endpoint
        self._store = store
        self._journal = journal
        self._room = room
        self._traces = traces
        self._signer = signer
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
        """Returns the number, or user of this server, that the URI of a far end's REFER names, if that is a
        target of the agent's own transfers. Raises `DialRefused`."""
        agent = self._agent(agent_id)
        company = self._directory.company(agent.company)
        wanted = [uri.number, f"{USER}{uri.user}"]
        here = {self._endpoint.settings.realm, self._endpoint.host_towards(uri)}
        ours = bool(uri.host) and uri.host.lower() in {(each or "").lower() for each in here}
        elsewhere = ROOM if ours else (ROOM, USER)  # another's user may have the name of one of ours
        with suppress(InvalidNumber):
            wanted.append(normalise(uri.number, company.country if company is not None else None))
        targets = [target for each in wanted if (target := agent.reaches(each))]
        found = [target for target in targets if not target.startswith(elsewhere)]
        if not found:
            raise DialRefused("the target is not among the agent's transfer_targets")
        return found[0]

    def follow(self, call: Call, leg_of: str) -> None:
        """Keeps the trace of a telephone that came to the call `leg_of` by itself."""
        self._traces.follow(call, leg_of)

    def people_in(self, agent_id: str, target: str) -> Bridge | None:
        """Returns the bridge of the room that `target` names; None for a number, or a room of the company's
        that is not open on this node."""
        if not target.startswith(ROOM) or self.rooms is None:
            return None
        return self.rooms(self._agent(agent_id).company, target.removeprefix(ROOM))

    async def route(self, agent_id: str, number: str) -> Route:
        """Returns how `number`, or "user:NAME", is called for an agent. Raises `DialRefused` where it may not
        be."""
        if number.startswith(ROOM):
            raise DialRefused("the room is not open on this node")
        agent = self._agent(agent_id)
        company = self._directory.company(agent.company)
        if company is None:
            raise DialRefused(NO_TRUNK)
        if not user_named(number):
            number = _dialled(number, company)
        try:
            lines = lines_of(self._directory, agent, number)
        except InvalidRequest as error:
            raise DialRefused(str(error)) from None
        if await self._store.may_not_call(agent.company, number):
            raise DialRefused("Phone number is on the do-not-call list")
        return Route(agent, number, tuple(lines))

    def refer_to(self, route: Route) -> tuple[Uri, Uri]:
        """Returns the URIs by which the carrier of `route` is asked to call its number, the preferred one
        first. Raises `DialRefused`."""
        trunk = self._endpoint.trunks.get(route.trunk.id)
        if trunk is None:
            raise DialRefused("the trunk cannot be used")
        sip, tel = trunk.uri_of(route.lines[0].dial_number), Uri("tel", route.number)
        return (tel, sip) if route.trunk.refer_to == "tel" else (sip, tel)

    async def dial(
        self, route: Route, *, call_id: str, leg_of: str, variables: Mapping[str, str] | None = None
    ) -> Call:
        """Places the call and returns it, ringing or about to ring. It counts among its company's and its
        trunk's calls for as long as it lasts. `leg_of`: the call that it belongs to, of which `variables` go
        into the header fields of the route. Raises `DialRefused` (`LinesBusy`: for the moment), `SipError`,
        OSError."""
        if self._room() <= 0:
            raise LinesBusy("this server takes no more calls at the moment")
        place = await self._place(route, leg_of)
        hunt = TrunkHunt(
            self._endpoint,
            route.lines,
            headers=partial(self._headers, variables or {}),
            take=place.goes_over,
            figures=self._traces.figures,
            ring_timeout_s=route.agent.transfer_ring_s,
        )
        with ExitStack() as undo:
            undo.callback(place.give_back)
            call = await hunt.call(call_id=call_id)
            undo.pop_all()
        _log("leg placed", place.leg, sip_call_id=call.sip_call_id)
        self._traces.follow(call, leg_of)
        call.on_state(place.moved)
        if call.state is CallState.ENDED:
            place.moved(call, call.state, 0.0)
        return call

    async def _headers(self, variables: Mapping[str, str], line: Line) -> Mapping[str, str]:
        return await signed(self._signer, line, to_send(line.trunk.send_headers, variables, {}))

    async def _place(self, route: Route, leg_of: str) -> _Place:
        leg = NewLeg(
            id=str(uuid.uuid4()),
            call_id=leg_of,
            company_id=route.agent.company,
            agent_id=route.agent.id,
            trunk_id=route.trunk.id,
            phone_number=route.number,
        )
        place = _Place(leg, self._store, self._journal)
        try:
            verdict = await self._store.take_leg(leg)
        except StoreError as error:
            raise LinesBusy("the limits of the company cannot be looked up now") from error
        except asyncio.CancelledError:
            place.give_back()  # it may be taken all the same
            raise
        if verdict.rule is not None:
            raise (DialRefused if verdict.refused else LinesBusy)(verdict.reason)
        return place

    def _agent(self, agent_id: str) -> AgentSettings:
        agent = self._directory.agent(agent_id)
        if agent is None:
            raise DialRefused("Agent not found")
        return agent


class _Place:
    """The place of a leg among the calls of its company and its trunk."""

    def __init__(self, leg: NewLeg, store: Store, journal: Journal) -> None:
        self.leg = leg
        self._store = store
        self._journal = journal

    async def goes_over(self, line: Line) -> bool:
        """Moves the leg to another trunk, if that has a place."""
        leg = replace(self.leg, trunk_id=line.trunk.id)
        try:
            moved = await self._store.reroute_leg(leg)
        except StoreError as error:
            _log("leg stays with its trunk", self.leg, reason=str(error))
            return False
        if moved:
            self.leg = leg
        return moved

    def moved(self, call: Call, state: CallState, now: float) -> None:
        """Logs what becomes of the leg; after its end the place is free."""
        if state is CallState.ANSWERED:
            _log("leg answered", self.leg)
        if state is CallState.ENDED:
            _log("leg ended", self.leg, cause=call.cause, ended_by=call.ended_by, sip_status=call.status)
            self.give_back()

    def give_back(self) -> None:
        """Frees the place."""
        leg = self.leg
        self._journal.note(leg.call_id, "leg left", lambda: self._store.leave_leg(leg.id), at_once=True)


def _dialled(number: str, company: CompanySettings) -> str:
    """Returns a number as E.164. Raises `DialRefused` where the company may not call it."""
    try:
        number = normalise(number, company.country)
    except InvalidNumber as error:
        raise DialRefused(str(error)) from None
    if not may_dial(number, company.prefixes):
        raise DialRefused("Phone number is outside the destinations that your company may call")
    return number


def _log(message: str, leg: NewLeg, **more: object) -> None:
    """Logs what becomes of a telephone beside the one that the call `call_id` began with."""
    told = {"call_id": leg.call_id, "leg_id": leg.id, "company_id": leg.company_id, "agent_id": leg.agent_id}
    log.info(message, extra=told | {"trunk": leg.trunk_id, "phone_number": leg.phone_number} | more)
