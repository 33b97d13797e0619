"""One UDP port for the media of every participant: a firewall opens one port, and the media plane reads every
participant's datagrams.

aioice binds a random port per connection; here its `StunProtocol`s get a `Lane` on the server's sockets (one
socket for each address of this machine, all on the same port). RTP goes to a participant's stream without
Python in between (`pipeline.plane.port`). Of the rest a datagram finds its connection by

- the username of a STUN request, which begins with the server's ufrag, once its integrity has been verified,
- the transaction id of a STUN response,
- for all else (DTLS, SRTCP) the address that a verified request came from.

So nobody gets a path, or takes one over, without the password that went through signalling.

A participant may name any address as a candidate. To an address that `pipeline.net.egress` does not allow
nothing is sent before a verified request has come from there; the check that was due is then sent at once."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import secrets
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast

from aioice import Candidate, ice, stun
from aioice.candidate import candidate_foundation, candidate_priority

from mediaserver.rooms.errors import RoomFull
from pipeline.net.egress import EgressPolicy
from pipeline.plane.address import sockaddr, unpacked
from pipeline.plane.drive.plane import Plane
from pipeline.plane.port import NO_STREAM

MAX_ADDRESSES: Final = 8
"""The most addresses of one connection: a phone that roams has two or three."""

MAX_WITHHELD: Final = 64
"""The most addresses to which a connection's checks are withheld."""

MAX_QUEUED: Final = 256
"""The most DTLS datagrams that wait for aiortc; a handshake has six, a page of data thirty."""

_MAX_ASKED: Final = 4096  # STUN requests without a response yet; 20 for each connection being made
_BUFFER_BYTES: Final = 4 << 20
_CONNECTS_S: Final = 1.0  # a handshake, from an offer, an answer or a candidate on
_USERNAME: Final = 0x0006
_HEADER: Final = 20
_MALFORMED: Final = (ValueError, KeyError, struct.error)
"""What aioice raises for a STUN attribute that is wrong, missing, or cut short."""


ReportSink = Callable[[bytes, float], None]
Target: TypeAlias = tuple[socket.socket, bytes]
"""A socket of the port, and the sockaddr that media goes to by it."""


class _Nominated(dict[int, Any]):
    """aioice's table of nominated pairs, which calls `changed` after each change: aioice tells nobody."""

    __slots__ = ("_changed",)

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def __setitem__(self, component: int, pair: Any) -> None:
        super().__setitem__(component, pair)
        self._changed()

    def clear(self) -> None:
        """Forgets every pair: the connection is closed."""
        super().clear()
        self._changed()


