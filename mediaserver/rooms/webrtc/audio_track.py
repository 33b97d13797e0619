"""A participant's audio in both directions, on a row of the media plane, and its RTCP reports.

The plane reads, opens and decodes what the participant says, and encodes, protects, paces and sends what the
agent says, by the server's port to where ICE says, without Python in between. aiortc sends each frame from a
task of its track, by an encoder on a thread pool.

`RoomAudio` is the media half of a leg. `SecureLink` connects it to aiortc: the SRTP sessions that DTLS made,
and the `Path` on the server's port. A LiveKit client with two peer connections sends audio on one and
receives it on the other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiortc import RTCDtlsTransport

from mediaserver.rooms.webrtc.receiver import OPUS, OpusReceiver
from mediaserver.rooms.webrtc.udp_mux import Path, ReportSink, Target
from pipeline.audio.opus import CLOCK_HZ, RATE_HZ
from pipeline.leg import AudioSource, LegListener
from pipeline.plane.drive.plane import Plane
from pipeline.plane.outgoing import Outgoing
from pipeline.plane.port import NO_STREAM
from pipeline.plane.rows import Happened
from pipeline.plane.setup import Sending, begin_sending, begin_source, configure_sending, snapshot
from pipeline.plane.srtp import Lent
from sip.rtp.packet import MalformedPacket
from sip.rtp.rtcp import RtcpSession, Sent
from sip.rtp.said import Said

REPORT_S: Final = 1.0
"""Seconds between RTCP reports: browsers decide by these whether to send FEC, and five seconds are too
late."""

_TAG_BYTES: Final = {b"SRTP_AES128_CM_SHA1_80": 10}
"""How much longer than RTP a packet is (RFC 5764 4.1.2)."""

_GCM_TAG_BYTES: Final = 16


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
    """The SRTP sessions of one DTLS connection, which is up, on the path `path` of the server's port. Of the
    participant's sources the latest keep their roll-over counter and their window against replays
    (`pipeline.plane.srtp.Lent`). Whoever calls holds the row that uses the sessions."""

    __slots__ = ("_dtls", "_lent", "_path")

    def __init__(self, dtls: RTCDtlsTransport, path: Path) -> None:
        self._dtls = dtls
        self._path = path
        self._lent: Lent | None = None

    @property
    def sessions(self) -> Lent:
        """The sessions, which are there once DTLS is up."""
        if self._lent is None:
            self._lent = Lent(self._dtls._tx_srtp, self._dtls._rx_srtp)
        return self._lent

    def seal(self, line: Any) -> None:
        """The packets of the row `line` are this connection's from now on."""
        connection: Any = self._dtls._ssl
        profile = connection.get_selected_srtp_profile()
        self.sessions.seal(line, _TAG_BYTES.get(profile, _GCM_TAG_BYTES))

    def send_report(self, sealed: bytes) -> bool:
        """Sends a report that is sealed; False: it could not be sent."""
        return self._path.send(sealed)

    def follow(self, aim: Callable[[Target | None], None] | None) -> None:
        """Tells `aim` where packets go, now and whenever ICE nominates another pair; None: no more."""
        self._path.on_target = aim
        if aim is not None:
            aim(self._path.target)

    @property
    def heard_s(self) -> float:
        """When the far end last made or answered a check of the connection, in loop time."""
        return self._path.heard_s

    def hear(self, stream: int) -> None:
        """RTP that comes is that of `stream` from now on; `NO_STREAM`: of none."""
        self._path.stream = stream

    def listen(self, reports: ReportSink | None) -> None:
        """Passes reports that arrive to `reports`, sealed as they are; None: drops them."""
        self._path.on_report = reports


