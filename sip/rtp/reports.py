"""The RTCP of one stream, on the event loop: what we tell of the far end's packets, and it of ours."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Iterable
from typing import Any, Final

from pipeline.plane.address import Address
from sip.rtp.media_address import resolved
from sip.rtp.packet import MalformedPacket
from sip.rtp.reception_stats import Reception
from sip.rtp.rtcp import RemoteView, RtcpSession, Sent
from sip.rtp.stream_security import StreamSecurity
from sip.sdp.media_plan import MediaPlan

BURST: Final = 64
"""Reports read in one wake-up at the most: strangers must not hold up the other calls."""

_READ_BYTES: Final = 2048


class Reports:
    """Reports to `remote` (None: nowhere), by the RTCP socket, or the RTP socket where `mux` says so. Counts
    what is broken (`bad`), what comes from another host than `host` (`strange`), and what could not be
    sent (`errors`). `security` protects them: what is not authentic is broken."""

    def __init__(
        self,
        rtp: socket.socket,
        rtcp: socket.socket,
        loop: asyncio.AbstractEventLoop,
        security: StreamSecurity,
    ) -> None:
        self.remote: Address | None = None
        self.mux = False
        self.host: str | None = None
        self.bad = self.strange = self.errors = 0
        self._security = security
        self._rtp, self._rtcp, self._loop = rtp, rtcp, loop
        self._session = RtcpSession(wall_offset_s=time.time() - loop.time())
        self._due_s = math.inf
        self._line: Any = None
        self._reception: Reception | None = None
        loop.add_reader(rtcp, self._readable)

    @property
    def far(self) -> RemoteView:
        """The far end's view of our packets."""
        return self._session.remote

    @property
    def jitter_ms(self) -> float:
        """Of the far end's packets."""
        return 0.0 if self._reception is None else self._reception.jitter_ms

    def begin(self, line: Any, now: float) -> None:
        """Reports are due from now on. `line`: a record of `pipeline.plane.rows.LINE`, that of the stream
        or, once it has ended, a copy."""
        if self._reception is None:
            self._due_s = self._session.first_due(now)
        self._line, self._reception = line, Reception(line)

    def aim(self, address: Address, plan: MediaPlan | None, *, signalled_by: str) -> None:
        """The far end's packets come from `address`, whatever the plan says. `signalled_by`: the link of a
        link-local one."""
        self.host = address[0]
        if plan is not None and (plan.rtcp_mux or plan.rtcp_port is not None):
            port = min(address[1] + 1, 65535)
            beside = resolved(self._rtp, address[0], port, signalled_by=signalled_by)
            self.remote = address if plan.rtcp_mux else beside

    def receive(self, data: bytes, now: float) -> None:
        """A report of the far end's."""
        if self._line is None:
            return
        compound = self._security.opened_report(data)
        if compound is None:
            self.bad += 1
            return
        try:
            self._session.receive(compound, int(self._line["own_ssrc"]), now)
        except MalformedPacket:
            self.bad += 1

    def send_due(self, now: float) -> None:
        """Sends a report if it is time."""
        if now >= self._due_s:
            self._due_s = self._session.next_due(now)
            self.send(now)

    def send(self, now: float, *, bye: bool = False) -> None:
        """Sends a report, or the last."""
        line = self._line
        if self.remote is None or line is None:
            return
        sent = Sent.of(line, now)
        compose = self._session.bye if bye else self._session.report
        heard = self._reception if line["ssrc"] >= 0 else None
        compound = self._security.sealed_report(compose(sent, heard, now))
        if compound is None:
            return
        try:
            (self._rtp if self.mux else self._rtcp).sendto(compound, self.remote)
        except OSError:
            self.errors += 1

    def send_beside(self, datagrams: Iterable[bytes], address: Address | None) -> None:
        """Sends what is neither RTP nor a report by the RTP socket."""
        for each in datagrams:
            try:
                if address is not None:
                    self._rtp.sendto(each, address)
            except OSError:
                self.errors += 1

    def close(self) -> None:
        """Reads no more reports from the socket."""
        self._loop.remove_reader(self._rtcp)

    def _readable(self) -> None:
        now = self._loop.time()
        for _ in range(BURST):
            try:
                data, address = self._rtcp.recvfrom(_READ_BYTES)
            except OSError:
                return
            if address[0] != self.host:
                self.strange += 1
                continue
            self.receive(data, now)