class Path:
    """One peer connection on the shared port. `on_report` takes SRTCP datagrams; `on_target` is told where
    media goes, each time ICE nominates a pair, and None when there is none any more. `heard_s`: loop time of
    the far end's last STUN message."""

    __slots__ = (
        "_lanes",
        "_port",
        "_stream",
        "addresses",
        "connection",
        "heard_s",
        "on_report",
        "on_target",
    )  # fmt: skip

    def __init__(self, port: MediaPort, connection: ice.Connection) -> None:
        self._port = port
        self._lanes: list[Lane] = []
        self.addresses: list[tuple[socket.socket, tuple[str, int]]] = []
        self.connection = connection
        self.on_report: ReportSink | None = None
        self.heard_s = 0.0
        self._stream = NO_STREAM
        self.on_target: Callable[[Target | None], None] | None = None
        connection._nominated = _Nominated(self._nominated)

    @property
    def target(self) -> Target | None:
        """Where media goes: over the nominated pair; None: there is none."""
        pair = self.connection._nominated.get(1)
        if pair is None:
            return None
        own, (host, port) = cast(Lane, pair.protocol.transport).socket, pair.remote_addr
        return own, _packed(own, (host, port))

    @property
    def stream(self) -> int:
        """The stream of the media plane that hears the RTP of this connection; `NO_STREAM`: none does."""
        return self._stream

    @stream.setter
    def stream(self, number: int) -> None:
        if number == self._stream:
            return
        self._stream = number
        for own, address in self.addresses:
            self._port.know(own, address, number)

    def _nominated(self) -> None:
        if self.on_target is not None:
            self.on_target(self.target)

    def close(self) -> None:
        """The port's sockets are about to be closed: nothing is sent by them any more."""
        self.connection._nominated.clear()

    async def candidates(self, component: int, addresses: list[str], timeout: int = 5) -> list[Candidate]:
        """Replaces `aioice.Connection.get_component_candidates`: returns candidates of the shared sockets
        instead of binding new ones."""
        found = []
        for own, host in self._port.sockets:
            lane = Lane(self._port, self, own)
            self._lanes.append(lane)
            protocol = lane.protocol
            protocol.local_candidate = _candidate(component, host, self._port.number)
            protocol.connection_made(lane)
            self.connection._protocols.append(protocol)
            found.append(protocol.local_candidate)
        public = self._port.public_address
        if public is not None:
            found.insert(0, _candidate(component, public, self._port.number))
        self._port.listen(self.connection.local_username, self)
        return found

    def rename(self, ufrag: str, password: str) -> None:
        """Restarts ICE: STUN requests must have these credentials from now on. Known addresses stay, so that
        media is received until the new path is up."""
        connection = self.connection
        self._port.unlisten(connection.local_username, self)
        connection._local_username, connection._local_password = ufrag, password
        self._port.listen(ufrag, self)

    def heard_from(self, host: str) -> bool:
        """Whether a verified STUN request has come from this address."""
        return any(address[0] == host for _, address in self.addresses)

    def opened(self, host: str) -> None:
        """Sends the datagrams withheld from an address, whose first verified request has arrived."""
        for lane in self._lanes:
            lane.opened(host)

    def lane(self, own: socket.socket) -> Lane | None:
        """Returns this connection's open lane on that socket, None without one."""
        return next((lane for lane in self._lanes if lane.socket is own and not lane.is_closing()), None)

    def send(self, data: bytes) -> bool:
        """Sends on the nominated pair; False: there is none, or the socket is full."""
        pair = self.connection._nominated.get(1)
        if pair is None:
            return False
        return cast(Lane, pair.protocol.transport).deliver(data, pair.remote_addr)

    def received(self, data: bytes, now: float) -> None:
        """Takes a datagram other than STUN and RTP (RFC 7983) from an address of this connection."""
        if 127 < data[0] < 192:
            if self.on_report is not None:
                self.on_report(data, now)
        elif self.connection._queue.qsize() < MAX_QUEUED:
            self.connection.data_received(data, 1)

    def let_go(self) -> None:
        """Frees a closed connection: breaks the references between it, its pairs and its lanes."""
        self._port.forget(self.connection.local_username, self)
        for lane in self._lanes:
            del lane.protocol
        self._lanes.clear()
        for pair in self.connection._check_list:
            pair.task = None  # a cancelled check refers to its pair
        self.connection._check_list.clear()
        vars(self.connection).pop("get_component_candidates", None)
        self.connection._nominated, self.on_target = {}, None

    def close_lane(self, lane: Lane) -> None:
        """Takes the path off the port when aioice has closed its last lane."""
        if all(each.is_closing() for each in self._lanes):
            self.on_report = None
            self._port.forget(self.connection.local_username, self)


