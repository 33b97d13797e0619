"""One peer connection of a participant: aiortc does SDP, ICE, DTLS and SCTP, `RoomAudio` the media.

A LiveKit client of `/rtc/v1`, or a browser over WHIP, has one peer connection, which it offers. A client of
`/rtc` has a second, which the server offers (`offer`) with the agent's audio and the data channels on it.

This is the one module that reaches into aiortc and aioice (1.16, 0.13): the ICE connection gets the server's
port instead of sockets of its own, and `RoomAudio` replaces sender and receiver when DTLS is up."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from aiortc import (
    RTCBundlePolicy,
    RTCCertificate,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCRtpTransceiver,
    RTCSessionDescription,
)
from aiortc import exceptions as aiortc_exceptions
from aiortc.sdp import candidate_from_sdp
from OpenSSL import SSL

from mediaserver.rooms.errors import BadOffer, PeerClosed
from mediaserver.rooms.webrtc.audio_track import RoomAudio, SecureLink
from mediaserver.rooms.webrtc.peer_state import STATES, PeerState
from mediaserver.rooms.webrtc.sdp_munging import AudioSection, Description, candidate_line
from mediaserver.rooms.webrtc.udp_mux import MediaPort, Path, new_credentials

MAX_BUFFERED: Final = 4 << 20
"""The most bytes that may wait on a data channel: a client that does not read must not fill the memory."""

LOSSY: Final = "_lossy"

_REFUSALS: Final = (
    ValueError,
    LookupError,
    AttributeError,
    AssertionError,
    TypeError,
    aiortc_exceptions.InternalError,
    aiortc_exceptions.InvalidAccessError,
    aiortc_exceptions.InvalidStateError,
    aiortc_exceptions.OperationError,
)
"""The exceptions of aiortc for descriptions that it cannot use."""


class PeerTransport:
    """One peer connection. All methods are called on the loop; descriptions are handled one after the other.

    `stream` and `track` are the ids of the agent's audio in the server's descriptions (a=msid)."""

    def __init__(self, port: MediaPort, audio: RoomAudio, *, stream: str, track: str) -> None:
        self.on_state: Callable[[PeerState, float], None] | None = None
        self.on_message: Callable[[str, bytes], None] | None = None
        """Takes a message and the label of its data channel; text arrives as UTF-8."""
        self.on_channel: Callable[[str], None] | None = None
        """Takes the label of a data channel that has opened."""
        self.state = PeerState.NEW
        self.sections: tuple[AudioSection, ...] = ()
        self.agent_mid = ""
        """The mid of the section with the agent's audio, "" while there is none."""
        self._port = port
        self._audio = audio
        self._ids = (stream, track)
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._path: Path | None = None
        self._offered: tuple[str, str] | None = None  # the next local ICE credentials
        self._link: SecureLink | None = None
        self._channels: dict[str, RTCDataChannel] = {}
        self._closing: asyncio.Task[None] | None = None
        self._pc = RTCPeerConnection(RTCConfiguration(iceServers=[], bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
        # One certificate for the process: making one costs a millisecond, and it identifies only the server.
        self._pc._RTCPeerConnection__certificates = [_certificate()]  # type: ignore[attr-defined]
        self._pc.on("connectionstatechange", self._connection_changed)
        self._pc.on("datachannel", self._channel_opened)

    @property
    def channels(self) -> frozenset[str]:
        """Labels of the open data channels."""
        return frozenset(label for label, each in self._channels.items() if each.readyState == "open")

    async def answer(self, offer: str) -> str:
        """Answers an offer (a first one, a changed one, an ICE restart); the answer has every candidate of
        the server. Raises `BadOffer`, `PeerClosed`."""
        async with self._lock:
            self._check_open()
            described = Description.parse(offer)
            visible = described.for_aiortc()
            self.restart_ice(*visible.credentials)
            try:
                await self._pc.setRemoteDescription(RTCSessionDescription(sdp=str(visible), type="offer"))
                self.sections = visible.audio
                self._take_transceivers()
                self._choose_section()
                self._use_port()
                await self._pc.setLocalDescription(await self._pc.createAnswer())
            except _REFUSALS as error:
                raise BadOffer(f"the offer cannot be answered: {error}") from error
            return str(described.answered(Description.parse(self._pc.localDescription.sdp)))

    async def offer(self, labels: tuple[str, ...] = (), *, restart: bool = False) -> str:
        """Makes an offer: the agent's audio and data channels with those labels ("_lossy" unordered, without
        retransmission). `restart`: with new ICE credentials, which count from the answer on; the present path
        stays open until then. Raises `PeerClosed`."""
        async with self._lock:
            self._check_open()
            if not self._pc.getTransceivers():
                self._dress(self._pc.addTransceiver("audio", direction="sendonly"))
            for label in labels:
                if label not in self._channels:
                    lossy = label == LOSSY
                    channel = self._pc.createDataChannel(
                        label, ordered=not lossy, maxRetransmits=0 if lossy else None
                    )
                    self._take_channel(channel)
            self._take_transceivers()
            self._use_port()
            await self._pc.setLocalDescription(await self._pc.createOffer())
            self.agent_mid = self._pc.getTransceivers()[0].mid or ""
            if not restart or self._path is None:
                return str(self._pc.localDescription.sdp)
            self._offered = new_credentials()
            return _with_credentials(self._pc.localDescription.sdp, self._offered)

    async def accept(self, answer: str) -> None:
        """Takes the client's answer to `offer`. Raises `BadOffer`, `PeerClosed`."""
        async with self._lock:
            self._check_open()
            visible = Description.parse(answer).for_aiortc()
            self._restarted(*visible.credentials)
            self._port.expect()
            try:
                await self._pc.setRemoteDescription(RTCSessionDescription(sdp=str(visible), type="answer"))
            except _REFUSALS as error:
                raise BadOffer(f"the answer cannot be used: {error}") from error
            self._only_opus()

    async def add_candidate(self, candidate: str) -> None:
        """Adds a trickled candidate ("candidate:..."; "" for the last). One that cannot be used (mDNS names,
        TCP) is ignored: the far end's connectivity checks show its address anyway. Raises `BadOffer` for a
        malformed one."""
        line = candidate_line(candidate) if candidate else None
        if line is None or self._path is None or self.state.over:
            return
        if len(self._path.connection.remote_candidates) >= _MAX_REMOTE:
            return
        try:
            parsed = candidate_from_sdp(line)
            parsed.sdpMid = self._any_mid()
            self._port.expect()
            await self._pc.addIceCandidate(parsed)
        except _REFUSALS as error:
            raise BadOffer(f"the candidate cannot be used: {error}") from error

    def restart_ice(self, ufrag: str, password: str) -> bool:
        """Restarts ICE where `ufrag` is new: the server's credentials change too (RFC 8839 4.4.1.1.1). aiortc
        knows no ICE restart, but with these credentials aioice accepts the checks that come over the new
        path. False: `ufrag` is the present one, or the first."""
        connection = self._path.connection if self._path is not None else None
        if connection is None or not ufrag or connection.remote_username in (None, ufrag):
            return False
        self._offered = new_credentials()
        self._restarted(ufrag, password)
        return True

    def _restarted(self, ufrag: str, password: str) -> None:
        """Puts the new credentials of both sides into effect."""
        path, offered = self._path, self._offered
        if path is None or offered is None or not ufrag or path.connection.remote_username in (None, ufrag):
            return
        self._offered = None
        path.connection.remote_username, path.connection.remote_password = ufrag, password
        path.rename(*offered)

    def send(self, label: str, body: bytes | str) -> bool:
        """Sends on a data channel; False when it is not open or has too much waiting."""
        channel = self._channels.get(label)
        if channel is None or channel.readyState != "open" or channel.bufferedAmount > MAX_BUFFERED:
            return False
        channel.send(body)
        return True

    async def flush(self, timeout_s: float) -> None:
        """Waits until the last messages have been sent and acknowledged, for `timeout_s` seconds at most."""
        waits = []
        for channel in self._channels.values():
            if channel.readyState == "open" and channel.bufferedAmount:
                low = self._loop.create_future()
                channel.once("bufferedamountlow", partial(_settle, low))
                waits.append(low)
        if waits:
            await asyncio.wait(waits, timeout=timeout_s)

    async def close(self) -> None:
        """Closes the peer connection and waits for that. May be called again."""
        self._moved(PeerState.CLOSED)
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._pc.close()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Removes every callback from aiortc's objects, so that the connection is freed at once and not by
        garbage collection; aiortc does so for the events of its outermost object alone."""
        self.on_state = self.on_message = self.on_channel = None
        channels, self._channels = list(self._channels.values()), {}
        transports: list[Any] = [*channels] if self._pc.sctp is None else [*channels, self._pc.sctp]
        for transceiver in self._pc.getTransceivers():
            vars(transceiver.receiver).pop("receive", None)
            vars(transceiver.sender).pop("send", None)
        if self._link is not None:
            dtls = self._transport()
            transports += [dtls, dtls.transport, dtls.transport.iceGatherer]
        for each in transports:
            each.remove_all_listeners()
        if self._path is not None:
            self._path.let_go()

    def local_fragment(self) -> str:
        """Returns the server's ICE credentials and candidates, for a client that restarts ICE without a whole
        description."""
        sdp = self._pc.localDescription.sdp
        if self._path is not None:
            connection = self._path.connection
            sdp = _with_credentials(sdp, (connection.local_username, connection.local_password))
        local = Description.parse(sdp).sections[:1]
        wanted = ("a=ice-ufrag:", "a=ice-pwd:", "a=candidate:", "m=", "a=mid:")
        return "\r\n".join(line for each in local for line in each.lines if line.startswith(wanted)) + "\r\n"

    # Callbacks of aiortc ------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.state.over:
            raise PeerClosed("the peer connection is closed")

    def _connection_changed(self) -> None:
        state = STATES[self._pc.connectionState]
        self._moved(PeerState.LEFT if state is PeerState.CLOSED and self._told_goodbye() else state)
        if state is PeerState.CLOSED and self._closing is None:  # the connection failed by itself
            self._closing = self._loop.create_task(self._close())

    def _told_goodbye(self) -> bool:
        """Whether the far end closed DTLS by close_notify, as a browser does for
        `RTCPeerConnection.close`."""
        connection = self._transport()._ssl if self._link is not None else None
        return connection is not None and bool(connection.get_shutdown() & SSL.RECEIVED_SHUTDOWN)

    def _moved(self, state: PeerState) -> None:
        if state is self.state or self.state.over:
            return
        self.state = state
        if state.over and self._link is not None:
            self._link.listen(None)
        if self.on_state is not None:
            self.on_state(state, self._loop.time())

    def _transport(self) -> Any:
        """Returns the one RTCDtlsTransport, as all sections are bundled."""
        transceivers, sctp = self._pc.getTransceivers(), self._pc.sctp
        return transceivers[0].receiver.transport if transceivers or sctp is None else sctp.transport

    def _any_mid(self) -> str | None:
        """Returns the mid of the section that owns the transport; candidates are for all sections."""
        for transceiver in self._pc.getTransceivers():
            if not transceiver._bundled:
                return transceiver.mid
        return self._pc.sctp.mid if self._pc.sctp is not None else None

    def _use_port(self) -> None:
        """Gives aiortc the server's port in place of sockets of its own, before it gathers candidates."""
        self._port.expect()
        connection = self._transport().transport._connection
        if self._path is None:
            self._path = Path(self._port, connection)
            connection.get_component_candidates = self._path.candidates
        self._link = self._link or SecureLink(self._transport(), self._path)

    def _only_opus(self) -> None:
        for transceiver in self._pc.getTransceivers():
            opus = [codec for codec in transceiver._codecs if codec.mimeType.lower() == "audio/opus"][:1]
            if not opus:
                raise BadOffer("an audio section without Opus")
            opus[0].parameters.update({"minptime": 10, "useinbandfec": 1})
            transceiver._codecs = opus

    def _take_transceivers(self) -> None:
        """Replaces `receive` and `send` of aiortc's transceivers, which aiortc calls once DTLS is up."""
        if self._pc.remoteDescription is not None:
            self._only_opus()
        for transceiver in self._pc.getTransceivers():
            transceiver.receiver.receive = self._receive  # type: ignore[method-assign]
            transceiver.sender.send = _Sending(self, transceiver)  # type: ignore[method-assign]

    def _choose_section(self) -> None:
        """Chooses the section that carries the agent's audio: one that only receives, else the
        microphone's."""
        if self.agent_mid:
            return
        wanted = sorted((each for each in self.sections if each.receives), key=lambda each: each.sends)
        for transceiver in self._pc.getTransceivers():
            if wanted and transceiver.mid == wanted[0].mid:
                transceiver.direction = "sendrecv" if wanted[0].sends else "sendonly"
                self._dress(transceiver)
                self.agent_mid = wanted[0].mid

    def _dress(self, transceiver: RTCRtpTransceiver) -> None:
        transceiver.sender._stream_id, transceiver.sender._track_id = self._ids

    async def _receive(self, parameters: Any) -> None:
        if self._link is not None and not self.state.over:
            self._audio.hear_on(self._link, frozenset(codec.payloadType for codec in parameters.codecs))

    def start_sending(self, payload_type: int, ssrc: int) -> None:
        """Connects `RoomAudio` when aiortc would start its sender; called by `_Sending`."""
        if self._link is not None and not self.state.over:
            self._audio.speak_on(self._link, payload_type=payload_type, ssrc=ssrc)

    # Data channels ------------------------------------------------------------------------------------------

    def _channel_opened(self, channel: RTCDataChannel) -> None:
        if len(self._channels) < _MAX_CHANNELS:
            self._take_channel(channel)

    def _take_channel(self, channel: RTCDataChannel) -> None:
        label = channel.label
        self._channels[label] = channel

        def opened() -> None:
            if self.on_channel is not None:
                self.on_channel(label)

        def received(message: bytes | str) -> None:
            if self.on_message is not None:
                self.on_message(label, message.encode() if isinstance(message, str) else message)

        channel.on("message", received)
        if channel.readyState == "open":
            opened()
        else:
            channel.on("open", opened)


class _Sending:
    """Replaces one transceiver's `RTCRtpSender.send`."""

    __slots__ = ("_peer", "_transceiver")

    def __init__(self, peer: PeerTransport, transceiver: RTCRtpTransceiver) -> None:
        self._peer = peer
        self._transceiver = transceiver

    async def __call__(self, parameters: Any) -> None:
        self._peer.start_sending(parameters.codecs[0].payloadType, self._transceiver.sender._ssrc)


def _settle(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _with_credentials(sdp: str, credentials: tuple[str, str]) -> str:
    """Returns the description with other ICE credentials of the server."""
    for name, value in zip(("ufrag", "pwd"), credentials, strict=True):
        sdp = re.sub(rf"a=ice-{name}:[^\r\n]*", f"a=ice-{name}:{value}", sdp)
    return sdp


@cache
def _certificate() -> RTCCertificate:
    return RTCCertificate.generateCertificate()


_MAX_REMOTE: Final = 64
_MAX_CHANNELS: Final = 16
