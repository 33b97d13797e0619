"""The audio of one call: RTP and RTCP on two sockets, paced by the one `Pacer` of the process.

Inbound, a datagram goes from the socket to the listener by direct call; outbound, the pacer's tick pulls a
frame and hands it to the wire. There is no queue and no task in between.

Packets are read with `loop.add_reader` and `recvfrom_into` one buffer per stream: 3.8 µs of processor time a
packet where a datagram endpoint, which allocates 256 KiB for each, takes 16 (and 4.9 with reading on until
the socket is empty, for packets 20 ms apart).
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from pipeline.leg import AudioSource, LegListener
from pipeline.media.pacer import Pace, Pacer
from sip.errors import LocalError
from sip.rtp.dtmf_dedup import Way
from sip.rtp.media_address import resolved, rtcp_address, unspecified
from sip.rtp.packet import MalformedPacket
from sip.rtp.ports import PortRange
from sip.rtp.receiver import RtpReceiver, Verdict
from sip.rtp.rtcp import RtcpSession, Sent
from sip.rtp.sender import Address, RtpSender
from sip.rtp.telephone_event import check_digits
from sip.sdp.media_plan import MediaPlan

BURST: Final = 64
"""Packets read in one wake-up at the most: strangers must not hold up the other calls."""

_HOUSEKEEPING_S: Final = 0.25
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaStats:
    """What a stream has counted since it was opened. Bytes are RTP payload bytes; times are milliseconds.

    `lost`: packets of the far end that were given up; `late`: those of them that came after all;
    `strange_address`: dropped because they came from elsewhere; `bad_packets`: not RTP, another payload
    type or SSRC, or not decodable; `concealed`: frames made up. `remote_*`: what the far end reports of
    our packets (RTCP), `rtt_ms` None until it has.
    """

    packets_sent: int = 0
    bytes_sent: int = 0
    send_errors: int = 0
    packets_received: int = 0
    bytes_received: int = 0
    lost: int = 0
    late: int = 0
    strange_address: int = 0
    bad_packets: int = 0
    concealed: int = 0
    jitter_ms: float = 0.0
    remote_lost: int = 0
    remote_fraction_lost: float = 0.0
    remote_jitter_ms: float = 0.0
    rtt_ms: float | None = None


class StreamState(Enum):
    """A stream is bound, then flows with its first plan (held or not), then is closed."""

    BOUND = "bound"
    FLOWING = "flowing"
    CLOSED = "closed"


class MediaStream:
    """One call's RTP stream. Everything runs on the event loop's thread.

    Packets are accepted from the plan's address alone. With symmetric RTP the first packet that could be of
    this stream decides where the far end is, once: nothing that comes later moves it, except a plan with
    another address. `reaches` says whether an address may be sent to (None: any may), whoever named it.
    """

    def __init__(
        self, sockets: tuple[socket.socket, socket.socket], ports: PortRange, pacer: Pacer,
        *, loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        """Use `open`."""
        self.on_timeout: Callable[[], None] | None = None
        self.reaches: Callable[[str], bool] | None = None
        self._rtp, self._rtcp = sockets
        self._ports = ports
        self._pacer = pacer
        self._loop = loop
        self._state = StreamState.BOUND
        self._local_port = int(self._rtp.getsockname()[1])
        self._reports = RtcpSession(wall_offset_s=time.time() - loop.time())
        self._plan: MediaPlan | None = None
        self._receiver: RtpReceiver | None = None
        self._sender: RtpSender | None = None
        self._pace: Pace | None = None
        self._remote: Address | None = None  # None: symmetric, and not latched yet
        self._remote_rtcp: Address | None = None
        self._symmetric = False
        self._strange = self._bad_reports = self._report_errors = 0
        self._timeout_s = math.inf
        self._heard_s = 0.0
        self._report_due_s = math.inf
        self._housekeeping_s = 0.0
        self._listener: LegListener | None = None
        self._source: AudioSource | None = None
        loop.add_reader(self._rtp, self._readable)
        loop.add_reader(self._rtcp, self._rtcp_readable)

    @classmethod
    def open(
        cls, ports: PortRange, pacer: Pacer, *, host: str, loop: asyncio.AbstractEventLoop
    ) -> MediaStream:
        """Binds RTP (even) and RTCP (odd) on `host`. Raises `sip.rtp.ports.NoPortsLeft`; OSError: wrong
        host."""
        return cls(ports.bind(host), ports, pacer, loop=loop)

    @property
    def local_port(self) -> int:
        """The RTP port; RTCP is the one above."""
        return self._local_port

    @property
    def rate_hz(self) -> int:
        """Rate of frames both ways, fixed by the first `configure`. Raises LocalError before it."""
        return _configured(self._receiver).rate_hz

    @property
    def sends(self) -> bool:
        """Whether there is an address to send to, by the plan or latched."""
        return self._sender is not None and self._sender.address is not None

    @property
    def stats(self) -> MediaStats:
        """Counters up to now; may be read after `close`."""
        sender, receiver, remote = self._sender, self._receiver, self._reports.remote
        if sender is None or receiver is None:
            return MediaStats(strange_address=self._strange, bad_packets=self._bad_reports)
        reception = receiver.reception
        return MediaStats(
            packets_sent=sender.packets,
            bytes_sent=sender.octets,
            send_errors=sender.errors + self._report_errors,
            packets_received=receiver.packets,
            bytes_received=receiver.octets,
            lost=receiver.lost,
            late=receiver.late,
            strange_address=self._strange,
            bad_packets=receiver.bad_packets + self._bad_reports,
            concealed=receiver.concealed,
            jitter_ms=reception.jitter_ms if reception is not None else 0.0,
            remote_lost=remote.lost,
            remote_fraction_lost=remote.fraction_lost,
            remote_jitter_ms=remote.jitter * 1000 / sender.clock_rate_hz,
            rtt_ms=remote.rtt_ms,
        )

    def configure(
        self, plan: MediaPlan, *, symmetric: bool, media_timeout_s: float, inband_dtmf: bool
    ) -> bool:
        """Starts the stream, or changes it (re-INVITE: address, codec, hold, resume). False: the plan's
        address may not be sent to, and nothing is.

        The first plan fixes `rate_hz`; a later codec at another rate is resampled both ways. Raises
        LocalError for an address that is not an IP address of the socket's family, for a codec that we do
        not speak, and on a closed stream; the stream is then as it was.
        """
        if self._state is StreamState.CLOSED:
            raise LocalError("the media stream is closed")
        address = resolved(self._rtp, plan.remote_host, plan.remote_port)
        reached = not plan.sends or self._sendable(address) is not None
        reports = self._sendable(rtcp_address(self._rtp, plan))
        now = self._loop.time()
        before = self._plan
        if self._receiver is None or self._sender is None:
            self._receiver = RtpReceiver(plan.codec.rate_hz)
            self._sender = RtpSender(self._rtp, plan.codec.rate_hz, time=self._loop.time)
            self._connect()
        self._sender.configure(plan)
        self._receiver.configure(plan, inband_dtmf=inband_dtmf)
        moved = before is None or address != resolved(self._rtp, before.remote_host, before.remote_port)
        if moved or symmetric != self._symmetric:
            self._remote = None if symmetric else address
            self._sender.address = self._sendable(address)
            self._remote_rtcp = reports
        elif not symmetric:
            self._remote_rtcp = reports
        self._symmetric = symmetric
        self._plan = plan
        # Who holds the call often sends nothing; the session timer finds out whether they are still there.
        self._timeout_s = media_timeout_s if plan.receives and plan.sends else math.inf
        self._heard_s = now
        if self._pace is None:
            self._state = StreamState.FLOWING
            self._report_due_s = self._reports.first_due(now)
            self._pace = self._sender.pace = self._pacer.add(self._tick, now)
        return reached

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects a conversation; None disconnects. What arrived before is not kept."""
        if self._source is not None and self._source is not source:
            self._source.on_ready(None)
        self._listener, self._source = listener, source
        if self._state is not StreamState.CLOSED:
            self._connect()

    async def send_dtmf(self, digits: str) -> None:
        """Sends digits in place of audio (200 ms each), as RFC 4733 events or, where these were not agreed,
        as tones; returns when the last has been sent. Digits keyed while held are sent after it.

        Raises ValueError for anything but 0-9*#A-D; LocalError before the first plan, when over 64 digits
        are waiting, and when the stream closes before the last was sent.
        """
        check_digits(digits)
        sender = _configured(self._sender)
        if self._state is StreamState.CLOSED:
            raise LocalError("the media stream is closed")
        sent: asyncio.Future[bool] = self._loop.create_future()

        def done(complete: bool) -> None:
            if not sent.done():
                sent.set_result(complete)

        sender.key(digits, done)
        if not await sent:
            raise LocalError("the media stream closed before the digits were sent")

    def key_received(self, digit: str, now: float) -> None:
        """A key of the far end's by SIP INFO."""
        if self._receiver is not None:
            self._receiver.pressed(digit, Way.INFO, now)

    def close(self) -> None:
        """Sends an RTCP BYE, frees sockets and ports. Idempotent."""
        if self._state is StreamState.CLOSED:
            return
        if self._state is StreamState.FLOWING:
            self._report(self._loop.time(), bye=True)
        self._state = StreamState.CLOSED
        if self._pace is not None:
            self._pace.remove()
        if self._source is not None:
            self._source.on_ready(None)
        if self._receiver is not None:
            self._receiver.listener = None
        if self._sender is not None:
            self._sender.source = None
            self._sender.close()
        for bound in (self._rtp, self._rtcp):
            self._loop.remove_reader(bound)
            bound.close()
        self._ports.release(self._local_port)

    # Inbound ----------------------------------------------------------------------------------------

    def _readable(self) -> None:
        """Reads up to one good packet: a well-behaved stream has one per wake-up, and asking for the second
        would cost a system call per packet. What is dropped is drained."""
        now = self._loop.time()
        receiver = self._receiver
        for _ in range(BURST):
            try:
                if receiver is None:
                    self._rtp.recv(1)  # before the first plan: dropped, so that it is not heard late
                    continue
                size, address = self._rtp.recvfrom_into(receiver.buffer)
            except OSError:  # nothing left, or an ICMP error reported here
                return
            if address != self._remote and not self._latched(receiver, size, address):
                self._strange += 1
                continue
            verdict = receiver.datagram(size, now)
            if verdict is Verdict.MEDIA:
                self._heard_s = now
                return
            if verdict is Verdict.REPORT:
                self._receive_report(bytes(receiver.buffer[:size]), now)
                if self._state is StreamState.CLOSED:
                    return

    def _latched(self, receiver: RtpReceiver, size: int, address: Address) -> bool:
        if self._remote is not None or not self._symmetric or not receiver.plausible(size):
            return False
        if self._sendable(address) is None:
            return False
        self._remote = address
        sender, plan = self._sender, self._plan
        if sender is not None and plan is not None:
            if address != sender.address and plan.rtcp_port is not None:
                mux = plan.rtcp_mux
                beside = resolved(self._rtp, address[0], min(address[1] + 1, 65535))
                self._remote_rtcp = address if mux else beside
            sender.address = address
        return True

    def _rtcp_readable(self) -> None:
        now = self._loop.time()
        for _ in range(BURST):
            try:
                data, address = self._rtcp.recvfrom(2048)
            except OSError:
                return
            remote = self._remote
            if remote is None or address[0] != remote[0]:
                self._strange += 1
                continue
            self._receive_report(data, now)

    def _receive_report(self, data: bytes, now: float) -> None:
        if self._sender is None:
            return
        try:
            self._reports.receive(data, self._sender.ssrc, now)
        except MalformedPacket:
            self._bad_reports += 1

    # Outbound ---------------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        sender, receiver = self._sender, self._receiver
        assert sender is not None
        assert receiver is not None
        sender.tick(now)
        if receiver.waiting:
            receiver.flush(now)
        if now >= self._housekeeping_s:
            self._housekeeping_s = now + _HOUSEKEEPING_S
            self._housekeep(now)

    def _housekeep(self, now: float) -> None:
        if self._state is not StreamState.FLOWING:
            return
        if now >= self._report_due_s:
            self._report_due_s = self._reports.next_due(now)
            self._report(now, bye=False)
        if now - self._heard_s > self._timeout_s:
            self._timeout_s = math.inf  # said once
            if self.on_timeout is not None:
                self.on_timeout()

    def _report(self, now: float, *, bye: bool) -> None:
        sender, receiver, plan = self._sender, self._receiver, self._plan
        address = self._remote_rtcp
        if sender is None or receiver is None or plan is None or address is None:
            return
        sent = Sent(sender.ssrc, sender.timestamp_at(now), sender.packets, sender.octets)
        compose = self._reports.bye if bye else self._reports.report
        try:
            (self._rtp if plan.rtcp_mux else self._rtcp).sendto(
                compose(sent, receiver.reception, now), address
            )
        except OSError:
            self._report_errors += 1

    def _connect(self) -> None:
        """Gives listener and source to the two halves, once there are halves."""
        if self._receiver is None or self._sender is None:
            return
        self._receiver.listener = self._listener
        self._sender.source = self._source
        if self._source is not None:
            self._source.on_ready(self._wake)

    def _wake(self) -> None:
        if self._pace is not None and self._sender is not None and self._sender.silent:
            self._pace.wake()

    def _sendable(self, address: Address | None) -> Address | None:
        """`address` if it may be sent to. The unspecified one (a hold of RFC 2543) would be this machine."""
        if address is None or unspecified(address):
            return None
        return address if self.reaches is None or self.reaches(address[0]) else None


def _configured(part: _T | None) -> _T:
    if part is None:
        raise LocalError("the media stream has no plan yet")
    return part