class Lane(asyncio.DatagramTransport):
    """The transport that one aioice `StunProtocol` uses in place of a socket."""

    def __init__(self, port: MediaPort, path: Path, own: socket.socket) -> None:
        super().__init__()
        self._port = port
        self._closing = False
        self._withheld: dict[tuple[str, int], bytes] = {}
        self.path = path
        self.socket = own
        self.protocol = ice.StunProtocol(path.connection)

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Sends a datagram. A STUN request's transaction is remembered, since its response may come from a
        new address. For an address that `egress` does not allow the datagram is withheld until a verified
        request comes from there."""
        if data[0] < 2 and len(data) >= _HEADER and data[1] == 1:
            self._port.asked(bytes(data[8:20]), self)
        if self._port.egress.allows(addr[0]) or self.path.heard_from(addr[0]):
            self.deliver(data, addr)
        elif addr in self._withheld or len(self._withheld) < MAX_WITHHELD:
            self._withheld[addr] = bytes(data)

    def opened(self, host: str) -> None:
        """Sends the datagrams withheld from `host`, from which a verified request has arrived."""
        for address in [each for each in self._withheld if each[0] == host]:
            self.deliver(self._withheld.pop(address), address)

    def deliver(self, data: bytes, addr: tuple[str, int]) -> bool:
        """Sends at once; a datagram that does not fit the socket's buffer is dropped."""
        try:
            self.socket.sendto(data, addr)
        except OSError:
            return False
        return True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns the address for "sockname", `default` for any other name."""
        return self.socket.getsockname()[:2] if name == "sockname" else default

    def is_closing(self) -> bool:
        """Whether the lane has been closed."""
        return self._closing

    def close(self) -> None:
        """Closes this lane; the shared socket stays open."""
        if not self._closing:
            self._closing = True
            self.path.close_lane(self)
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


class MediaPort:
    """The sockets of the media port, and the peer connections on them."""

    def __init__(
        self,
        plane: Plane,
        sockets: Sequence[socket.socket],
        *,
        public_address: str | None,
        egress: EgressPolicy,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Takes bound sockets, which `plane` reads; `MediaPort.open` binds them."""
        self.plane = plane
        self.egress = egress
        self.sockets = [(own, own.getsockname()[0]) for own in sockets]
        self.number: int = sockets[0].getsockname()[1]
        self.public_address = public_address
        self._strays = 0
        self._loop = loop
        self._paths: dict[str, Path] = {}
        self._by_address: dict[socket.socket, dict[tuple[str, int], Path]] = {own: {} for own in sockets}
        self._asked: dict[bytes, Lane] = {}
        self._shared = {own: plane.open_port(own, partial(self._arrived, own)) for own in sockets}

    @classmethod
    def open(
        cls,
        plane: Plane,
        ports: tuple[int, int],
        *,
        addresses: Sequence[str] = (),
        public_address: str | None = None,
        egress: EgressPolicy | None = None,
    ) -> MediaPort:
        """Binds the first port of the range that is free on every address.

        `addresses` (): every address of this machine, loopback where it has no other. `egress`: which
        addresses a participant may name; None: public ones. Raises `RoomFull` when no port is free, OSError
        for an address that is not this machine's.
        """
        hosts = list(addresses) or own_addresses()
        for number in range(ports[0], ports[1] + 1):
            sockets = _bind_all(hosts, number)
            if sockets:
                loop = asyncio.get_running_loop()
                reaches = egress or EgressPolicy()
                return cls(plane, sockets, public_address=public_address, egress=reaches, loop=loop)
        raise RoomFull(f"no UDP port of {ports[0]}-{ports[1]} is free for rooms")

    def __len__(self) -> int:
        """The number of peer connections on the port."""
        return len(self._paths)

    @property
    def strays(self) -> int:
        """Datagrams that belong to no connection."""
        return self._strays + sum(each.strays for each in self._shared.values())

    def expect(self) -> None:
        """Somebody is about to connect: a handshake's datagrams are not to wait for the plane's tick."""
        self.plane.expect(_CONNECTS_S)

    def close(self) -> None:
        """Closes the sockets and forgets every peer connection."""
        for path in self._paths.values():
            path.close()
        for own, shared in self._shared.items():
            shared.close()
            own.close()
        self._paths.clear()
        self._by_address.clear()
        self._asked.clear()

    def listen(self, ufrag: str, path: Path) -> None:
        """Passes STUN requests for `ufrag` to `path`."""
        self._paths[ufrag] = path

    def unlisten(self, ufrag: str, path: Path) -> None:
        """Stops passing STUN requests for `ufrag` to `path`."""
        if self._paths.get(ufrag) is path:
            del self._paths[ufrag]

    def forget(self, ufrag: str, path: Path) -> None:
        """Removes a peer connection that is closed, with its addresses and transactions."""
        self.unlisten(ufrag, path)
        for own, address in path.addresses:
            table = self._by_address.get(own)
            if table is not None and table.get(address) is path:
                del table[address]
                self._shared[own].forget(_packed(own, address))
        path.addresses.clear()
        for transaction in [key for key, lane in self._asked.items() if lane.path is path]:
            del self._asked[transaction]

    def asked(self, transaction: bytes, lane: Lane) -> None:
        """Remembers the lane of a STUN request that was sent, for its response."""
        self._asked[transaction] = lane
        if len(self._asked) > _MAX_ASKED:
            del self._asked[next(iter(self._asked))]

    def know(self, own: socket.socket, address: tuple[str, int], stream: int) -> None:
        """RTP that comes from `address` to this socket is that of `stream` from now on."""
        if own in self._by_address:
            self._shared[own].know(_packed(own, address), stream)

    def _arrived(self, own: socket.socket, data: bytes, sender: bytes, now: float) -> None:
        """Takes a datagram that the plane has left to Python."""
        host, number = unpacked(sender)[:2]
        if data[0] < 4:
            self._stun(own, data, (host, number))
            return
        path = self._by_address[own].get((host, number))
        if path is None:
            self._strays += 1
        else:
            path.received(data, now)

    def _stun(self, own: socket.socket, data: bytes, address: tuple[str, int]) -> None:
        if len(data) < _HEADER:
            self._strays += 1
            return
        if data[:2] == b"\x00\x01":
            path = self._verified(data)
            lane = path.lane(own) if path is not None else None
            if path is not None:
                self._reached(path, own, address)
        else:
            lane = self._asked.get(data[8:20])
        try:
            if lane is not None:
                lane.path.heard_s = self._loop.time()
                lane.protocol.datagram_received(data, address)
        except _MALFORMED:
            lane = None
        if lane is None:
            self._strays += 1

    def _verified(self, data: bytes) -> Path | None:
        """Returns the path of a STUN request whose integrity proves that the sender knows the path's
        password; None for any other."""
        path = self._paths.get(_ufrag(data))
        if path is None:
            return None
        try:
            message = stun.parse_message(data)
            genuine = message.check_message_integrity(path.connection.local_password.encode())
        except _MALFORMED:
            return None
        return path if genuine else None

    def _reached(self, path: Path, own: socket.socket, address: tuple[str, int]) -> None:
        table = self._by_address[own]
        if table.get(address) is path:
            return
        before = table.get(address)
        if before is not None:  # a NAT gave the address of an old connection to a new one
            before.addresses.remove((own, address))
        table[address] = path
        is_new = not path.heard_from(address[0])
        path.addresses.append((own, address))
        self.know(own, address, path.stream)
        if is_new:
            path.opened(address[0])
        if len(path.addresses) > MAX_ADDRESSES:
            old_socket, old = path.addresses.pop(0)
            self._by_address[old_socket].pop(old, None)
            self._shared[old_socket].forget(_packed(old_socket, old))


