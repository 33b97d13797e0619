"""UDP port pairs for media: RTP on an even port, RTCP on the next odd one (RFC 3550 section 11)."""

from __future__ import annotations

import errno
import random
import socket

from sip.errors import SipError


class NoPortsLeft(SipError):
    """Every port pair of the range is in use: the call cannot have media (answer 503)."""


class PortRange:
    """The UDP ports `first` to `last`, both included, for media of all calls of an endpoint.

    Pairs are allocated in a ring from a random start: a port that was just released is allocated last, so
    that packets still on the way to an ended call do not reach a new one, and an outsider cannot guess the
    port of the next call from a restart (RFC 3550 section 11 only asks for even/odd)."""

    __slots__ = ("_cursor", "_first", "_last", "_pairs", "_taken")

    def __init__(self, first: int, last: int, *, rng: random.Random | None = None) -> None:
        """Raises ValueError for a range outside 1 to 65535 or without room for one even/odd pair."""
        if not 0 < first <= last <= 65535:
            raise ValueError(f"not a range of UDP ports: {first}-{last}")
        self._first = first + first % 2
        self._last = last
        self._pairs = (last - self._first + 1) // 2
        if self._pairs < 1:
            raise ValueError(f"no room for an even RTP port and its odd RTCP port in {first}-{last}")
        self._taken: set[int] = set()
        self._cursor = (rng or random.SystemRandom()).randrange(self._pairs)

    @property
    def capacity(self) -> int:
        """Number of streams that may be open at once."""
        return self._pairs

    @property
    def in_use(self) -> int:
        """Number of streams that are open."""
        return len(self._taken)

    def bind(self, host: str) -> tuple[socket.socket, socket.socket]:
        """Binds two non-blocking UDP sockets on `host`: RTP (even port), RTCP (the port above).

        Pairs that another program uses are skipped. Raises `NoPortsLeft`, and OSError when `host` is not an
        address of this machine."""
        for _ in range(self._pairs):
            port = self._first + 2 * self._cursor
            self._cursor = (self._cursor + 1) % self._pairs
            if port in self._taken:
                continue
            sockets = _bind_pair(host, port)
            if sockets is not None:
                self._taken.add(port)
                return sockets
        raise NoPortsLeft(
            f"all {self._pairs} RTP port pairs of {self._first}-{self._last} are taken, "
            f"{len(self._taken)} of them by calls"
        )

    def release(self, port: int) -> None:
        """Releases the pair whose even port is `port`; its sockets must have been closed. Idempotent."""
        self._taken.discard(port)


def _bind_pair(host: str, port: int) -> tuple[socket.socket, socket.socket] | None:
    """Binds both sockets; None when either port is in use."""
    rtp = _bind(host, port)
    if rtp is None:
        return None
    rtcp = _bind(host, port + 1)
    if rtcp is None:
        rtp.close()
        return None
    return rtp, rtcp


def _bind(host: str, port: int) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.bind(socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0][4])  # with its interface
    except OSError as error:
        bound.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            return None
        raise
    return bound
