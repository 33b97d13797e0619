"""Runs the stack and its sockets on an event loop: delivers messages, sends, and keeps the stack's timers."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass

from pipeline.errors import boundary
from sip.errors import LocalError, MalformedMessage
from sip.message.uri import parse_hostport
from sip.stack.admission import AdmissionControl
from sip.stack.events import StackEvent
from sip.stack.inflow import Inflow
from sip.stack.local_address import LocalAddresses
from sip.stack.router import Router
from sip.stack.stack import Stack
from sip.stack.transport import Message, Transport
from sip.transaction.hop import Hop, Transmission
from sip.transaction.traces import Traces

logger = logging.getLogger(__name__)

POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Settings of an endpoint. `udp`, `tcp`, `tls`: "host:port" to bind (port 0: any free one) or None.
    `rtp_ports`: first and last. `public_address`: written to peers instead of the local address (static NAT).
    `tls` needs `tls_server`, the context with the certificate; trunks over TLS are verified with
    `tls_client`, by default against the system's authorities. Connections of peers get no descriptor from
    `descriptor_ceiling` on. `trace`: the messages of each call are kept (`sip.transaction.traces`). `dns`:
    "host:port" of the name server to ask instead of the system's. `ban_after`: refused requests in a row
    after which a stranger's address gets no answers for `ban_s`, 0: none does; nor do `never_ban`, networks,
    and the trunks' addresses. `realm`: of digest challenges, None: `public_address`, else "sip".
    `register_min_s`, `register_max_s`: bounds of how long a telephone stays registered. `participants`:
    streams of others than calls that the planes have rows for."""

    udp: str | None = None
    tcp: str | None = None
    tls: str | None = None
    rtp_ports: tuple[int, int] = (20000, 21999)
    public_address: str | None = None
    max_calls: int = 1000
    media_threads: int = 1
    user_agent: str = "openline-mediaserver"
    descriptor_ceiling: int | None = None
    tls_server: ssl.SSLContext | None = None
    tls_client: ssl.SSLContext | None = None
    trace: bool = True
    dns: str | None = None
    ban_after: int = 10
    ban_s: float = 600.0
    never_ban: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    participants: int = 0
    realm: str | None = None
    register_min_s: int = 60
    register_max_s: int = 600


