"""The leg of a participant in a room: a `pipeline.leg.Leg` over one or two peer connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from mediaserver.rooms.participant import Participant
from mediaserver.rooms.webrtc.audio_track import RoomAudio
from mediaserver.rooms.webrtc.peer_connection import PeerTransport
from mediaserver.rooms.webrtc.peer_state import PeerState
from mediaserver.rooms.webrtc.udp_mux import MediaPort
from pipeline.leg import AudioSource, LegListener
from sip.rtp.telephone_event import check_digits

log = logging.getLogger(__name__)

GOODBYE_S: Final = 0.3
"""How long the last messages on the data channels may take to leave."""

LEAVE_S: Final = 0.5
"""How long a client that was told to leave may take to close its connections."""


class LegState(Enum):
    """CONNECTING: no media yet; CONNECTED: media is up; ENDED: final."""

    CONNECTING = auto()
    CONNECTED = auto()
    ENDED = auto()


class ParticipantLeg:
    """The connection behind a participant. Raises `pipeline.plane.drive.plane.PlaneFull`.

    `stream` and `track`: the ids of the agent's audio in session descriptions (LiveKit: "PA_x|TR_y", "TR_y").
    The leg ends when `hang_up` is called, when `gone` is called, or when its last peer connection closes and
    the client does not resume, which the owner of the signalling decides."""

    def __init__(self, participant: Participant, port: MediaPort, *, stream: str, track: str) -> None:
        self.participant = participant
        self.audio = RoomAudio(port.plane, loop=asyncio.get_running_loop())
        self.state = LegState.CONNECTING
        self.peers: list[PeerTransport] = []
        self.on_media: Callable[[bool, float], None] | None = None
        """Called when media comes up (True) and when it is lost (False)."""
        self.on_hang_up: Callable[[], None] | None = None
        """Called once when the server ends the leg, so that the signalling can say goodbye."""
        self.closes_itself = False
        """Whether the client closes its connections when the signalling tells it to leave, as LiveKit's do. A
        connection that the server closes before is an error to the client's data channels."""
        self._port = port
        self._ids = (stream, track)
        self._loop = asyncio.get_running_loop()
        self._listener: LegListener | None = None
        self._peer_over = asyncio.Event()

    @property
    def rate_hz(self) -> int:
        """The rate of frames in both directions: 16 kHz."""
        return self.audio.rate_hz

    @property
    def held(self) -> bool:
        """Always False: WebRTC clients have no hold."""
        return False

    @property
    def left(self) -> bool:
        """Whether the far end has closed a peer connection on purpose."""
        return any(peer.state is PeerState.LEFT for peer in self.peers)

    @property
    def heard_s(self) -> float:
        """When the far end last made or answered a check of the connection, in loop time; 0.0: not yet."""
        return self.audio.heard_s

    def new_peer(self) -> PeerTransport:
        """Makes a peer connection for this participant."""
        stream, track = self._ids
        peer = PeerTransport(self._port, self.audio, stream=stream, track=track)
        peer.on_state = self._peer_moved
        self.peers.append(peer)
        return peer

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects a conversation. The listener of a leg that has ended is told so on the next turn of the
        loop."""
        self._listener = listener
        if self.state is not LegState.ENDED:
            self.audio.attach(listener, source)
        elif listener is not None:
            self._loop.call_soon(self._tell_ended, "gone")

    async def hang_up(self) -> None:
        """Ends the leg and closes its peer connections; does nothing when it has ended."""
        if self.state is LegState.ENDED:
            return
        self._end("hung_up")
        if self.on_hang_up is not None:
            self.on_hang_up()
        await self._close_peers()

    async def gone(self, reason: str) -> None:
        """Ends the leg of a participant who left or was removed, with `reason`. Does nothing when the leg has
        ended."""
        self._end(reason)
        await self._close_peers()

    async def send_dtmf(self, digits: str) -> None:
        """Checks the digits and sends none: a WebRTC client has no use for DTMF. Raises ValueError."""
        check_digits(digits)
        log.info("digits left out: a room's participant takes none", extra={"identity": self.participant.sid})

    def _peer_moved(self, state: PeerState, now: float) -> None:
        if state.over:
            self._peer_over.set()
        if self.state is LegState.ENDED:
            return
        connected = any(peer.state is PeerState.CONNECTED for peer in self.peers)
        before, after = self.state, LegState.CONNECTED if connected else LegState.CONNECTING
        self.state = after
        if before is not after and self.on_media is not None:
            self.on_media(connected, now)

    def _end(self, reason: str) -> None:
        if self.state is LegState.ENDED:
            return
        self.state = LegState.ENDED
        self.audio.close()
        self._tell_ended(reason)

    def _tell_ended(self, reason: str) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.leg_ended(reason, self._loop.time())

    async def _close_peers(self) -> None:
        await asyncio.gather(*(peer.flush(GOODBYE_S) for peer in self.peers))
        if self.closes_itself:
            await asyncio.wait({asyncio.ensure_future(self._closed_by_client())}, timeout=LEAVE_S)
        await asyncio.gather(*(peer.close() for peer in self.peers), return_exceptions=True)
        self.on_media = self.on_hang_up = None

    async def _closed_by_client(self) -> None:
        """Waits until no peer connection is up; ends at the latest when the server closes them."""
        while any(peer.state is PeerState.CONNECTED for peer in self.peers):
            self._peer_over.clear()
            await self._peer_over.wait()
