"""A participant's audio in both directions: receiver, sender, their RTCP reports, and one place on the pacer.

`RoomAudio` is the media half of a leg. `SecureLink` connects it to aiortc: the SRTP sessions that DTLS made,
and the `Path` on the server's port. A LiveKit client with two peer connections sends audio on one and
receives it on the other."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import pylibsrtp
from aiortc import RTCDtlsTransport

from mediaserver.rooms.webrtc.receiver import OpusReceiver
from mediaserver.rooms.webrtc.sender import OpusSender
from mediaserver.rooms.webrtc.udp_mux import Path
from pipeline.audio.opus import RATE_HZ
from pipeline.leg import AudioSource, LegListener
from pipeline.media.pacer import Pace, Pacer
from sip.rtp.packet import MalformedPacket
from sip.rtp.rtcp import PACKET_TYPES, RtcpSession, Sent

REPORT_S: Final = 1.0
"""Seconds between RTCP reports: browsers decide by these whether to send FEC, and five seconds are too
late."""

SOURCES: Final = 16
"""Sources (SSRC) of a participant that libsrtp keeps a context for. A browser has one, and one more for each
microphone that it publishes; libsrtp looks through all of them for each packet."""

_TAMPERED: Final = (pylibsrtp.Error, ValueError)  # ValueError: longer than any packet


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioStats:
    """Counters up to now; `remote_*` are from the participant's reports on the server's packets."""

    packets_sent: int
    packets_received: int
    lost: int
    recovered: int
    concealed: int
    bad_packets: int
    jitter_ms: float
    remote_lost: int
    remote_fraction_lost: float
    rtt_ms: float | None


class SecureLink:
    """The SRTP sessions of one DTLS connection, on the path `path` of the server's port. Of the participant's
    sources the latest `SOURCES` keep their roll-over counter and their window against replays."""

    __slots__ = ("_dtls", "_path", "_sources")

    def __init__(self, dtls: RTCDtlsTransport, path: Path) -> None:
        self._dtls = dtls
        self._path = path
        self._sources: OrderedDict[bytes, None] = OrderedDict()  # the latest last

    def send(self, packet: bytes) -> bool:
        """Encrypts and sends an RTP packet; False: it could not be sent."""
        return self._path.send(self._dtls._tx_srtp.protect(packet))

    def send_report(self, compound: bytes) -> bool:
        """Encrypts and sends a compound RTCP packet; False: it could not be sent."""
        return self._path.send(self._dtls._tx_srtp.protect_rtcp(compound))

    def opened(self, data: bytes) -> bytes | None:
        """Decrypts an RTP packet; None for one that is forged, replayed or damaged."""
        try:
            packet: bytes = self._dtls._rx_srtp.unprotect(data)
        except _TAMPERED:
            return None
        self._meet(packet[8:12])
        return packet

    def opened_report(self, data: bytes) -> bytes | None:
        """Decrypts a compound RTCP packet; None for one that is forged, replayed or damaged."""
        try:
            compound: bytes = self._dtls._rx_srtp.unprotect_rtcp(data)
        except _TAMPERED:
            return None
        self._meet(compound[4:8])
        return compound

    def _meet(self, source: bytes) -> None:
        """Puts the source of an authentic packet after all others. Of one too many libsrtp forgets the one
        that was silent for longest."""
        sources = self._sources
        sources[source] = None
        sources.move_to_end(source)
        if len(sources) > SOURCES:
            forgotten, _ = sources.popitem(last=False)
            self._dtls._rx_srtp.remove_stream(int.from_bytes(forgotten))

    def listen(self, audio: RoomAudio | None) -> None:
        """Passes packets that arrive to `audio`; None: drops them."""
        self._path.media = None if audio is None else _Intake(self, audio)


class _Intake:
    """The media sink of a path: SRTP to the receiver, SRTCP to the reports."""

    __slots__ = ("_audio", "_link")

    def __init__(self, link: SecureLink, audio: RoomAudio) -> None:
        self._link = link
        self._audio = audio

    def __call__(self, data: bytes, now: float) -> None:
        if len(data) > 1 and data[1] in PACKET_TYPES:
            compound = self._link.opened_report(data)
            if compound is not None:
                self._audio.report_received(compound, now)
            return
        packet = self._link.opened(data)
        if packet is not None:
            self._audio.receiver.packet(packet, now)


class RoomAudio:
    """The audio of one participant, in frames of 20 ms at 16 kHz in both directions."""

    def __init__(self, pacer: Pacer, *, loop: asyncio.AbstractEventLoop) -> None:
        self.receiver = OpusReceiver()
        self.sender = OpusSender(time=loop.time)
        self._pacer = pacer
        self._loop = loop
        self._reports = RtcpSession(wall_offset_s=time.time() - loop.time())
        self._report_due_s = 0.0
        self._bad_reports = 0
        self._pace: Pace | None = None
        self._heard_on: SecureLink | None = None
        self._spoken_on: SecureLink | None = None

    @property
    def rate_hz(self) -> int:
        """Sample rate in both directions: 16000 Hz."""
        return RATE_HZ

    @property
    def stats(self) -> AudioStats:
        """The counters of both directions, as of now."""
        receiver, reception, remote = self.receiver, self.receiver.reception, self._reports.remote
        return AudioStats(
            packets_sent=self.sender.packets,
            packets_received=receiver.packets,
            lost=receiver.lost,
            recovered=receiver.recovered,
            concealed=receiver.concealed,
            bad_packets=receiver.bad_packets + self._bad_reports,
            jitter_ms=reception.jitter_ms if reception is not None else 0.0,
            remote_lost=remote.lost,
            remote_fraction_lost=remote.fraction_lost,
            rtt_ms=remote.rtt_ms,
        )

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Attaches a listener and a source; None detaches."""
        before = self.sender.source
        if before is not None and before is not source:
            before.on_ready(None)
        self.receiver.listener = listener
        self.sender.source = source
        if source is not None:
            source.on_ready(self._wake)

    def hear_on(self, link: SecureLink, payload_types: frozenset[int]) -> None:
        """Receives the participant's microphone on `link` from now on; `payload_types` are Opus's."""
        self.receiver.receive(payload_types)
        self._heard_on = link
        link.listen(self)
        self._start()

    def speak_on(self, link: SecureLink, *, payload_type: int, ssrc: int) -> None:
        """Sends the agent's audio on `link` from now on."""
        sender = self.sender
        sender.payload_type, sender.ssrc = payload_type, ssrc
        sender.wire = link.send
        self._spoken_on = link
        if self._heard_on is not link:
            link.listen(self)  # the participant's reports of the agent's audio
        self._start()

    def report_received(self, compound: bytes, now: float) -> None:
        """Takes a decrypted RTCP compound of the participant."""
        try:
            self._reports.receive(compound, self.sender.ssrc, now)
        except MalformedPacket:
            self._bad_reports += 1

    def close(self) -> None:
        """Stops both directions for good."""
        self.attach(None, None)
        self.sender.wire = None
        for link in (self._heard_on, self._spoken_on):
            if link is not None:
                link.listen(None)
        self._heard_on = self._spoken_on = None
        if self._pace is not None:
            self._pace.remove()
            self._pace = None

    def _start(self) -> None:
        if self._pace is None:
            now = self._loop.time()
            self._report_due_s = now + REPORT_S / 2
            self._pace = self.sender.pace = self._pacer.add(self._tick, now)

    def _wake(self) -> None:
        if self._pace is not None and self.sender.silent:
            self._pace.wake()

    def _tick(self, now: float) -> None:
        self.sender.tick(now)
        if self.receiver.waiting:
            self.receiver.flush(now)
        if now >= self._report_due_s:
            self._report_due_s = now + REPORT_S
            self._report(now)

    def _report(self, now: float) -> None:
        """Sends one RTCP compound where one connection carries both directions, else a report on each."""
        sender, reception = self.sender, self.receiver.reception
        sent = Sent(sender.ssrc, sender.timestamp_at(now), sender.packets, sender.octets)
        heard, spoken = self._heard_on, self._spoken_on
        if heard is not None:
            heard.send_report(self._reports.report(sent, reception, now))
        if spoken is not None and spoken is not heard:
            spoken.send_report(self._reports.report(sent, None, now))
