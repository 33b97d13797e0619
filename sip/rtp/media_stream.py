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
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pipeline.audio import FRAME_MS
from pipeline.leg import AudioSource, LegListener
from pipeline.media.playout import Playout
from pipeline.plane.address import Address, sockaddr, unpacked
from pipeline.plane.outgoing import Outgoing
from pipeline.plane.plane import Plane
from pipeline.plane.rows import KEYS, Happened
from pipeline.plane.setup import begin_sending, configure, configure_sending, detect_tones, prepare, snapshot
from sip.errors import LocalError
from sip.rtp.dtmf_dedup import Way
from sip.rtp.heard import Heard
from sip.rtp.latch import SILENT_S, Latch
from sip.rtp.media_address import resolved, rtcp_address, unspecified
from sip.rtp.media_formats import receiving, sending
from sip.rtp.ports import PortRange
from sip.rtp.pulled import Pulled
from sip.rtp.reports import BURST, Reports
from sip.rtp.rtcp import PACKET_TYPES
from sip.rtp.telephone_event import DIGITS, check_digits
from sip.sdp.media_plan import MediaPlan

PATIENCE_MS: Final = 40
"""How long a lost packet holds up what is behind it."""

_HOUSEKEEPING_S: Final = 0.25
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaStats:
    """Counters of a stream since it was opened. Bytes are RTP payload bytes; times are milliseconds.

    `lost`: packets of the far end that were given up; `late`: those that came after all; `strange_address`:
    dropped for their source address; `bad_packets`: not RTP, another payload type or SSRC, or not decodable;
    `concealed`: frames made by concealment. `remote_*`: the far end's RTCP report blocks on packets sent
    here; `rtt_ms` None before the first."""

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
    """States of a stream: bound, flowing with a plan (held or not), closed."""

    BOUND = "bound"
    FLOWING = "flowing"
    CLOSED = "closed"