class RoomAudio:
    """The audio of one participant, in frames of 20 ms at 16 kHz in both directions; a row of `plane`. Raises
    `pipeline.plane.drive.plane.PlaneFull`. Once closed it touches the row no more, whatever connection of the
    participant comes up still."""

    def __init__(self, plane: Plane, *, loop: asyncio.AbstractEventLoop) -> None:
        self._plane, self._number, self._loop = plane, plane.reserve(), loop
        plane.open(self._number, None, self._happened)
        self._reports = RtcpSession(wall_offset_s=time.time() - loop.time())
        self._bad_reports = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard_on: SecureLink | None = None
        self._spoken_on: SecureLink | None = None
        with plane.held(self._number) as line:
            self.receiver = OpusReceiver(line, self._number)
            begin_sending(line, -1, first_due_ns=plane.first_due_ns(self._number))
        self._line: Any = line
        self._said = Said(Outgoing(line, plane.poke), loop)

    @property
    def rate_hz(self) -> int:
        """Sample rate in both directions: 16000 Hz."""
        return RATE_HZ

    @property
    def wanted(self) -> bool:
        """Whether the participant wants to hear the agent: else its frames leave as ever, and are not
        sent."""
        return not self._line["unwanted"]

    @wanted.setter
    def wanted(self, wanted: bool) -> None:
        self._line["unwanted"] = not wanted

    @property
    def stats(self) -> AudioStats:
        """The counters of both directions, as of now."""
        receiver, reception, remote = self.receiver, self.receiver.reception, self._reports.remote
        return AudioStats(
            packets_sent=int(self._line["packets_sent"]),
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

    @property
    def heard_s(self) -> float:
        """When the far end last made or answered a check of its connections, in loop time; 0.0: not yet."""
        links = (self._heard_on, self._spoken_on)
        return max((link.heard_s for link in links if link is not None), default=0.0)

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Attaches a listener and a source; None detaches."""
        self.receiver.listener = listener
        self._said.source = source

    def hear_on(self, link: SecureLink, payload_types: frozenset[int]) -> None:
        """Receives the participant's microphone on `link` from now on; `payload_types` are Opus's."""
        if self._closed:
            return
        self.receiver.receive(payload_types)
        before, self._heard_on = self._heard_on, link
        if before is not None and before is not link:
            before.hear(NO_STREAM)
        with self._plane.held(self._number) as line:
            link.sessions.open(line)
        link.hear(self._number)
        link.listen(partial(self._report_received, link))
        self._start()

    def speak_on(self, link: SecureLink, *, payload_type: int, ssrc: int) -> None:
        """Sends the agent's audio on `link` from now on; a source that stays goes on with its timestamps and
        counts, since aiortc asks for it in each negotiation. Raises `pipeline.audio.opus.OpusMissing`."""
        sending = Sending(
            payload_type=payload_type,
            format=OPUS,
            events_type=-1,
            events_hz=CLOCK_HZ,
            sends=True,
            discontinuous=True,
        )
        if self._closed:
            return
        before = self._spoken_on
        if before is not None and before is not link:
            before.follow(None)
        with self._plane.held(self._number) as line:
            if line["own_ssrc"] != ssrc:
                begin_source(line, ssrc)
            configure_sending(line, sending)
            link.seal(line)
        self._spoken_on = link
        link.follow(self._aim)
        if self._heard_on is not link:
            link.listen(partial(self._report_received, link))  # of the agent's audio
        self._start()

    def _report_received(self, link: SecureLink, data: bytes, now: float) -> None:
        """Takes a report of the participant, as SRTCP."""
        with self._plane.held(self._number):
            compound = link.sessions.opened_report(data)
        if compound is None:
            return
        try:
            self._reports.receive(compound, int(self._line["own_ssrc"]), now)
        except MalformedPacket:
            self._bad_reports += 1

    def close(self) -> None:
        """Stops both directions for good. Idempotent."""
        if self._closed:
            return
        self.attach(None, None)
        self._closed = True
        for link in (self._heard_on, self._spoken_on):
            if link is not None:
                link.listen(None)
                link.hear(NO_STREAM)
                link.follow(None)
        if self._timer is not None:
            self._timer.cancel()
        self._plane.shut(self._number, None)
        self._heard_on = self._spoken_on = None
        self._line = snapshot(self._line)
        self.receiver.close()

    def _happened(self, kind: int, one: int, two: int) -> None:
        if kind == Happened.HEARD:
            self.receiver.passed(one, self._loop.time())
        elif kind == Happened.SENT:
            self._said.left()

    def _aim(self, target: Target | None) -> None:
        with self._plane.held(self._number) as line:
            if target is None:
                line["remote_size"] = 0
            else:
                self._plane.aim(self._number, *target)

    def _start(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(REPORT_S / 2, self._report)

    def _report(self) -> None:
        """Sends one RTCP compound where one connection carries both directions, else a report on each."""
        self._timer = self._loop.call_later(REPORT_S, self._report)
        now, heard, spoken = self._loop.time(), self._heard_on, self._spoken_on
        sent = Sent.of(self._line, now)
        if heard is not None:
            self._send_report(heard, self._reports.report(sent, self.receiver.reception, now))
        if spoken is not None and spoken is not heard:
            self._send_report(spoken, self._reports.report(sent, None, now))

    def _send_report(self, link: SecureLink, compound: bytes) -> None:
        with self._plane.held(self._number):
            sealed = link.sessions.sealed_report(compound)
        link.send_report(sealed)
