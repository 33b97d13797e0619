"""Listens for stream connections, those of HTTP too: accepts, refuses and logs.

asyncio's own accept loop cannot be used with hostile peers: it accepts until the process has no descriptor
left, and then logs a traceback for each of a hundred tries, a hundred times as many a second later. Here a
connection whose descriptor is not below `ceiling` is refused. The kernel allocates the lowest free number, so
the descriptors from `ceiling` on stay free for calls."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any, Final, Protocol

logger = logging.getLogger(__name__)

BACKLOG: Final = 512

AT_ONCE: Final = 16
"""Connections accepted per iteration of the event loop."""

PAUSE_S: Final = 0.02
"""Seconds of pause after `AT_ONCE` refusals in a row: a flood may not cost more than a call."""

RETRY_S: Final = 1.0
"""Seconds until the next try without a descriptor, memory or a buffer."""

REPORT_S: Final = 30.0
"""Seconds between log lines while connections are refused; the first and the end are logged at once."""

DESCRIPTORS: Final = "descriptors"
"""The listener's own reason to refuse."""

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE: Final = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR})


class Door(Protocol):
    """The owner of a listener's connections."""

    def refusal(self, host: str) -> str:
        """Returns why a connection of `host` is refused, as a word for the log; "" where it is accepted."""

    def take(self, connection: socket.socket, host: str) -> None:
        """Takes a connection of `host` over."""

    def turn_away(self, connection: socket.socket, reason: str) -> None:
        """Tells the peer of a connection refused for `reason`; the listener closes it afterwards."""


class StreamListener:
    """Accepts the connections of `bound` for `door`. `bound` listens already and is closed with the
    listener."""

    def __init__(self, name: str, bound: socket.socket, door: Door, *, ceiling: int | None = None) -> None:
        self.address: tuple[str, int] = bound.getsockname()[:2]
        self._name = name
        self._bound = bound
        self._door = door
        self._ceiling = ceiling
        self._loop = asyncio.get_running_loop()
        self._refused = 0  # since the last log line
        self._report: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._listen()

    def close(self) -> None:
        """Stops listening and closes the socket. Idempotent."""
        if self._bound.fileno() < 0:
            return
        for timer in (self._report, self._retry):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._bound)
        self._bound.close()

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._bound, self._arrived)

    def _pause(self, pause_s: float) -> None:
        self._loop.remove_reader(self._bound)
        self._retry = self._loop.call_later(pause_s, self._listen)

    def _arrived(self) -> None:
        refused = 0
        for _ in range(AT_ONCE):
            try:
                connection, address = self._bound.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _GONE:
                    self._starved(error)
                    return
                continue
            refused += not self._taken(connection, address[0])
        if refused == AT_ONCE:
            self._pause(PAUSE_S)

    def _taken(self, connection: socket.socket, host: str) -> bool:
        connection.setblocking(False)
        full = self._ceiling is not None and connection.fileno() >= self._ceiling
        reason = DESCRIPTORS if full else self._door.refusal(host)
        if not reason:
            self._door.take(connection, host)
            return True
        with connection:
            self._door.turn_away(connection, reason)
        self._tell(reason)
        return False

    def _starved(self, error: OSError) -> None:
        self._tell(DESCRIPTORS if error.errno in _EXHAUSTED else errno.errorcode.get(error.errno or 0, ""))
        self._pause(RETRY_S)

    def _tell(self, reason: str) -> None:
        self._refused += 1
        if self._report is None:
            self._told("connections refused", reason=reason)

    def _told(self, message: str, **fields: object) -> None:
        logger.warning(message, extra={"listener": self._name, **fields})
        self._refused = 0
        self._report = self._loop.call_later(REPORT_S, self._still)

    def _still(self) -> None:
        self._report = None
        if self._refused:
            self._told("connections still refused", connections=self._refused)
        else:
            logger.warning("connections taken again", extra={"listener": self._name})


async def bind_streams(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen on every address of `host`; that of "::" takes IPv4 too, with addresses as
    ::ffff:192.0.2.1 (RFC 4291 §2.5.5.2). Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            bound.append(_bind(family, address, v6_only=len(found) > 1))
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound


def _bind(family: int, address: Any, *, v6_only: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(v6_only))
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound
