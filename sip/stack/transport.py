"""The sockets below the stack: UDP, TCP and TLS on asyncio (RFC 3261 section 18).

Stream connections are used in both directions: a request that arrives on one is answered on it, and a request
goes over the one that is open to its destination. All queues are bounded: bytes that a peer does not read,
messages for a connection being opened, connections, and the time that one may stay silent."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from sip.client_tls import ClientTls
from sip.egress import canonical
from sip.errors import MalformedMessage
from sip.message.framing import PING, PONG, KeepAlive, StreamParser
from sip.message.message import Request, Response
from sip.stack.datagrams import DatagramSocket
from sip.stack.dns import Dns
from sip.stack.listening import StreamListener, bind_streams
from sip.stack.resolver import Names
from sip.stack.websocket import Frames, flow_from
from sip.transaction.hop import SWITCH_S, Hop, Transmission

logger = logging.getLogger(__name__)

MAX_UNREAD_BYTES = 256 << 10  # a peer that does not read responses is disconnected
MAX_CONNECTIONS = 1024
MAX_CONNECTIONS_PER_HOST = 128
MAX_WAITING = 256  # messages for one connection being opened, or one name being looked up
CONNECT_TIMEOUT_S = 5.0
FIRST_MESSAGE_S = 20.0  # a connection without a valid SIP message by then is closed
IDLE_S = 3600.0
SWEEP_S = 5.0

_REFUSES_CERTIFICATE = re.compile(r"ALERT_\w*(CERT|CA$|HANDSHAKE_FAILURE|ACCESS_DENIED|DECRYPT_ERROR)")
"""OpenSSL's names of the alerts of a peer that does not want our certificate, or misses one. After any other
error it may have read what was sent."""

Message = Request | Response | MalformedMessage
Place = tuple[str, str, int, str, ClientTls | None]


def place_of(hop: Hop) -> Place:
    """What a connection is kept under: over TLS also whose certificate it has shown, to whom."""
    if hop.transport != "tls":
        return hop.transport, hop.host, hop.port, "", None
    return hop.transport, hop.host, hop.port, hop.name, hop.egress.tls if hop.egress is not None else None


class StreamConnection(asyncio.Protocol):
    """One stream connection, opened by either side. `heard`: how often its peer has sent something, `pongs`:
    how often that was a pong."""

    def __init__(self, owner: Transport, transport_name: str, number: int, *, dialled: bool) -> None:
        self.number = number
        self.heard_at = 0.0
        self.heard = self.pongs = 0
        self._unanswered = 0  # pings
        self.spoke_sip = dialled
        self.unread: list[Transmission] | None = [] if dialled and transport_name == "tls" else None
        """Sent before anything was heard: over TLS the peer may refuse our certificate only afterwards, and
        has read nothing then. None: it has said something, so it reads."""
        self._owner = owner
        self._name = transport_name
        self._parser = StreamParser()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self.source = Hop(self._name, canonical(host), port, self.number)
        self.heard_at = self._owner.loop.time()
        if not self._owner.connection_opened(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._owner.loop.time()
        self.heard += 1
        self.unread = None
        if self._unanswered and self._parser.idle and data.startswith(PONG) and not data.startswith(PING):
            self._unanswered -= 1  # not for the parser: two pongs in a row would read as a ping
            self.pongs += 1
            data = data[len(PONG) :]
        for found in self._parser.receive(data):
            if isinstance(found, KeepAlive):
                self.write(PONG)
                continue
            self.spoke_sip = self.spoke_sip or not isinstance(found, MalformedMessage)
            self._owner.message_received(found, self.source)
        if self._parser.broken:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.connection_closed(self)
        if isinstance(exc, ssl.SSLError) and _REFUSES_CERTIFICATE.search(exc.reason or ""):
            self._owner.turned_away(self)

    def ping(self) -> bool:
        """Sends a keep-alive; False as `write`."""
        self._unanswered += 1
        return self.write(PING)

    def write(self, data: bytes) -> bool:
        """Writes `data`. False: the connection is closed, or its peer does not read."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.abort()
            return False
        transport.write(data)
        return True

    def close(self) -> None:
        """Closes after the bytes already written have been sent."""
        if self._transport is not None and not self._transport.is_closing():  # Python 3.11.2: see `abort`
            self._transport.close()

    def abort(self) -> None:
        """Closes at once; what is sent next opens a new connection, before `connection_lost` is called. In
        Python 3.11.2 a TLS transport that was closed twice cannot be aborted
        (`asyncio.sslproto`: AttributeError), hence `close` closes once."""
        if self._transport is not None:
            self._transport.abort()
            self._owner.connection_closed(self)


