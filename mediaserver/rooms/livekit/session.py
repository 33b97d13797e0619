"""The session of a participant who joined with a LiveKit SDK: signalling, data channels and peer connections.

A session outlives its WebSocket: media continues, and the client has `RESUME_S` seconds to resume. `/rtc/v1`
has one peer connection, which the client offers; `/rtc` has a second, which the server offers, for the audio
that the client hears."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from livekit.protocol import rtc

from mediaserver.rooms.errors import BadOffer, BadSignal, PeerClosed, RoomError
from mediaserver.rooms.livekit.data import LOSSY, RELIABLE, DataLink
from mediaserver.rooms.livekit.messages import leave as leave_message
from mediaserver.rooms.livekit.messages import quality
from mediaserver.rooms.livekit.signalling import (
    ENCRYPTED,
    AddCandidate,
    AnswerOffer,
    Listen,
    Refuse,
    Signalling,
    SignallingStep,
    SignalState,
    UseAnswer,
)
from mediaserver.rooms.open_room import Entry
from mediaserver.rooms.registry import RoomRegistry
from mediaserver.rooms.room import LeaveReason
from mediaserver.rooms.tokens import LIFETIME_S, Grant
from mediaserver.rooms.webrtc.peer_connection import PeerTransport
from mediaserver.settings.ice_servers import IceServersFor

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
QUALITY_S: Final = 5.0
REFRESH_S: Final = LIFETIME_S / 3
"""Seconds between new tokens for a client: after a lost connection, a client joins again with its last
token."""

LATER_S: Final = (0.03, 1.0)
"""Seconds after which a response to a request is sent, twice: the Rust SDK begins to wait for the response
after it has sent the request, later on a busy machine. A response without a waiting request is ignored."""

GOING: Final = 1000
"""WebSocket close code "normal closure" (RFC 6455 section 7.4.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """How a client joins. `dual`: with two peer connections; `request`: the join request in the URL of
    `/rtc/v1`, empty for `/rtc`."""

    dual: bool
    request: rtc.JoinRequest


class Outlet(Protocol):
    """The WebSocket of a client. Both methods return at once."""

    def send(self, data: bytes) -> None:
        """Sends a message to the client, after those before it."""

    def close(self, code: int, reason: str) -> None:
        """Closes the WebSocket after the messages already sent."""


class SdkSession:
    """The session of one participant. All methods are called on the loop."""

    def __init__(
        self,
        room_registry: RoomRegistry,
        entry: Entry,
        goodbyes: set[asyncio.Task[None]],
        *,
        dual: bool,
        ice_servers: IceServersFor,
    ) -> None:
        """`goodbyes` holds tasks that outlive the session."""
        self.entry = entry
        participant = entry.leg.participant
        self.signalling = Signalling(entry.room, participant, dual=dual, ice_servers=ice_servers)
        self.data = DataLink(entry.room, participant, self._send_data)
        self.data.on_encrypted = lambda: self._refuse(ENCRYPTED)
        self.on_end: Callable[[SdkSession], None] | None = None
        """Called once the participant has left the room."""
        self._room_registry = room_registry
        self._goodbyes = goodbyes
        self._loop = asyncio.get_running_loop()
        self._dual = dual
        self._outlet: Outlet | None = None
        self._own: PeerTransport | None = None  # offered by the client
        self._ours: PeerTransport | None = None  # the second one of a dual client, offered by the server
        self._offers = 0
        self._told: dict[str, int] = {}  # track sid: packets received when it was published, -1 once reported
        self._quality_s = self._loop.time()
        self._refresh_s = self._loop.time() + REFRESH_S
        self._counted = (0, 0)
        self._tick_timer = self._loop.call_later(TICK_S, self._tick)
        self._leaving = False
        self._refused = ""  # the reason for which the client was removed, for the WebSocket
        self.signalling.on_gone = self._gone
        entry.leg.closes_itself = True
        entry.leg.on_hang_up = lambda: self.signalling.end(LeaveReason.ROOM_CLOSED)

    @property
    def resumable(self) -> bool:
        """Whether the client may resume this session: its media is still up."""
        return self.signalling.state is not SignalState.GONE and not self._media_closed()

    # The WebSocket ------------------------------------------------------------------------------------------

    async def begin(self, hello: Hello, outlet: Outlet) -> None:
        """Joins: sends the participants, answers the offer of the join request or makes the server's."""
        self._take(outlet)
        request, now = hello.request, self._loop.time()
        self.signalling.attach(self._send, now)
        self.entry.room.observe(self.data)
        self._describe(request, now)
        for wish in request.add_track_requests:
            refusal = self.signalling.add_track(wish)
            if refusal is not None:
                return self._refuse(refusal.why)
        if self._dual:
            await self._make_offer()
        elif request.publisher_offer.sdp:
            await self._perform(AnswerOffer(request.publisher_offer.id, request.publisher_offer.sdp))

    async def resume(self, outlet: Outlet) -> None:
        """Continues on a new WebSocket, perhaps from another network. The client restarts ICE on the peer
        connection that it offers, the server on its own."""
        self._take(outlet)
        now = self._loop.time()
        self.signalling.resume(self._send, now, last_sequence=self.data.last_sequence)
        self._refresh_s = now
        if self._ours is not None:
            await self._offer_again(self._ours)

    async def receive(self, data: bytes) -> None:
        """Handles a signalling message of the client. Raises `BadSignal`."""
        step = self.signalling.receive(data, self._loop.time())
        if step is not None:
            await self._perform(step)

    def lost(self, outlet: Outlet) -> None:
        """Notes that the WebSocket `outlet` is lost; ignored when there is a newer one."""
        if outlet is self._outlet:
            self._outlet = None
            self.signalling.detach(self._loop.time())

    def _take(self, outlet: Outlet) -> None:
        before, self._outlet = self._outlet, outlet
        if before is not None:
            before.close(GOING, "resumed elsewhere")

    def _send(self, response: rtc.SignalResponse) -> None:
        if response.request_response.request_id and self._outlet is not None:
            for later_s in LATER_S:
                self._loop.call_later(later_s, self._put, response.SerializeToString())
        else:
            self._put(response.SerializeToString())

    def _put(self, data: bytes) -> None:
        if self._outlet is not None:
            self._outlet.send(data)

    def _describe(self, request: rtc.JoinRequest, now: float) -> None:
        participant = self.entry.leg.participant
        if not participant.permissions.update_own_metadata:
            return
        if request.metadata or request.participant_attributes:
            try:
                self.entry.room.describe(
                    participant,
                    now,
                    metadata=request.metadata or None,
                    attributes=dict(request.participant_attributes),
                )
            except RoomError as error:
                log.info("metadata left out", extra={**self._fields(), "reason": str(error)})

    # The peer connections -----------------------------------------------------------------------------------

    async def _perform(self, step: SignallingStep) -> None:
        try:
            if isinstance(step, AnswerOffer):
                await self._answer(step)
            elif isinstance(step, UseAnswer):
                await self._use_answer(step)
            elif isinstance(step, AddCandidate):
                await self._add_candidate(step)
            elif isinstance(step, Listen):
                self.entry.leg.audio.wanted = step.wanted
            elif isinstance(step, Refuse):
                self._refuse(step.why)
            else:
                self._leave(LeaveReason.CLIENT, returns=not step.wished)
        except PeerClosed:
            log.info("peer connection is closed", extra=self._fields())
        except BadOffer as error:
            log.warning("participant put out", extra={**self._fields(), "reason": str(error)})
            self._leave(LeaveReason.STATE_MISMATCH)

    async def _answer(self, step: AnswerOffer) -> None:
        if self._own is None:
            self._own = self._new_peer(carries_data=not self._dual)
        peer = self._own
        sdp = await peer.answer(step.sdp)
        now = self._loop.time()
        self.signalling.answered(step, sdp, sections=peer.sections, agent_mid=peer.agent_mid, now=now)

    async def _make_offer(self) -> None:
        peer = self._ours = self._new_peer(carries_data=True)
        self._offers += 1
        sdp = await peer.offer((RELIABLE, LOSSY))
        self.signalling.offer(sdp, mid=peer.agent_mid, number=self._offers)

    async def _offer_again(self, peer: PeerTransport) -> None:
        try:
            sdp = await peer.offer((RELIABLE, LOSSY), restart=True)
        except PeerClosed:
            return  # the next tick asks the client to join again
        self._offers += 1
        self.signalling.offer(sdp, mid=peer.agent_mid, number=self._offers)

    async def _use_answer(self, step: UseAnswer) -> None:
        if self._ours is not None:
            await self._ours.accept(step.sdp)

    async def _add_candidate(self, step: AddCandidate) -> None:
        peer = self._ours if step.ours else self._own
        if peer is None:
            return
        try:
            await peer.add_candidate(step.candidate)
        except BadOffer as error:
            raise BadSignal(str(error)) from error

    def _new_peer(self, *, carries_data: bool) -> PeerTransport:
        peer = self.entry.leg.new_peer()
        peer.on_message = self._data_received
        if carries_data:
            peer.on_channel = self.data.opened
        return peer

    def _data_received(self, label: str, body: bytes) -> None:
        self.data.receive(label, body, self._loop.time())

    def _send_data(self, label: str, body: bytes) -> bool:
        peer = self._ours if self._dual else self._own
        return peer is not None and peer.send(label, body)

    def _media_closed(self) -> bool:
        main = self._ours if self._dual else self._own
        return main is not None and main.state.over

    # Time ---------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self._loop.time()
        self._tick_timer = self._loop.call_later(TICK_S, self._tick)
        signalling = self.signalling
        if signalling.silent(now) and self._outlet is not None:
            outlet = self._outlet
            self.lost(outlet)
            outlet.close(GOING, "nothing heard")
        if signalling.lapsed(now):
            self._leave(LeaveReason.SIGNAL_CLOSE)
        elif self._media_closed():
            self._start_over(now)
        self._tell_subscribed()
        self._tell_quality(now)
        if now >= self._refresh_s:
            self._refresh_s = now + REFRESH_S
            signalling.send(rtc.SignalResponse(refresh_token=self._room_registry.mint(self._grant())))

    def _start_over(self, now: float) -> None:
        """Asks a client whose media has failed for good to join again, which removes this session."""
        if self.signalling.state is SignalState.ATTACHED and self._outlet is not None:
            outlet = self._outlet
            self._put(leave_message(LeaveReason.MEDIA_FAILURE, again=True).SerializeToString())
            self.lost(outlet)
            outlet.close(GOING, "media lost")

    def _tell_subscribed(self) -> None:
        packets = self.entry.leg.audio.receiver.packets
        for sid in self.entry.leg.participant.tracks:
            before = self._told.setdefault(sid, packets)
            if -1 < before < packets:
                self._told[sid] = -1
                self.signalling.track_subscribed(sid)

    def _tell_quality(self, now: float) -> None:
        if now - self._quality_s < QUALITY_S:
            return
        self._quality_s = now
        receiver = self.entry.leg.audio.receiver
        before, self._counted = self._counted, (receiver.packets, receiver.lost)
        packets, lost = receiver.packets - before[0], receiver.lost - before[1]
        if packets + lost:
            participant = self.entry.leg.participant
            self.signalling.send(quality(participant, lost / (packets + lost)))

    def _grant(self) -> Grant:
        participant = self.entry.leg.participant
        return Grant(
            room=self.entry.room.name,
            identity=participant.identity,
            name=participant.name,
            metadata=participant.metadata,
            attributes=dict(participant.attributes),
            permissions=participant.permissions,
            role=participant.role if participant.supervises else None,
        )

    # End of the session -------------------------------------------------------------------------------------

    def _refuse(self, why: str) -> None:
        if not self._leaving:
            self._refused = why
            log.warning("participant put out", extra={**self._fields(), "reason": why})
            self._leave(LeaveReason.ENCRYPTED)

    def _leave(self, reason: LeaveReason, *, returns: bool = False) -> None:
        """Leaves the room, in a task of its own: the WebSocket's task may be cancelled as soon as the
        WebSocket is closed."""
        if not self._leaving:
            self._leaving = True
            task = self._loop.create_task(self._room_registry.leave(self.entry, reason, returns=returns))
            self._goodbyes.add(task)
            task.add_done_callback(self._goodbyes.discard)

    def _gone(self, reason: LeaveReason) -> None:
        """Frees the session of a participant who left the room, or was removed."""
        self._tick_timer.cancel()
        self.data.close()
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            outlet.close(GOING, self._refused or reason.value)
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self)

    def _fields(self) -> dict[str, object]:
        return {"call_id": self.entry.room.name, "participant": self.entry.leg.participant.sid}