class Driver:
    """Runs a `Stack` (implements `sip.call.Phone`). `take` is called with every event of the stack, in
    order."""

    def __init__(
        self, settings: EndpointSettings, gate: AdmissionControl, take: Callable[[StackEvent, float], None]
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.transport = Transport(
            datagram=self._datagram,
            message=self._message,
            failed=self._transmission_failed,
            refused=self._transmission_refused,
            bounced=self._datagram_bounced,
            stale=self._stale,
            ceiling=settings.descriptor_ceiling,
            dns_server=settings.dns,
        )
        names = self.transport.names
        self.local = LocalAddresses(
            self.transport.addresses, public=settings.public_address, known_address=names.known
        )
        self.stack = Stack(
            gate,
            self.local.signalling,
            addresses_of=names.addresses_of,
            answers=gate.answers,
            user_agent=settings.user_agent,
            streams=settings.tcp is not None,
        )
        self.inflow = Inflow(
            self.stack,
            busy=gate.busy,
            full=gate.full,
            undecided=gate.undecided,
            of_a_trunk=gate.of_a_trunk,
            silent=gate.silent,
            answers=gate.answers,
        )
        self.router = Router(self.transport.dns, names)
        self.traces = Traces(self._ends_of, keeps=settings.trace)
        self._settings, self._take = settings, take
        self._timer: asyncio.TimerHandle | None = None
        self._flushing = self._turning = False

    async def open(self) -> None:
        """Binds the sockets. Raises OSError, and `LocalError` for a bad address or TLS without a context."""
        settings = self._settings
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.transport.close)
            if settings.udp is not None:
                await self.transport.listen_udp(*_address(settings.udp))
            if settings.tcp is not None:
                await self.transport.listen_stream("tcp", *_address(settings.tcp), tls=None)
            if settings.tls is not None:
                if settings.tls_server is None:
                    raise LocalError("tls: needs a certificate")
                await self.transport.listen_stream("tls", *_address(settings.tls), tls=settings.tls_server)
            undo.pop_all()
        self.transport.use_tls(settings.tls_client or ssl.create_default_context())

    async def settle(self, limit_s: float, pending: Collection[object]) -> None:
        """Waits until every request sent has been answered and nothing is `pending`, for `limit_s` at
        most."""
        until = self.loop.time() + limit_s
        while (self.stack.unanswered or pending) and self.loop.time() < until:  # noqa: ASYNC110  # once
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """Closes the sockets; the stack's timers stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.transport.close()

    def flush(self) -> None:
        """Sends the stack's transmissions and hands its events to the application, until there are none."""
        if self._flushing:
            return  # called from within an event: the loop below goes on
        self._flushing = True
        try:
            busy = True
            while busy:
                transmissions, events = self.stack.transmissions(), self.stack.events()
                for transmission in transmissions:
                    self.traces.sent(transmission.data, transmission.hop, self.loop.time())
                    self.transport.send(transmission)
                for event in events:
                    self._tell(event)
                busy = bool(transmissions or events)
        finally:
            self._flushing = False
            self._arm()

    def _tell(self, event: StackEvent) -> None:
        sip_call_id = event.dialog_set.call_id
        # The boundary to the application's callbacks: other calls go on.
        with boundary(logger, "event of a call was not taken", sip_call_id=sip_call_id):
            self._take(event, self.loop.time())

    def _arm(self) -> None:
        at = self.stack.timer_at()
        if at is None or (self._timer is not None and self._timer.when() <= at):
            return  # a timer that fires too early does nothing and is armed again
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_at(at, self._timer_due)

    def _timer_due(self) -> None:
        self._timer = None
        try:
            self.stack.handle_timer(self.loop.time())
        finally:
            self.flush()  # sends what remains, whatever was raised

    def _datagram(self, data: bytes, source: Hop) -> None:
        self.traces.received(data, source, self.loop.time())
        try:
            self.inflow.datagram(data, source, self.loop.time())
        finally:
            self.flush()
            self._keep_turning()

    def _message(self, message: Message, source: Hop) -> None:
        if not isinstance(message, MalformedMessage):
            self.traces.message_received(message, source, self.loop.time())
        try:
            self.inflow.message(message, source, self.loop.time())
        finally:
            self.flush()
            self._keep_turning()

    def _keep_turning(self) -> None:
        if self.inflow.waiting and not self._turning:
            self._turning = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        try:
            self.inflow.turn(self.loop.time())
        finally:
            self.flush()
            self._keep_turning()

    def _transmission_failed(self, transmission: Transmission) -> None:
        self.stack.transmission_failed(transmission, self.loop.time())
        self.flush()

    def _ends_of(self, hop: Hop) -> tuple[tuple[str, int], tuple[str, int]]:
        known = self.transport.names.known(hop.host) or hop.host
        return self.local.signalling(hop), (known, hop.port)

    def _stale(self, transmission: Transmission) -> bool:
        return self.stack.clients.stale(transmission)

    def _datagram_bounced(self, quoted: bytes) -> None:
        self.stack.clients.bounced(quoted, self.loop.time())
        self.flush()

    def _transmission_refused(self, transmission: Transmission, address: str) -> None:
        self.stack.transmission_refused(transmission, address, self.loop.time())
        self.flush()


def _address(text: str) -> tuple[str, int]:
    try:
        host, port = parse_hostport(text)
    except MalformedMessage as error:
        raise LocalError(f"{text!r} is not host:port") from error
    return host, 5060 if port is None else port