class MediaStream:
    """One call's RTP stream; a row of the media plane from its first plan to its close.

    Packets are accepted from the plan's address. With symmetric RTP a source that proves itself while that
    address is silent takes its place (`sip.rtp.latch`); `signalled_by` names the host that the signalling
    comes from, which is believed sooner. `reaches` tells whether an address may be sent to (None: every
    one), whoever named it."""

    def __init__(
        self, sockets: tuple[socket.socket, socket.socket], ports: PortRange, plane: Plane,
        *, loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        """Use `open`."""
        self.on_timeout: Callable[[], None] | None = None
        self.reaches: Callable[[str], bool] | None = None
        self.signalled_by = ""
        self._rtp, self._rtcp = sockets
        self._ports = ports
        self._plane = plane
        self._loop = loop
        self._state = StreamState.BOUND
        self._local_port = int(self._rtp.getsockname()[1])
        self._reports = Reports(*sockets, loop)
        self._latch = Latch()
        self._plan: MediaPlan | None = None
        self._number = -1
        self._line: Any = None
        self._heard: Heard | None = None
        self._outgoing: Outgoing | None = None
        self._pulled: Pulled | None = None
        self._keyed: list[tuple[int, asyncio.Future[bool]]] = []
        self._remote: Address | None = None
        self._symmetric = False
        self._strange = 0
        self._timeout_s = math.inf
        self._configured_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._listener: LegListener | None = None
        self._source: AudioSource | None = None

    @classmethod
    def open(
        cls, ports: PortRange, plane: Plane, *, host: str, loop: asyncio.AbstractEventLoop
    ) -> MediaStream:
        """Binds RTP (even) and RTCP (odd) on `host`. Raises `sip.rtp.ports.NoPortsLeft`; OSError: wrong
        host."""
        return cls(ports.bind(host), ports, plane, loop=loop)

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
        line, reports = self._line, self._reports
        if line is None:
            return MediaStats(strange_address=self._strange + reports.strange, bad_packets=reports.bad)
        return MediaStats(
            packets_sent=int(line["packets_sent"]),
            bytes_sent=int(line["octets_sent"]),
            send_errors=int(line["send_errors"]) + reports.errors,
            packets_received=int(line["packets"]),
            bytes_received=int(line["octets"]),
            lost=int(line["lost"]),
            late=int(line["late"]),
            strange_address=int(line["strange"]) + self._strange + reports.strange,
            bad_packets=int(line["bad"]) + reports.bad,
            concealed=int(line["concealed"]),
            jitter_ms=reports.jitter_ms,
            remote_lost=reports.far.lost,
            remote_fraction_lost=reports.far.fraction_lost,
            remote_jitter_ms=reports.far.jitter * FRAME_MS / max(1, int(line["send_step"])),
            rtt_ms=reports.far.rtt_ms,
        )

    def configure(
        self, plan: MediaPlan, *, symmetric: bool, media_timeout_s: float, inband_dtmf: bool
    ) -> bool:
        """Starts the stream, or changes it (re-INVITE: address, codec, hold, resume). False: the plan's
        address may not be sent to, and nothing is sent.

        The first plan fixes `rate_hz`; a later codec at another rate is resampled in both directions. Raises
        LocalError for an address that is not an IP address of the socket's family, for an unsupported codec,
        where the plane is full, and on a closed stream; the stream then stays as it was."""
        if self._state is StreamState.CLOSED:
            raise LocalError("the media stream is closed")
        address = resolved(self._rtp, plan.remote_host, plan.remote_port)
        reports = self._sendable(rtcp_address(self._rtp, plan))
        receives, sends = receiving(plan), sending(plan)
        before, now = self._plan, self._loop.time()
        if before is None:
            self._begin(plan, now)
        moved = before is None or address != resolved(self._rtp, before.remote_host, before.remote_port)
        with self._plane.held(self._number) as line:
            configure(line, receives)
            detect_tones(line, wanted=inband_dtmf or receives.events_type < 0)
            configure_sending(line, sends)
            line["symmetric"] = symmetric and plan.receives
            line["on_hold"] = not (plan.receives and plan.sends)
            if moved or not symmetric:
                self._name(line, address, now)
        if moved or not symmetric:
            self._reports.remote, self._reports.mux = reports, plan.rtcp_mux
        self._symmetric, self._plan, self._configured_s = symmetric, plan, now
        # Who holds the call often sends nothing; the session timer finds out whether they are still there.
        self._timeout_s = media_timeout_s if plan.receives and plan.sends else math.inf
        return not plan.sends or self._sendable(address) is not None

    def _begin(self, plan: MediaPlan, now: float) -> None:
        """Takes a row of the plane. What came before the first plan is not heard late."""
        _drain(self._rtp)
        try:
            self._number = self._plane.open(self._rtp, self._happened)
        except LookupError as error:
            raise LocalError(str(error)) from None
        with self._plane.held(self._number) as line:
            prepare(line, self._number, rate_hz=plan.codec.rate_hz, patience_ms=PATIENCE_MS)
            line["latch_ns"] = round(SILENT_S * _NS)
            begin_sending(line, self._rtp.fileno(), first_due_ns=self._plane.first_due_ns(self._number))
            self._line = line
        self._heard = Heard(self._line)
        self._outgoing = Outgoing(self._line, self._plane.poke)
        self._reports.begin(self._line, now)
        self._state = StreamState.FLOWING
        self._connect()
        self._housekeep()

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        """Connects a conversation; None disconnects. What arrived before is not kept."""
        self._disconnect()
        self._listener, self._source = listener, source
        if self._state is StreamState.FLOWING:
            self._connect()

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
        wanted, done = int(line["keys_wanted"]), int(line["keys_sent"])
        if wanted - done + len(digits) > KEYS:
            raise LocalError(f"more than {KEYS} DTMF digits waiting to be sent")
        for index, digit in enumerate(digits):
            line["wanted_keys"][(wanted + index) % KEYS] = DIGITS.index(digit)
        line["keys_wanted"] = wanted + len(digits)
        sent: asyncio.Future[bool] = self._loop.create_future()
        self._keyed.append((wanted + len(digits), sent))
        if not await sent:
            raise LocalError("the media stream closed before the digits were sent")

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
            self._disconnect()
            self._plane.shut(self._number, self._rtp)
            self._line = snapshot(self._line)
            self._reports.begin(self._line, now)
        self._state = StreamState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        for _, sent in self._keyed:
            _settle(sent, complete=False)
        self._reports.close()
        for bound in (self._rtp, self._rtcp):
            bound.close()
        self._ports.release(self._local_port)

    def _happened(self, kind: int, one: int, two: int) -> None:
        now = self._loop.time()
        if kind == Happened.HEARD and self._heard is not None:
            self._heard.pass_on(one, two, now)
        elif kind == Happened.SENT:
            self._left(two / _NS)
        elif kind == Happened.KEYED:
            while self._keyed and self._keyed[0][0] <= one:
                _settle(self._keyed.pop(0)[1], complete=True)
        elif kind == Happened.ASIDE:
            self._look_at(*self._plane.aside(one), two / _NS)

    def _left(self, at: float) -> None:
        if self._pulled is not None:
            self._pulled.left(at)
        elif isinstance(self._source, Playout):
            self._source.left()

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
                self._aim_reports(address)
            for packet, arrived in proof:
                self._plane.receive(self._number, packet, round(arrived * _NS))
            frames, keys = int(line["frames"]), int(line["presses"])
        if self._heard is not None:
            self._heard.pass_on(frames, keys, at)

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

    def _aim_reports(self, address: Address) -> None:
        reports, plan = self._reports, self._plan
        reports.host = address[0]
        if plan is not None and (plan.rtcp_mux or plan.rtcp_port is not None):
            beside = resolved(self._rtp, address[0], min(address[1] + 1, 65535))
            reports.remote = address if plan.rtcp_mux else beside

    def _sendable(self, address: Address | None) -> Address | None:
        """Returns `address` if it may be sent to, else None. The unspecified address (hold of RFC 2543) would
        be this machine."""
        if address is None or unspecified(address):
            return None
        return address if self.reaches is None or self.reaches(address[0]) else None

    # Listener and source ------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Gives the row to listener and source."""
        heard, outgoing, source = self._heard, self._outgoing, self._source
        if heard is None or outgoing is None:
            return
        heard.listener = self._listener
        if isinstance(source, Playout):
            source.connect(outgoing)
        elif source is not None:
            self._pulled = Pulled(source, outgoing, self._loop)

    def _disconnect(self) -> None:
        if self._heard is not None:
            self._heard.listener = None
        if self._pulled is not None:
            self._pulled.close()
            self._pulled = None
        elif isinstance(self._source, Playout):
            self._source.connect(None)

    def _housekeep(self) -> None:
        now = self._loop.time()
        self._timer = self._loop.call_at(now + _HOUSEKEEPING_S, self._housekeep)
        self._reports.send_due(now)
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


def _settle(sent: asyncio.Future[bool], *, complete: bool) -> None:
    if not sent.done():
        sent.set_result(complete)
