"""The audio of one call: RTP on the media plane, RTCP beside it on the event loop.

The plane reads, orders and decodes what comes, and paces, encodes and sends what is said, without Python in
between. Here a stream is set up, frames are passed to the listener and taken from the source, and it is
decided where the far end is.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from pipeline.audio import FRAME_MS
from pipeline.leg import AudioSource, LegListener
from pipeline.plane.address import Address, sockaddr, unpacked
from pipeline.plane.drive.plane import Plane
from pipeline.plane.outgoing import Outgoing
from pipeline.plane.rows import Happened
from pipeline.plane.setup import begin_sending, configure, configure_sending, detect_tones, prepare, snapshot
from sip.errors import LocalError
from sip.rtp.dtls import FIRST_OCTETS
from sip.rtp.dtmf_dedup import Way
from sip.rtp.e_model import delay_ms, mean_opinion_score
from sip.rtp.heard import Heard
from sip.rtp.keying import Keying
from sip.rtp.latch import SILENT_S, Latch
from sip.rtp.media_address import resolved, rtcp_address, sendable
from sip.rtp.media_formats import receiving, sending
from sip.rtp.ports import NoPortsLeft, PortRange
from sip.rtp.reports import BURST, Reports
from sip.rtp.rtcp import PACKET_TYPES
from sip.rtp.said import Attached
from sip.rtp.stream_security import Insecure, StreamSecurity
from sip.rtp.telephone_event import check_digits
from sip.sdp.ice import checked
from sip.sdp.media_plan import MediaPlan
from sip.sdp.security import Handshake

PATIENCE_MS: Final = 40
"""How long a lost packet holds up what is behind it."""

_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaStats:
    """Counters of a stream since it was opened. Bytes are RTP payload bytes; times are milliseconds.

    `lost`: packets of the far end that were given up; `late`: those that came after all; `strange_address`:
    dropped for their source address; `bad_packets`: not RTP, another payload type or SSRC, or not decodable;
    `concealed`: frames made by concealment; `forged`: packets that are not authentic under the keys agreed,
    `replayed`: packets that came before (SRTP). `remote_*`: the far end's RTCP report blocks on
    packets sent here; `rtt_ms` None before the first."""

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
    forged: int = 0
    replayed: int = 0
    jitter_ms: float = 0.0
    remote_lost: int = 0
    remote_fraction_lost: float = 0.0
    remote_jitter_ms: float = 0.0
    rtt_ms: float | None = None

    @classmethod
    def of(cls, line: Any, reports: Reports, strange: int) -> MediaStats:
        """Counters of the row `line` (None: the stream has none yet), of its reports, and datagrams from
        strange addresses that Python looked at."""
        if line is None:
            return cls(strange_address=strange + reports.strange, bad_packets=reports.bad)
        return cls(
            packets_sent=int(line["packets_sent"]),
            bytes_sent=int(line["octets_sent"]),
            send_errors=int(line["send_errors"]) + reports.errors,
            packets_received=int(line["packets"]),
            bytes_received=int(line["octets"]),
            lost=int(line["lost"]),
            late=int(line["late"]),
            strange_address=int(line["strange"]) + strange + reports.strange,
            bad_packets=int(line["bad"]) + reports.bad,
            concealed=int(line["concealed"]),
            forged=int(line["forged"]),
            replayed=int(line["replayed"]),
            jitter_ms=reports.jitter_ms,
            remote_lost=reports.far.lost,
            remote_fraction_lost=reports.far.fraction_lost,
            remote_jitter_ms=reports.far.jitter * FRAME_MS / max(1, int(line["send_step"])),
            rtt_ms=reports.far.rtt_ms,
        )

    @property
    def mos(self) -> float | None:
        """The mean opinion score (ITU-T G.107) of what the far end sent; None: nothing came."""
        return _mos(self.lost, self.packets_received, self.rtt_ms, self.jitter_ms)

    @property
    def remote_mos(self) -> float | None:
        """The mean opinion score of what the far end received; None: it sent no report."""
        if self.rtt_ms is None:
            return None
        received = self.packets_sent - self.remote_lost
        return _mos(self.remote_lost, received, self.rtt_ms, self.remote_jitter_ms)


def _mos(lost: int, received: int, rtt_ms: float | None, jitter_ms: float) -> float | None:
    if received <= 0:
        return None
    loss = max(lost, 0) / (received + max(lost, 0))
    return round(mean_opinion_score(loss, delay_ms(rtt_ms, jitter_ms)), 2)


class StreamState(Enum):
    """States of a stream: bound, flowing with a plan (held or not), closed."""

    BOUND = "bound"
    FLOWING = "flowing"
    CLOSED = "closed"


class MediaStream:
    """One call's RTP stream; a row of the media plane, at which it is from its first plan to its close.

    Packets are accepted from the plan's address. With symmetric RTP a source that proves itself while that
    address is silent takes its place (`sip.rtp.latch`); `signalled_by` names the host that the signalling
    comes from, which is believed sooner. `reaches` tells whether an address may be sent to (None: every
    one), whoever named it."""

    def __init__(
        self, sockets: tuple[socket.socket, socket.socket], ports: PortRange, plane: Plane, number: int,
        *, loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        """Use `open`."""
        self.on_timeout: Callable[[], None] | None = None
        self.on_insecure: Callable[[Insecure, str], None] | None = None
        self.reaches: Callable[[str], bool] | None = None
        self.signalled_by = ""
        self._rtp, self._rtcp = sockets
        self._ports = ports
        self._plane = plane
        self._loop = loop
        self._state = StreamState.BOUND
        self._local_port = int(self._rtp.getsockname()[1])
        self._security = StreamSecurity()
        self._reports = Reports(*sockets, loop, self._security)
        self._latch = Latch()
        self._plan: MediaPlan | None = None
        self._number = number
        self._line: Any = None
        self._heard: Heard | None = None
        self._attached = Attached(loop)
        self._keying = Keying(loop)
        self._remote: Address | None = None
        self._symmetric, self._strange = False, 0
        self._timeout_s, self._configured_s = math.inf, 0.0

    @classmethod
    def open(
        cls, ports: PortRange, plane: Plane, *, host: str, loop: asyncio.AbstractEventLoop
    ) -> MediaStream:
        """Binds RTP (even) and RTCP (odd) on `host`, and reserves a row of `plane`. Raises
        `sip.rtp.ports.NoPortsLeft`, `pipeline.plane.drive.plane.PlaneFull`; OSError: wrong host."""
        number = plane.reserve()
        try:
            sockets = ports.bind(host)
        except (NoPortsLeft, OSError):
            plane.give_back(number)
            raise
        return cls(sockets, ports, plane, number, loop=loop)

    @property
    def local_port(self) -> int:
        """The RTP port; RTCP uses the port above."""
        return self._local_port

    @property
    def rate_hz(self) -> int:
        """Rate of frames both ways, fixed by the first `configure`. Raises LocalError before it."""
        return int(self._row["rate_hz"])

    @property
    def sends(self) -> bool:
        """Whether there is an address to send to, by the plan or latched."""
        return self._line is not None and self._line["remote_size"] > 0

    @property
    def _row(self) -> Any:
        if self._line is None:
            raise LocalError("the media stream has no plan yet")
        return self._line

    @property
    def stats(self) -> MediaStats:
        """Counters up to now; may be read after `close`."""
        return MediaStats.of(self._line, self._reports, self._strange)

    @property
    def security(self) -> StreamSecurity:
        """What protects the stream; how it was protected is told after `close` too."""
        return self._security

    def configure(
        self, plan: MediaPlan, *, symmetric: bool, media_timeout_s: float, inband_dtmf: bool
    ) -> bool:
        """Starts the stream, or changes it (re-INVITE: address, codec, hold, resume). False: the plan's
        address may not be sent to, and nothing is sent.

        The first plan fixes `rate_hz`; a later codec at another rate is resampled in both directions. Raises
        LocalError for an address that is not an IP address of the socket's family, for an unsupported codec,
        for a socket that cannot be read, and on a closed stream; the stream then stays as it was."""
        if self._state is StreamState.CLOSED:
            raise LocalError("the media stream is closed")
        address = self._resolved(plan.remote_host, plan.remote_port)
        reports = self._sendable(rtcp_address(self._rtp, plan, signalled_by=self.signalled_by))
        symmetric = symmetric and plan.ice is None
        receives, sends = receiving(plan), sending(plan)
        before, now = self._plan, self._loop.time()
        if before is None:
            self._begin(plan, now)
        moved = before is None or address != self._resolved(before.remote_host, before.remote_port)
        if before is None or plan.ice is None or plan.ice != before.ice:
            named = moved or not symmetric  # else where it is was found out
        else:
            named = False  # found by ICE, which SDP's port is not
        with self._plane.held(self._number) as line:
            configure(line, receives)
            detect_tones(line, wanted=inband_dtmf or receives.events_type < 0)
            ready = self._security.agree(line, plan.security, now)
            configure_sending(line, sends if ready else replace(sends, sends=False))
            line["symmetric"] = symmetric and plan.receives
            if named:
                self._name(line, address, now)
        if named:
            self._reports.remote, self._reports.mux = reports, plan.rtcp_mux
        self._symmetric, self._plan, self._configured_s = symmetric, plan, now
        self._reports.send_beside(self._security.flight(now), self._remote)
        # Who holds the call often sends nothing; the session timer finds out whether they are still there.
        self._timeout_s = media_timeout_s if plan.receives and plan.sends else math.inf
        return not plan.sends or plan.ice is not None or self._sendable(address) is not None

    def _begin(self, plan: MediaPlan, now: float) -> None:
        """Takes a row of the plane. What came before the first plan is not heard late."""
        if not isinstance(plan.security, Handshake):  # whose first datagram may have come
            _drain(self._rtp)
        try:
            self._plane.open(self._number, self._rtp, self._happened)
        except OSError as error:
            raise LocalError(str(error)) from None
        with self._plane.held(self._number) as line:
            prepare(line, self._number, rate_hz=plan.codec.rate_hz, patience_ms=PATIENCE_MS)
            line["latch_ns"] = round(SILENT_S * _NS)
            begin_sending(line, self._rtp.fileno(), first_due_ns=self._plane.first_due_ns(self._number))
        # Not the record that kernels were handed, with which numpy keeps 4 KiB for its life.
        self._line = self._plane.rows[self._number]
        self._heard = Heard(self._line)
        self._reports.begin(self._line, now)
        self._state = StreamState.FLOWING
        self._attached.begin(self._heard, Outgoing(self._line, self._plane.poke))
        self._plane.rounds.join(self._number, self._keep_house)
        self._keep_house(now)

    @property
    def position(self) -> int:
        """Where the next frame is on the far end's media clock; 0 before the first."""
        return self._heard.position if self._heard is not None else 0

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects a conversation; None disconnects. What arrived before is not kept."""
        self._attached.attach(listener, source)

    async def send_dtmf(self, digits: str) -> None:
        """Sends digits in place of audio (200 ms each), as RFC 4733 events or, where these were not
        negotiated, as tones; returns when the last has been sent. Digits keyed while the call is held are
        sent after it.

        Raises ValueError for characters other than 0-9*#A-D; LocalError before the first plan, when over 64
        digits wait, and when the stream closes before the last was sent."""
        check_digits(digits)
        line = self._row
        if self._state is StreamState.CLOSED:
            raise LocalError("the media stream is closed")
        await self._keying.send(line, digits)

    def key_received(self, digit: str, now: float) -> None:
        """A key of the far end's by SIP INFO."""
        if self._heard is not None:
            self._heard.press(digit, Way.INFO, now)

    def close(self) -> None:
        """Sends an RTCP BYE, frees sockets, ports and row. Idempotent."""
        if self._state is StreamState.CLOSED:
            return
        if self._state is StreamState.FLOWING:
            now = self._loop.time()
            self._reports.send(now, bye=True)
            self._attached.end()
            self._plane.rounds.leave(self._number)
            self._heard = None  # the row is another stream's soon
            self._plane.shut(self._number, self._rtp)
            self._security.close(self._line)
            self._line = snapshot(self._line)
            self._reports.begin(self._line, now)
        else:
            self._plane.give_back(self._number)
        self._state = StreamState.CLOSED
        self._keying.close()
        self._reports.close()
        for bound in (self._rtp, self._rtcp):
            bound.close()
        self._ports.release(self._local_port)

    def _happened(self, kind: int, one: int, two: int) -> None:
        now = self._loop.time()
        if kind == Happened.HEARD and self._heard is not None:
            self._heard.pass_on(one, two, now)
        elif kind == Happened.SENT:
            self._attached.left()
        elif kind == Happened.KEYED:
            self._keying.sent(one)
        elif kind == Happened.ASIDE:
            data, sender = self._plane.aside(self._number, one)
            look = self._look_at
            if data and data[0] < FIRST_OCTETS.stop:
                look = self._shake if data[0] in FIRST_OCTETS else self._check
            look(data, sender, two / _NS)

    def _look_at(self, data: bytes, sender: bytes, at: float) -> None:
        """A report on the RTP port, or a datagram that may decide where the far end is."""
        address, line = unpacked(sender), self._row
        if address == self._remote:
            if len(data) > 1 and data[1] in PACKET_TYPES:
                self._reports.receive(data, at)
                return
            proof = [(data, at)]  # put aside before its source was latched onto
        elif self._sendable(address) is None:
            proof = []
        else:
            clock_hz = int(line["media"][data[1] & 0x7F]["clock_hz"]) if len(data) > 1 else 0
            heard_at = int(line["heard_ns"]) / _NS
            proof = self._latch.judge(data, address, at, clock_hz=clock_hz, heard_at=heard_at)
        if not proof:
            self._strange += 1
            return
        with self._plane.held(self._number):
            if address != self._remote:
                self._strange -= len(proof) - 1  # they were no strangers after all
                self._aim(line, address)
                self._reports.aim(address, self._plan, signalled_by=self.signalled_by)
            for packet, arrived in proof:  # the plane has taken SRTP off them
                self._plane.receive(self._number, packet, round(arrived * _NS))
            frames, keys = int(line["frames"]), int(line["presses"])
        if self._heard is not None:
            self._heard.pass_on(frames, keys, at)

    def _check(self, data: bytes, sender: bytes, at: float) -> None:
        """A connectivity check of ICE, which proves where the far end is."""
        address, plan = unpacked(sender), self._plan
        found = checked(data, plan.ice, *address[:2]) if plan is not None and plan.ice is not None else None
        if found is None:
            self._strange += 1
            return
        self._reports.send_beside([found.answer], address)
        if found.nominated and address != self._remote:
            with self._plane.held(self._number) as line:
                self._aim(line, address)
                self._reports.aim(address, plan, signalled_by=self.signalled_by)
            self._plane.poke()

    def _shake(self, data: bytes, sender: bytes, at: float) -> None:
        """A datagram of DTLS: who has the right certificate is the far end. A stranger can but spoil it."""
        address = unpacked(sender)
        hosts = (self._remote or address)[0], self.signalled_by
        near = address == self._remote or (self._symmetric and address[0] in hosts)
        proved = self._plan is not None and self._plan.ice is not None
        if not near or not (proved or self._sendable(address) is not None):
            self._strange += 1
            return
        self._reports.send_beside(self._security.handshake(data, at), address)
        plan = self._plan
        if plan is None or not self._security.shaken:
            return
        with self._plane.held(self._number) as line:
            self._security.take_keys(line)
            configure_sending(line, sending(plan))
            if self._symmetric and address != self._remote:
                self._aim(line, address)
                self._reports.aim(address, self._plan, signalled_by=self.signalled_by)
        self._plane.poke()

    def _name(self, line: Any, address: Address, now: float) -> None:
        """The plan says that the far end is at `address`."""
        left = self._remote if self._remote != address else None
        self._latch.aim(frozenset((address[0], self.signalled_by)), left=left, now=now)
        self._aim(line, self._sendable(address))
        self._reports.host = address[0] if self._remote is not None else None
        if left is not None:
            line["heard_ns"] = 0  # the one that was left may be replaced at once

    def _aim(self, line: Any, address: Address | None) -> None:
        packed = b"" if address is None else sockaddr(address)
        line["remote"][: len(packed)] = list(packed)
        line["remote_size"] = len(packed)
        self._remote = address

    def _resolved(self, host: str, port: int) -> Address:
        return resolved(self._rtp, host, port, signalled_by=self.signalled_by)

    def _sendable(self, address: Address | None) -> Address | None:
        return sendable(address, self.reaches)

    def _keep_house(self, now: float) -> None:
        self._reports.send_due(now)
        self._reports.send_beside(self._security.flight(now), self._remote)
        wrong = self._security.wrong(self._line)
        if wrong is not None and self.on_insecure is not None:
            self.on_insecure(wrong, self._security.error)
        heard_s = max(self._configured_s, int(self._line["heard_ns"]) / _NS)
        if now - heard_s > self._timeout_s:
            self._timeout_s = math.inf  # said once
            if self.on_timeout is not None:
                self.on_timeout()


def _drain(bound: socket.socket) -> None:
    for _ in range(BURST):
        try:
            bound.recv(1)
        except OSError:
            return