def own_addresses() -> list[str]:
    """Returns the addresses of this machine that others may reach, else loopback."""
    found: list[str] = ice.get_host_addresses(use_ipv4=True, use_ipv6=True)
    usable = [each for each in found if not ipaddress.ip_address(each).is_link_local]
    return usable or ["127.0.0.1"]


def new_credentials() -> tuple[str, str]:
    """Returns a user name fragment and a password, of 48 and 144 bits (RFC 8839 section 5.4 asks for 24 and
    128)."""
    return secrets.token_hex(6), secrets.token_hex(18)


def _packed(own: socket.socket, address: tuple[str, int]) -> bytes:
    """Returns the sockaddr of an address that `own` reaches."""
    return sockaddr((*address, 0, 0) if own.family == socket.AF_INET6 else address)


def _candidate(component: int, host: str, port: int) -> Candidate:
    return Candidate(
        foundation=candidate_foundation("host", "udp", host),
        component=component,
        transport="udp",
        priority=candidate_priority(component, "host"),
        host=host,
        port=port,
        type="host",
    )


def _ufrag(data: bytes) -> str:
    """Returns the first half of the USERNAME attribute, which names the receiver (RFC 8445 7.2.2); "" without
    one."""
    at = _HEADER
    while at + 4 <= len(data):
        kind = int.from_bytes(data[at : at + 2], "big")
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if kind == _USERNAME:
            return data[at + 4 : at + 4 + length].partition(b":")[0].decode("ascii", "replace")
        at += 4 + length + -length % 4
    return ""


def _bind_all(hosts: Sequence[str], number: int) -> list[socket.socket]:
    """Binds a socket on each host; returns [] when the port is taken on one of them. Raises OSError."""
    bound: list[socket.socket] = []
    for host in hosts:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        own = socket.socket(family, socket.SOCK_DGRAM)
        bound.append(own)
        try:
            own.setblocking(False)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            own.bind((host, number))
        except OSError as error:
            for each in bound:
                each.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return []
            raise
    return bound
