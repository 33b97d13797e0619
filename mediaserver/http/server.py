"""The HTTP server: aiohttp behind an accept loop, connection limits and deadlines of this server's own.

aiohttp waits for a head as long as a connection may idle, waits without limit for a body and for the reader
of a response, and accepts connections until there is no descriptor left. `Connection` stands between a socket
and aiohttp's protocol, unnoticed by either; `HttpServer` is the `sip.stack.listening.Door` of the
listeners."""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import json
import logging
import socket
import struct
import termios
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from mediaserver.admission.client_address import parsed, subscriber, within
from mediaserver.errors import TooSlow
from mediaserver.http.deadlines import HttpDeadlines, HttpPatience, Overdue, Progress
from mediaserver.settings.server import ServerSettings
from sip.message.uri import format_hostport
from sip.stack.listening import DESCRIPTORS, StreamListener, bind_streams

log = logging.getLogger(__name__)

SIP_SOCKETS: web.AppKey[web.Application] = web.AppKey("sip_sockets", web.Application)
"""What is served at `sip.ws`; absent, nothing."""

URL_LIMIT: Final = 64 * 1024
"""The most bytes of a request line: LiveKit's SDKs put the participant token and their first offer into
it."""

KEEP_ALIVE_S: Final = 75.0
"""How long a connection may idle between two requests."""

ANSWER_S: Final = 60.0
"""How long a client may take nothing of a response before the connection is closed."""

SHUTDOWN_S: Final = 2.0

CHECK_S: Final = 1.0
"""How often a connection's deadlines are checked."""

RETRY_AFTER_S: Final = 2

REASONS: Final = {
    DESCRIPTORS: "The server has too many connections",
    "all": "The server has too many connections",
    "address": "Too many connections from this address",
}
"""Why a connection is refused, for the log and for the client."""

SLOW: Final = "The request did not arrive in time"


