"""The UDP socket of the SIP stack: reads until the kernel's buffer is empty, and tells how long each datagram
waited there.

asyncio's own endpoint reads one datagram per iteration of the event loop. Where an iteration takes 10 ms,
that is a hundred a second, be they INVITEs or BYEs, and the rest waits in the kernel until senders give up.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
import time
from collections.abc import Callable

from sip.egress import canonical

RECEIVE_BUFFER_BYTES = 4 << 20  # a burst of 200 INVITEs is 300 kB, and the loop may be busy
MAX_DATAGRAM = 65_535

BURST = 256
BURST_S = 0.008
"""Seconds of reading in one iteration of the event loop, at most: audio is due every few milliseconds."""

SO_TIMESTAMPNS = 35
"""Linux: each datagram comes with the time of its arrival (socket(7)). Python has no name for the option."""

_STAMP = struct.Struct("@ll")

RECEIVE_ERRORS = {
    socket.AF_INET: (socket.IPPROTO_IP, 11),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25),
}
"""Linux, ip(7): IP_RECVERR and IPV6_RECVERR, for which Python has no names: ICMP errors are kept, each with
the datagram that it quotes."""
MSG_ERRQUEUE = 0x2000

UNREACHABLE = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOPROTOOPT})
"""Errors of RFC 3261 18.4: port, host, network and protocol unreachable."""
_ERROR = struct.Struct("@IBB")
_ICMP_ORIGINS = (2, 3)  # ICMP, ICMPv6
SEND_TRIES = 8

Address = tuple[str, int]


class DatagramSocket:
    """A bound socket. `received` is called with each datagram, its sender, and the seconds that it waited,
    `bounced` with the beginning of each datagram that an ICMP error says did not arrive."""

    def __init__(
        self,
        bound: socket.socket,
        loop: asyncio.AbstractEventLoop,
        received: Callable[[bytes, Address, float], None],
        bounced: Callable[[bytes], None],
    ) -> None:
        """Use `bind`."""
        self.family = bound.family
        self.address: Address = bound.getsockname()[:2]
        self._socket = bound
        self._loop = loop
        self._received = received
        self._bounced = bounced
        self._buffer = bytearray(MAX_DATAGRAM)
        self._view = memoryview(self._buffer)
        loop.add_reader(bound, self._readable)

    @classmethod
    async def bind(
        cls,
        host: str,
        port: int,
        received: Callable[[bytes, Address, float], None],
        *,
        bounced: Callable[[bytes], None] = lambda quoted: None,
    ) -> DatagramSocket:
        """Binds the first address of `host`. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            bound.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            bound.setsockopt(*RECEIVE_ERRORS[socket.AF_INET], 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # [::] serves IPv4 as well
                bound.setsockopt(*RECEIVE_ERRORS[socket.AF_INET6], 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
        return cls(bound, loop, received, bounced)

    def sendto(self, data: bytes, address: Address) -> None:
        """Sends at once. A datagram for which the kernel has no room is dropped, as it might be on its way.
        Raises OSError, ValueError."""
        host, port = address
        if self.family == socket.AF_INET6 and ":" not in host:
            host = f"::ffff:{host}"
        with contextlib.suppress(BlockingIOError):
            for _ in range(SEND_TRIES - 1):
                try:
                    self._socket.sendto(data, (host, port))
                except OSError as error:
                    if error.errno not in UNREACHABLE:
                        raise
                    # The kernel tells first of an earlier datagram, to whomever it went, and sends nothing.
                else:
                    return
            self._socket.sendto(data, (host, port))

    def close(self) -> None:
        """Closes the socket, and stops reading. Idempotent."""
        if self._socket.fileno() < 0:  # closed before
            return
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _readable(self) -> None:
        until = self._loop.time() + BURST_S
        for _ in range(BURST):
            try:
                size, ancillary, _, sender = self._socket.recvmsg_into([self._buffer], 64)
            except BlockingIOError:
                break
            except OSError:  # an ICMP error, kept in the queue of errors as well
                continue
            self._received(bytes(self._view[:size]), (canonical(sender[0]), sender[1]), _waited_s(ancillary))
            if self._socket.fileno() < 0:
                return
            if self._loop.time() > until:
                break
        self._read_errors()

    def _read_errors(self) -> None:
        """Reads what ICMP has said of datagrams sent before."""
        for _ in range(BURST):
            if self._socket.fileno() < 0:
                return
            try:
                quoted, ancillary, _, _ = self._socket.recvmsg(MAX_DATAGRAM, 512, MSG_ERRQUEUE)
            except OSError:  # empty
                return
            if _unreachable(ancillary):
                self._bounced(quoted)


def _waited_s(ancillary: list[tuple[int, int, bytes]]) -> float:
    """Returns the seconds since the kernel received a datagram; 0 without a timestamp, or when the clock was
    set."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS) and len(data) >= _STAMP.size:
            seconds, nanoseconds = _STAMP.unpack_from(data)
            waited_s = time.time() - seconds - nanoseconds / 1e9
            return waited_s if 0.0 < waited_s < 60.0 else 0.0
    return 0.0


def _unreachable(ancillary: list[tuple[int, int, bytes]]) -> bool:
    """Whether an ICMP error says that its datagram did not arrive."""
    for level, kind, data in ancillary:
        if (level, kind) in RECEIVE_ERRORS.values() and len(data) >= _ERROR.size:
            number, origin, _ = _ERROR.unpack_from(data)
            return origin in _ICMP_ORIGINS and number in UNREACHABLE
    return False