class _StreamDoor:
    """The owner of one listener's connections (`sip.stack.listening.Door`); runs the TLS handshake first."""

    def __init__(self, owner: Transport, transport_name: str, tls: ssl.SSLContext | None) -> None:
        self._owner = owner
        self._name = transport_name
        self._tls = tls

    def refusal(self, host: str) -> str:
        """Returns why a connection of `host` is refused, "" where it is accepted."""
        return self._owner.refusal(host)

    def take(self, connection: socket.socket, host: str) -> None:
        """Opens the connection on the event loop."""
        self._owner.run(self._connect(connection))

    def turn_away(self, connection: socket.socket, reason: str) -> None:
        """Closes without a message, as SIP has none for this."""

    async def _connect(self, connection: socket.socket) -> None:
        owner = self._owner
        try:
            await owner.loop.connect_accepted_socket(
                lambda: owner.accepted(self._name),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else CONNECT_TIMEOUT_S,
            )
        except OSError:  # ssl.SSLError and TimeoutError are OSErrors
            connection.close()


class Transport:
    """Sends `Transmission`s and delivers received messages. Must be used from the event loop's thread."""

    def __init__(
        self,
        *,
        datagram: Callable[[bytes, Hop], None],
        message: Callable[[Message, Hop], None],
        failed: Callable[[Transmission], None],
        refused: Callable[[Transmission, str], None],
        bounced: Callable[[bytes], None] = lambda quoted: None,
        stale: Callable[[Transmission], bool] = lambda transmission: False,
        ceiling: int | None = None,
        dns_server: str | None = None,
    ) -> None:
        """`datagram` and `message` receive the messages of UDP and of streams, `failed` every transmission
        with a transaction that could not be sent, `refused` those whose address is closed to the trunk,
        `bounced` the beginning of each datagram that came back by ICMP. What has waited for a connection is
        not sent if it is `stale` by then.
        Connections of peers get no descriptor from `ceiling` on."""
        self.loop = asyncio.get_running_loop()
        self.addresses: dict[str, tuple[str, int]] = {}
        self._datagram = datagram
        self.message_received = message
        self.closed: Callable[[int], None] = lambda number: None
        """Called with the number of each connection that is closed."""
        self._failed = failed
        self._refused = refused
        self._bounced = bounced
        self._stale = stale
        self._client_tls: ssl.SSLContext | None = None
        self._udp: DatagramSocket | None = None
        self.unread_s = 0.0
        """The longest time in seconds that a datagram has waited to be read; reset by its reader."""
        self._ceiling = ceiling
        self._listeners: list[StreamListener] = []
        self._numbers = itertools.count(1)
        self._connections: dict[int, StreamConnection | Frames] = {}
        self._dialled: dict[Place, StreamConnection] = {}
        self._waiting: dict[Place, list[Transmission]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.dns = Dns(self.loop, server=dns_server)
        self.names = Names(self.loop, self._family, self.dns)
        self._sweep: asyncio.TimerHandle | None = None

    # Opening and closing ----------------------------------------------------------------------------------

    async def listen_udp(self, host: str, port: int) -> None:
        """Binds the UDP socket to `host` and `port` (0: any free one). Raises OSError."""
        self._udp = await DatagramSocket.bind(host, port, self._received, bounced=self._bounced)
        self.addresses["udp"] = self._udp.address

    def _received(self, data: bytes, sender: tuple[str, int], waited_s: float) -> None:
        self.unread_s = max(self.unread_s, waited_s)
        self._datagram(data, Hop("udp", sender[0], sender[1]))

    async def listen_stream(self, name: str, host: str, port: int, *, tls: ssl.SSLContext | None) -> None:
        """Binds the stream transport "tcp", or "tls" with its context. Raises OSError."""
        for bound in await bind_streams(host, port):
            door = _StreamDoor(self, name, tls)
            listener = StreamListener(name, bound, door, ceiling=self._ceiling)
            self._listeners.append(listener)
            self.addresses.setdefault(name, listener.address)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Sets the TLS context of outgoing connections; without one, TLS destinations fail."""
        self._client_tls = context

    async def close(self) -> None:
        """Closes everything; messages handed over before are sent where the peer reads."""
        if self._sweep is not None:
            self._sweep.cancel()
        for listener in self._listeners:
            listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, self.names.close(), return_exceptions=True)
        for connection in list(self._connections.values()):
            connection.close()
        if self._udp is not None:
            self._udp.close()
        await asyncio.sleep(0)
        for connection in list(self._connections.values()):
            connection.abort()
        await asyncio.sleep(0)

    # Sending ----------------------------------------------------------------------------------------------

    def send(self, transmission: Transmission) -> None:
        """Sends at once, or when a name is resolved or a connection opened. Never raises."""
        hop = transmission.hop
        if hop.transport == "udp":
            self._send_datagram(transmission)
            return
        connection = self._connections.get(hop.connection)
        if connection is None:
            connection = self._dialled.get(place_of(hop))
        if connection is None:
            self._enqueue(transmission)
        elif not self._allowed(transmission, connection.source.host):
            return
        elif not connection.write(transmission.data):
            self._fail(transmission)
        elif connection.unread is not None and len(connection.unread) < MAX_WAITING:
            connection.unread.append(transmission)

    def dialled(self, hop: Hop) -> StreamConnection | None:
        """Returns the open connection that was made for `hop`, None where there is none."""
        return self._dialled.get(place_of(hop))

    def _family(self) -> int | None:
        return self._udp.family if self._udp is not None else None

    def _allowed(self, transmission: Transmission, address: str) -> bool:
        """Whether `address` may be sent to; if not, `refused` is called."""
        hop = transmission.hop
        if hop.egress is None or hop.egress.allows(address, host=hop.domain):
            return True
        # Called later, because the stack is in a call of its own and must not be entered again.
        self.loop.call_soon(self._refused, transmission, address)
        return False

    def _send_datagram(self, transmission: Transmission) -> None:
        if self._udp is None:
            self._fail(transmission)
            return
        address = self.names.known(transmission.hop.host)
        if address is None:
            self._enqueue(transmission)
            return
        if not self._allowed(transmission, address):
            return
        try:
            self._udp.sendto(transmission.data, (address, transmission.hop.port))
        except (OSError, ValueError):
            self._fail(transmission)

    def _enqueue(self, transmission: Transmission) -> None:
        hop = transmission.hop
        place = place_of(hop)
        waiting = self._waiting.get(place)
        if waiting is not None:
            if len(waiting) < MAX_WAITING:
                waiting.append(transmission)
            else:
                self._fail(transmission)
            return
        if len(self._waiting) >= MAX_CONNECTIONS:
            self._fail(transmission)
            return
        self._waiting[place] = [transmission]
        self.run(self._reach(hop))

    async def _reach(self, hop: Hop) -> None:
        """Resolves a name or opens a connection, then sends the messages queued for it."""
        place = place_of(hop)
        reached = False
        try:
            async with asyncio.timeout(SWITCH_S if hop.switched else CONNECT_TIMEOUT_S):
                address = await self.names.resolve(hop.host)
                waiting = self._waiting[place]
                waiting[:] = [each for each in waiting if self._allowed(each, address)]
                if waiting and hop.transport != "udp":
                    await self._connect(hop, address)
            reached = True
        except (OSError, ValueError, ssl.SSLError):
            logger.warning("SIP peer cannot be reached", extra={"peer": hop.host, "transport": hop.transport})
        finally:
            waiting = self._waiting.pop(place, [])
        for transmission in waiting:
            if self._stale(transmission):
                continue
            if reached:
                self.send(replace(transmission, hop=replace(transmission.hop, connection=0)))
            else:
                self._fail(transmission)

    async def _connect(self, hop: Hop, address: str) -> None:
        own = hop.egress.tls if hop.egress is not None else None
        context = (own.context if own else self._client_tls) if hop.transport == "tls" else None
        if hop.transport not in ("tcp", "tls") or (hop.transport == "tls" and context is None):
            raise OSError("nothing connects there")  # a browser connects here, never the other way
        number = next(self._numbers)
        _, connection = await self.loop.create_connection(
            lambda: StreamConnection(self, hop.transport, number, dialled=True),
            address,
            hop.port,
            ssl=context,
            server_hostname=((own and own.server_name) or hop.domain) if context is not None else None,
        )
        if connection.number not in self._connections:
            raise OSError("the connection was closed at once")
        # Also under its address: contacts name that, and the certificate is for the name (RFC 5923).
        self._dialled[place_of(hop)] = connection
        self._dialled[place_of(replace(hop, host=address, name=""))] = connection

    def _fail(self, transmission: Transmission) -> None:
        if transmission.key:
            # Called later, because the stack is in a call of its own and must not be entered again.
            self.loop.call_soon(self._failed, transmission)

    # Connections ------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs `work` as a task, which is cancelled when the transport closes."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def accepted(self, transport_name: str) -> StreamConnection:
        """Makes the protocol of a connection that a peer has opened."""
        return StreamConnection(self, transport_name, next(self._numbers), dialled=False)

    def refusal(self, host: str) -> str:
        """Returns the limit that a connection of `host` exceeds, "" for none."""
        if len(self._connections) >= MAX_CONNECTIONS:
            return "all"
        same = sum(each.source.host == host for each in self._connections.values())
        return "address" if same >= MAX_CONNECTIONS_PER_HOST else ""

    def framed(
        self, host: str, port: int, *, send: Callable[[bytes], bool], shut: Callable[[], None]
    ) -> Frames | None:
        """Returns the connection of a WebSocket from `host` and `port` (`sip.stack.websocket`); None where
        there are too many."""
        source = flow_from(host, port, next(self._numbers))
        frames = Frames(self, source, send=send, shut=shut)
        frames.heard_at = self.loop.time()
        return frames if self.connection_opened(frames) else None

    def connection_opened(self, connection: StreamConnection | Frames) -> bool:
        """Registers `connection`. False: there are too many, in all or of that host."""
        if self.refusal(connection.source.host):
            return False
        self._connections[connection.number] = connection
        if self._sweep is None:
            self._sweep = self.loop.call_later(SWEEP_S, self._sweep_idle)
        return True

    def connection_closed(self, connection: StreamConnection | Frames) -> None:
        """Removes `connection`, if it is still there: the next message to its peer opens a new one."""
        if self._connections.pop(connection.number, None) is None:
            return
        for place in [place for place, each in self._dialled.items() if each is connection]:
            del self._dialled[place]
        self.closed(connection.number)

    def turned_away(self, connection: StreamConnection) -> None:
        """Reports the messages of a connection whose TLS the peer has refused: none was read."""
        for transmission in connection.unread or ():
            self._fail(transmission)

    def _sweep_idle(self) -> None:
        now = self.loop.time()
        for connection in list(self._connections.values()):
            limit_s = IDLE_S if connection.spoke_sip else FIRST_MESSAGE_S
            if now - connection.heard_at > limit_s:
                connection.abort()
        self._sweep = self.loop.call_later(SWEEP_S, self._sweep_idle) if self._connections else None