class Connection(asyncio.Protocol):
    """One connection: passes every event on to `inner`, aiohttp's protocol, and enforces the deadlines.
    `host`: the address that the connection counts for."""

    def __init__(self, server: HttpServer, inner: web.RequestHandler, host: str) -> None:
        self.host = host
        self.inner = inner
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._deadlines = HttpDeadlines(server.patience, self._loop.time())
        self._request: web.BaseRequest | None = None
        self._began = False  # whether a part of a head has arrived

    # asyncio's side -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Passes the transport to aiohttp and starts checking the deadlines."""
        self._transport = cast(asyncio.Transport, transport)
        self.inner.connection_made(transport)
        self._check = self._loop.call_later(CHECK_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Passes the loss to aiohttp and the server, and stops checking the deadlines."""
        self._check.cancel()
        self.inner.connection_lost(exc)
        self._server.lost(self)

    def data_received(self, data: bytes) -> None:
        """Passes received octets to aiohttp and to the deadlines."""
        self._began = True
        self._deadlines.octets(self._loop.time())
        self.inner.data_received(data)

    def eof_received(self) -> None:
        """Passes the client's end of stream to aiohttp."""
        self.inner.eof_received()

    def pause_writing(self) -> None:
        """Passes the transport's flow control to aiohttp: its buffer is full."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Passes the transport's flow control to aiohttp: its buffer has room again."""
        self.inner.resume_writing()

    # aiohttp's side -----------------------------------------------------------------------------------------

    def requested(self, request: web.BaseRequest) -> None:
        """Notes that aiohttp has a complete head and handles `request`."""
        self._request, self._began = request, False
        self._deadlines.request(self._loop.time())

    def answered(self) -> None:
        """Notes that aiohttp has handled the request."""
        self._request = None
        self._deadlines.answered()

    # The deadlines ------------------------------------------------------------------------------------------

    def _look(self) -> None:
        overdue = self._deadlines.overdue(self._loop.time(), self._progress())
        if overdue is not None:
            self._server.overdue(overdue)
            self._end(overdue)
        if overdue is not Overdue.ANSWER:
            self._check = self._loop.call_later(CHECK_S, self._look)

    def _end(self, overdue: Overdue) -> None:
        if overdue is Overdue.BODY and self._request is not None:
            self._request.content.set_exception(TooSlow(SLOW))  # the handler that reads the body answers
        elif overdue is Overdue.HEAD and not self._transport.is_closing():
            if self._began:
                self._transport.write(_answer("408 Request Timeout", SLOW))
            self.inner.force_close()
        else:
            self._transport.abort()

    def _progress(self) -> Progress:
        transport, content = self._transport, self._request.content if self._request is not None else None
        coming = content is not None and not content.is_eof() and content.exception() is None
        return Progress(
            body=content.total_raw_bytes if content is not None and coming else None,
            reading=transport.is_reading(),
            unread=transport.get_write_buffer_size() + _unacknowledged(transport),
            closing=transport.is_closing(),
        )


class HttpServer:
    """Serves `app` on `settings.http`. No connection is accepted on a descriptor from `ceiling` on. `refused`
    gets the reason why a connection was refused, `late` the deadline that one has missed."""

    def __init__(
        self,
        app: web.Application,
        settings: ServerSettings,
        *,
        ceiling: int,
        refused: Callable[[str], object] = lambda reason: None,
        late: Callable[[str], object] = lambda what: None,
    ) -> None:
        self.patience = HttpPatience(
            head_s=settings.http_head_s,
            body_s=settings.http_body_s,
            body_bytes_per_s=settings.http_body_bytes_per_s,
            answer_s=ANSWER_S,
        )
        self._most = settings.http_connections
        self._most_per_address = settings.http_connections_per_address
        self._proxies = [ipaddress.ip_network(each) for each in settings.trusted_proxies]
        self._ceiling = ceiling
        self._tell_refused, self._tell_late = refused, late
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=SHUTDOWN_S,
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=URL_LIMIT,
            max_field_size=URL_LIMIT,
        )
        self._listeners: list[StreamListener] = []
        self._connections: dict[web.RequestHandler, Connection] = {}
        self._hosts: Counter[str] = Counter()
        self._taking: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> list[str]:
        """Listens; returns the addresses as "host:port". Raises OSError."""
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        handle = server.request_handler

        async def handled(request: web.BaseRequest) -> web.StreamResponse:
            connection = self._connections.get(request.protocol)
            if connection is None:  # the connection was lost in the same moment
                return await handle(request)
            connection.requested(request)
            try:
                return await handle(request)
            finally:
                connection.answered()

        server.request_handler = handled
        for name in ("aiohttp.server", "asyncio"):
            logging.getLogger(name).addFilter(_ours)
        for bound in await bind_streams(host, port):
            self._listeners.append(StreamListener("http", bound, self, ceiling=self._ceiling))
        return [format_hostport(*each.address) for each in self._listeners]

    async def close(self) -> None:
        """Stops listening, lets requests in progress end for up to `SHUTDOWN_S` seconds, and closes."""
        for listener in self._listeners:
            listener.close()
        await asyncio.gather(*self._taking, return_exceptions=True)
        await self._runner.cleanup()

    # The door -----------------------------------------------------------------------------------------------

    def refusal(self, host: str) -> str:
        """Returns why a connection from `host` is refused, a key of `REASONS`; "" where it is accepted."""
        if len(self._connections) >= self._most:
            return "all"
        if self._hosts[subscriber(parsed(host))] < self._most_per_address or self._is_proxy(host):
            return ""
        return "address"

    def take(self, connection: socket.socket, host: str) -> None:
        """Serves an accepted connection from `host`."""
        server = self._runner.server
        assert server is not None  # set before the listeners start
        client = subscriber(parsed(host))
        self._hosts[client] += 1
        made = Connection(self, server(), client)
        self._connections[made.inner] = made
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._connect(made, connection))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    def turn_away(self, connection: socket.socket, reason: str) -> None:
        """Answers a refused connection with 503 and Retry-After; the listener closes it."""
        self._tell_refused(reason)
        answer = _answer("503 Service Unavailable", REASONS[reason], f"Retry-After: {RETRY_AFTER_S}\r\n")
        try:
            connection.send(answer)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(URL_LIMIT)  # unread octets would reset the connection
        except OSError:
            pass  # the client has disconnected, or has sent nothing yet

    # For `Connection` ---------------------------------------------------------------------------------------

    def overdue(self, what: Overdue) -> None:
        """Counts a missed deadline of a connection."""
        self._tell_late(what.value)

    def lost(self, connection: Connection) -> None:
        """Forgets a connection that ended, and frees its place in the limits."""
        if self._connections.pop(connection.inner, None) is not None:
            self._hosts[connection.host] -= 1
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]

    def _is_proxy(self, host: str) -> bool:
        """Whether `host` brings the connections of many."""
        address = parsed(host)
        return address is not None and within(address, self._proxies)

    async def _connect(self, made: Connection, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: made, connection)
        except OSError:
            connection.close()
            self.lost(made)


def _ours(record: logging.LogRecord) -> bool:
    """Whether a line of the libraries tells of anything but a client that left or sent what is no HTTP."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, ConnectionError | web.RequestPayloadError | HttpProcessingError)


def _answer(status: str, error: str, headers: str = "") -> bytes:
    """An answer of our own, where aiohttp has no request to answer to."""
    body = json.dumps({"error": error})
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"{headers}Connection: close\r\n\r\n{body}"
    ).encode()


def _unacknowledged(transport: asyncio.Transport) -> int:
    """Octets that the kernel holds for the client: a large buffer looks full to us long after the client has
    begun to read."""
    number = transport.get_extra_info("socket").fileno()
    if number < 0:
        return 0
    octets: int = struct.unpack("i", fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)))[0]
    return octets
