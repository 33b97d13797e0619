"""The rooms of this node: created for a token, joined with it, closed with the call.

    invitation = room_registry.invite("acme", request)            # the response to `web-calls/connect`
    entry = await room_registry.enter(token)              # WHIP, or LiveKit's signalling
    answer = await entry.leg.new_peer().answer(offer)
    ...
    await room_registry.leave(entry, LeaveReason.CLIENT)

The agent is dispatched when the first participant's media is up. The room ends when the last participant who
may publish has left, when the agent hangs up, or, if nobody joins, when the token expires."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mediaserver.admin.access import Access
from mediaserver.admin.directory import Directory
from mediaserver.calls.detail_record import CallDetailRecord
from mediaserver.calls.phone_call import PhoneCall
from mediaserver.calls.services import CallProfile, CallServices
from mediaserver.calls.take_over import TakeOverEnd
from mediaserver.calls.validation import check_agent
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import NotFound, RuleBroken, ScopeMissing, StoreError, Unavailable
from mediaserver.rooms import tokens
from mediaserver.rooms.active_speakers import LOOK_S
from mediaserver.rooms.errors import RoomClosed, RoomError, RoomFull
from mediaserver.rooms.open_room import Entry, JoinGrant, OpenRoom
from mediaserver.rooms.participant import Kind, Participant
from mediaserver.rooms.participant_leg import LegState, ParticipantLeg
from mediaserver.rooms.room import LeaveReason, Room, RoomState
from mediaserver.rooms.sip_participant import SipParticipant
from mediaserver.rooms.vacancy import give_place_back, hold_place
from mediaserver.rooms.web_call import WebCall, WebCallRequest
from mediaserver.rooms.webrtc.udp_mux import MediaPort
from mediaserver.settings import reveal, split_ports
from pipeline.audio.opus import RATE_HZ
from pipeline.errors import EngineMissing, boundary
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from pipeline.media.who_hears import Role
from pipeline.net.egress import EgressPolicy
from pipeline.plane.drive.plane import PlaneFull
from pipeline.plane.drive.planes import Planes

log = logging.getLogger(__name__)

CONNECT_S = 20.0
"""A participant whose media is not up after this is removed: ICE over a bad network takes five seconds."""

PEOPLE = 8
"""Participants of a conversation that the media planes have rows for, on average: most rooms have one."""

RETURN_S = 5.0
"""How long a room waits for a client that joins anew."""

UNKNOWN_AGENT = "Agent not found"
UNKNOWN_ROOM = "Room not found"
NO_WEB_CALLS = "Web Calls API is not enabled"


class RoomRegistry:
    """Creates, finds and closes the rooms of this node."""

    def __init__(
        self,
        directory: Directory,
        *,
        engines: Engines,
        services: CallServices,
        ports: Sequence[MediaPort],
        pacer: Pacer,
        node: str,
    ) -> None:
        """`ports`: one of each plane that has people of rooms."""
        self._directory = directory
        self._engines = engines
        self._services = services
        self._ports = ports
        self._pacer, self._node = pacer, node
        self._loop = asyncio.get_running_loop()
        self._rooms: dict[str, OpenRoom] = {}
        self._draining = False
        self.phone_call: Callable[[str], PhoneCall | None] = lambda call_id: None
        # Tasks that end with the closing of peer connections.
        self._goodbyes: set[asyncio.Task[None]] = set()
        self.outbound_legs = services.outbound_legs
        if services.outbound_legs is not None:
            services.outbound_legs.rooms = self._people_in
        self._look = self._loop.call_later(LOOK_S, self._look_around)

    def __len__(self) -> int:
        """The number of conversations in progress."""
        return sum(each.task is not None for each in self._rooms.values())

    @property
    def rooms(self) -> int:
        """The number of rooms, those that nobody has joined yet included."""
        return len(self._rooms)

    def find(self, call_id: str) -> CallDetailRecord | None:
        """Returns the record of the live web call of that id; None where this node does not have it."""
        opened = self._rooms.get(call_id)
        return opened.call.cdr if opened is not None and opened.call is not None else None

    def __contains__(self, name: str) -> bool:
        return name in self._rooms

    def invite(self, company_id: str, request: WebCallRequest) -> JoinGrant:
        """Creates a room and the token to join it. Raises `ScopeMissing`, `NotFound`, `InvalidRequest`,
        `Unavailable`."""
        self.check_open()
        name = _agent_name(self._directory, self._engines, company_id, request)
        now = self._loop.time()
        agent = Participant(f"agent-{uuid.uuid4().hex[:8]}", kind=Kind.AGENT, name=name)
        room = Room(str(uuid.uuid4()), agent=agent, now=now, empty_timeout_s=request.join_within_s)
        bridge = Bridge(self._pacer, rate_hz=RATE_HZ)
        self._rooms[room.name] = OpenRoom(room, company_id, request, bridge)
        self._loop.call_later(request.join_within_s + 1, self._expire, room.name)
        identity = request.user_ref or f"user-{uuid.uuid4().hex[:8]}"
        grant = tokens.Grant(room=room.name, identity=identity, name=request.name or identity)
        return JoinGrant(self.server_url(), room.name, self.mint(grant), identity)

    async def withdraw(self, token: str) -> None:
        """Closes the room that `token` is for, unless a participant has joined it. Raises `TokenRefused`."""
        opened = self._rooms.get(self.verify(token).room)
        if opened is not None and opened.room.state is RoomState.EMPTY:
            await self._close(opened, LeaveReason.ROOM_CLOSED)

    def mint(self, grant: tokens.Grant) -> str:
        """Returns a token for one more participant of a room: a supervisor, or a second device."""
        rooms = self._directory.rooms
        return tokens.mint(grant, key=rooms.api_key, secret=reveal(rooms.api_secret))

    def verify(self, token: str) -> tokens.Grant:
        """Returns the grant of a participant token. Raises `TokenRefused`."""
        rooms = self._directory.rooms
        return tokens.verify(token, key=rooms.api_key, secret=reveal(rooms.api_secret))

    def admit(self, token: str) -> tuple[tokens.Grant, OpenRoom]:
        """Returns the grant of `token` and the room that it is for. Raises `TokenRefused`, `RoomClosed`,
        `RoomFull`, `Unavailable`."""
        grant = self.verify(token)
        opened = self._rooms.get(grant.room)
        if opened is None:
            raise RoomClosed("the room is over, or was never opened here")
        if not opened.begun:
            self.check_open()
        if not opened.begun and len(self) >= self._directory.rooms.max_calls:
            raise RoomFull("this server takes no more web calls at the moment")
        return opened.admitted(grant), opened

    async def enter(self, token: str, *, resumable: bool = False) -> Entry:
        """Adds the participant that `token` names to the room. Unless `resumable`, a participant whose media
        is lost has left. Raises what `admit` does, and `RoomFull` for a room with too many participants."""
        grant, opened = self.admit(token)
        if not opened.begun:
            await self._check_room(opened, takes_part=grant.permissions.publish and grant.role is None)
        participant = _participant(grant)
        room, leg = opened.room, _new_leg(opened.room, participant, self._ports)
        try:
            before = room.join(participant, self._loop.time())
        except RoomError:
            leg.audio.close()
            raise
        evicted = opened.participant_legs.pop(before.sid, None) if before is not None else None
        opened.participant_legs[participant.sid] = leg
        leg.on_media = lambda up, now: self._media(opened, leg, up, now, resumable)
        self._loop.call_later(CONNECT_S, self._check_connected, opened, leg)
        if evicted is not None:
            opened.bridge.remove(evicted)
            await evicted.gone(LeaveReason.DUPLICATE_IDENTITY.value)
        return Entry(room, leg, evicted)

    async def _check_room(self, opened: OpenRoom, *, takes_part: bool) -> None:
        """Reserves the place of a conversation about to begin. Raises `RoomClosed`, and as `hold_place`."""
        if not takes_part:
            return
        await hold_place(self._services, opened)
        if self._rooms.get(opened.room.name) is not opened:
            give_place_back(self._services, opened)
            raise RoomClosed("the room is over")

    async def leave(self, entry: Entry, reason: LeaveReason, *, returns: bool = False) -> None:
        """Removes a participant who has left. With `returns` the conversation waits `RETURN_S` seconds for
        the client to join again. Does nothing for a participant who was removed before."""
        opened = self._rooms.get(entry.room.name)
        if opened is not None:  # runs to its end, even where the caller is cancelled
            leaving = self._leave(opened, entry.leg, reason, returns=returns)
            await asyncio.shield(self._goodbye(leaving))

    def opened(self, access: Access, name: str, *, supervised: bool = False) -> OpenRoom:
        """Returns a room that `access` reaches, a phone call's only where `supervised`. Raises `NotFound`."""
        found = self._rooms.get(name)
        there = found is not None and (supervised or found.phone is None)
        return access.agents_thing(found if there else None, UNKNOWN_ROOM)

    def adopt(self, opened: OpenRoom) -> Callable[[], object]:
        """Lets people join `opened`, whose conversation is held elsewhere; returns what puts them out."""
        self._rooms[opened.room.name] = opened
        return lambda: self._goodbye(self._close(opened, LeaveReason.ROOM_CLOSED))

    def rooms_of(self, access: Access) -> list[OpenRoom]:
        """Returns the rooms of this node that `access` reaches, without those of phone calls."""
        return [each for each in self._rooms.values() if access.reaches(each) and not each.phone]

    def _look_around(self) -> None:
        self._look = self._loop.call_later(LOOK_S, self._look_around)
        for opened in self._rooms.values():
            if opened.begun:
                opened.look(self._loop.time())

    def _people_in(self, company_id: str, name: str) -> Bridge | None:
        opened = self._rooms.get(name)
        running = opened is not None and opened.company_id == company_id and opened.task is not None
        return opened.bridge if opened is not None and running else None

    def check_open(self) -> None:
        """Raises `Unavailable` while no new conversation is accepted."""
        if self._draining:
            raise Unavailable("The server is draining")
        self._services.check()

    async def remove_participant(self, opened: OpenRoom, leg: ParticipantLeg) -> None:
        """Removes a participant from the room; returns when the connection is closed."""
        await asyncio.shield(self._goodbye(self._leave(opened, leg, LeaveReason.REMOVED)))

    def arrived(self, opened: OpenRoom, sip_participant: SipParticipant) -> None:
        """Adds a telephone that has answered to the bridge, and begins the conversation if it is the
        first."""
        opened.bridge.add(sip_participant.call)
        self._begin(opened)

    def departed(self, opened: OpenRoom, sip_participant: SipParticipant) -> None:
        """Removes a telephone that has hung up; an empty room ends."""
        if opened.sip_participants.pop(sip_participant.participant.sid, None) is not None:
            self._goodbye(self._check_empty(opened, LeaveReason.CLIENT))

    async def hang_up(self, call_ids: Iterable[str]) -> None:
        """Ends those calls of `call_ids` that this node has."""
        for opened in filter(None, map(self._rooms.get, call_ids)):
            await self._close(opened, LeaveReason.ROOM_DELETED)

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new conversations and waits for those in progress; False when `timeout_s` was not
        enough."""
        self._draining = True
        await self._wait(timeout_s)
        return not len(self)

    async def _wait(self, timeout_s: float) -> None:
        tasks = [each.task for each in self._rooms.values() if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def close(self) -> None:
        """Ends every room and closes the port."""
        self._draining = True
        self._look.cancel()
        for opened in list(self._rooms.values()):
            await self._close(opened, LeaveReason.SERVER_SHUTDOWN)
        await self._wait(5.0)
        await asyncio.gather(*self._goodbyes, return_exceptions=True)
        for port in self._ports:
            port.close()

    # Lifecycle of a room ------------------------------------------------------------------------------------

    def _media(self, opened: OpenRoom, leg: ParticipantLeg, up: bool, now: float, resumable: bool) -> None:
        if leg.participant.sid not in opened.participant_legs:
            return
        if not up:
            opened.room.media_lost(leg.participant, now)
            opened.supervision.left(leg.participant, TakeOverEnd.LOST)
            if not resumable:
                reason = LeaveReason.CLIENT if leg.left else LeaveReason.MEDIA_FAILURE
                self._goodbye(self._leave(opened, leg, reason))
            return
        opened.room.active(leg.participant, now)
        opened.supervision.joined(leg.participant, leg)
        opened.bridge.mute(leg, leg.participant.silenced)
        if leg.participant in opened.room.speakers:
            self._begin(opened)

    def _begin(self, opened: OpenRoom) -> None:
        if not opened.begun:
            opened.task = asyncio.create_task(self._run(opened), name=f"web call {opened.room.name}")

    async def _run(self, opened: OpenRoom) -> None:
        """Runs one web call, from the first participant's media to the outcome."""
        with boundary(log, "web call failed", call_id=opened.room.name):
            try:
                opened.call = await self._start(opened)
                await opened.call.run()
            except (StoreError, EngineMissing, RuleBroken) as error:
                log.error("web call cannot begin", extra={"call_id": opened.room.name, "reason": str(error)})
                give_place_back(self._services, opened)
        opened.task = opened.call = None
        self._rooms.pop(opened.room.name, None)
        await opened.remove_participant(LeaveReason.ROOM_CLOSED, self._loop.time())

    async def _start(self, opened: OpenRoom) -> WebCall:
        agent = self._directory.agent(opened.request.agent_id)
        if agent is None:
            raise EngineMissing("the agent is not configured any more")
        profile, services = CallProfile.of(agent, self._engines), self._services
        ttl_ms = services.lease_ms
        claim = await services.store.record_web_call(opened.new_call(), node=self._node, ttl_ms=ttl_ms)
        return opened.new_web_call(claim, profile, services)

    async def _leave(
        self, opened: OpenRoom, leg: ParticipantLeg, reason: LeaveReason, *, returns: bool = False
    ) -> None:
        opened.supervision.left(leg.participant)
        if opened.participant_legs.pop(leg.participant.sid, None) is None:
            return
        if returns:
            opened.bridge.remove(leg)
        opened.room.leave(leg.participant, reason, self._loop.time())
        await leg.gone(reason.value)  # ends the conversation with its last speaker
        if returns:
            self._loop.call_later(RETURN_S, lambda: self._goodbye(self._check_empty(opened, reason)))
        else:
            await self._check_empty(opened, reason)

    async def _check_empty(self, opened: OpenRoom, reason: LeaveReason) -> None:
        if opened.room.speakers or opened.phone or self._rooms.get(opened.room.name) is not opened:
            return
        if opened.task is None:
            await self._close(opened, LeaveReason.ROOM_CLOSED)
        else:
            opened.bridge.end(reason.value)  # the participant may never have had a leg in the bridge

    async def _close(self, opened: OpenRoom, reason: LeaveReason) -> None:
        """Ends a room from outside; a conversation in it writes its outcome and removes the room itself."""
        if opened.call is not None:
            opened.call.hang_up()
            return
        if opened.task is None:
            self._rooms.pop(opened.room.name, None)
        if not opened.begun:
            give_place_back(self._services, opened)
        await opened.remove_participant(reason, self._loop.time())

    def _expire(self, name: str) -> None:
        opened = self._rooms.get(name)
        if opened is not None and opened.room.expired(self._loop.time()):
            self._goodbye(self._close(opened, LeaveReason.ROOM_CLOSED))

    def _check_connected(self, opened: OpenRoom, leg: ParticipantLeg) -> None:
        if leg.state is LegState.CONNECTING and leg.participant.sid in opened.participant_legs:
            self._goodbye(self._leave(opened, leg, LeaveReason.JOIN_FAILURE))

    def _goodbye(self, leaving: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(leaving)
        self._goodbyes.add(task)
        task.add_done_callback(self._goodbyes.discard)
        return task

    def server_url(self) -> str:
        """Returns the WebSocket URL that clients connect to, made of `server.public_url`."""
        return "ws" + self._directory.server.public_url.removeprefix("http").rstrip("/")


def _participant(grant: tokens.Grant) -> Participant:
    role = Role.CALLER if grant.permissions.publish else Role.MONITOR
    permissions = grant.permissions
    if grant.role is not None:  # a supervisor is seen from the role on in which the caller hears them
        permissions = replace(permissions, publish=True, publish_data=False, hidden=True)
    return Participant(
        grant.identity,
        name=grant.name,
        permissions=permissions,
        metadata=grant.metadata,
        attributes=dict(grant.attributes),
        role=grant.role or role,
        supervises=grant.role is not None,
    )


def _new_leg(room: Room, participant: Participant, ports: Sequence[MediaPort]) -> ParticipantLeg:
    """Returns a leg for the participant. Raises `RoomFull` where no media plane has a row for it."""
    track = room.agent_track.sid
    stream = f"{room.agent.sid}|{track}"
    port = min(ports, key=lambda each: len(each.plane))
    try:
        return ParticipantLeg(participant, port, stream=stream, track=track)
    except PlaneFull as full:
        raise RoomFull(str(full)) from None


def _agent_name(directory: Directory, engines: Engines, company_id: str, request: WebCallRequest) -> str:
    """Returns the name of the requested agent. Raises as `RoomRegistry.invite` does."""
    company = directory.company(company_id)
    if company is None or not company.web_calls:
        raise ScopeMissing(NO_WEB_CALLS)
    agent = directory.agent(request.agent_id)
    if agent is None or agent.company != company_id:
        raise NotFound(UNKNOWN_AGENT)
    try:
        engines.agent_engines(agent.id)
    except EngineMissing as missing:
        raise Unavailable(f"Agent's engine is not available: {missing}") from None
    check_agent(engines, agent, request.variables, request.metadata)
    return agent.name


def open_room_registry(
    directory: Directory,
    *,
    engines: Engines,
    services: CallServices,
    pacer: Pacer,
    planes: Planes,
    node: str,
) -> RoomRegistry | None:
    """Opens the media port and returns the node's rooms; None without `rooms.api_secret`. Raises `RoomFull`,
    OSError."""
    rooms = directory.rooms
    if rooms.api_secret is None:
        return None
    ports = list(_open_ports(directory, planes))
    for port in ports:
        hosts = [host for _, host in port.sockets]
        log.info("rooms listening", extra={"port": port.number, "addresses": hosts})
    return RoomRegistry(
        directory,
        engines=engines,
        services=services,
        ports=ports,
        pacer=pacer,
        node=node,
    )


def _open_ports(directory: Directory, planes: Planes) -> Iterator[MediaPort]:
    """Yields a port for each plane. Planes for which none is left carry phone calls only."""
    rooms = directory.rooms
    for number, plane in enumerate(planes):
        try:
            yield MediaPort.open(
                plane,
                split_ports(rooms.udp_ports),
                addresses=rooms.addresses,
                public_address=rooms.public_address,
                egress=EgressPolicy(str(network) for network in directory.server.allow_networks),
            )
        except RoomFull:
            if not number:
                raise
            return
