"""A far end that points elsewhere: it answers calls with whatever Contact, route or media address a test
names, and closed addresses where traps wait for what is lured there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from sip.message.message import Request, Response, parse
from tests.support.udp import UdpServer, bound, response_to

CLOSED = "127.0.0.66"
"""An address of this machine that no trunk of the tests may send to."""

Address = tuple[str, int]


class Socket(UdpServer):
    """A UDP socket: what arrived, with where from."""

    def __init__(self) -> None:
        self.arrived: list[tuple[bytes, Address]] = []
        self.on_datagram: Callable[[bytes, Address], None] = lambda data, source: None

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Keeps the datagram."""
        self.arrived.append((data, addr))
        self.on_datagram(data, addr)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there: that is what some tests want."""


def udp(host: str, port: int = 0) -> AbstractAsyncContextManager[Socket]:
    """A socket bound to `host`."""
    return bound(Socket(), host, port)


@dataclass
class Traps:
    """One port of a closed address, over UDP and TCP, and the one above for RTCP."""

    datagrams: Socket
    reports: Socket
    connections: list[Address]

    @property
    def port(self) -> int:
        """The same for UDP and TCP."""
        return self.datagrams.port

    @property
    def caught(self) -> list[str]:
        """What came to the closed address: the first line of SIP, or "RTP"."""
        said = [data for data, _ in (*self.datagrams.arrived, *self.reports.arrived)]
        lines = [data.split(b"\r\n")[0].decode() if data[:1].isalpha() else "RTP" for data in said]
        return lines + ["a connection" for _ in self.connections]


@asynccontextmanager
async def traps(host: str = CLOSED) -> AsyncIterator[Traps]:
    """Sockets that wait at `host` until the block ends."""
    connections: list[Address] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer.get_extra_info("peername"))
        writer.close()

    listener = await asyncio.start_server(connected, host, 0)
    port = int(listener.sockets[0].getsockname()[1])
    async with udp(host, port) as datagrams, udp(host, port + 1) as reports, listener:
        yield Traps(datagrams, reports, connections)


def sdp(media: Address, *, session: str = "", extra: str = "", version: int = 1) -> bytes:
    """PCMU at `media`; `session` is the address of the session where the stream has one of its own."""
    own = f"c=IN IP4 {media[0]}\r\n" if session else ""
    return (
        f"v=0\r\no=- 1 {version} IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 {session or media[0]}\r\nt=0 0\r\n"
        f"m=audio {media[1]} RTP/AVP 0\r\n{own}{extra}"
    ).encode()


class Rogue:
    """Answers INVITEs at a UDP socket of its own by `script`, a list of (status, header lines, body)."""

    def __init__(self, sip: Socket, rtp: Socket) -> None:
        self.sip, self.rtp = sip, rtp
        self.script: list[tuple[int, tuple[str, ...], bytes]] = []
        self.requests: list[Request] = []
        self.responses: list[Response] = []
        self.server: Address = ("", 0)
        sip.on_datagram = self._heard

    @property
    def uri(self) -> str:
        """Where a trunk finds it."""
        return f"sip:127.0.0.1:{self.sip.port};transport=udp"

    @property
    def contact(self) -> str:
        """Its honest Contact."""
        return f"Contact: <sip:rogue@127.0.0.1:{self.sip.port}>"

    @property
    def media(self) -> bytes:
        """Its honest SDP."""
        return sdp(("127.0.0.1", self.rtp.port))

    @property
    def methods(self) -> list[str]:
        """Of the requests that came, each once."""
        return list(dict.fromkeys(request.method for request in self.requests))

    def asked(self, method: str) -> list[Request]:
        """The requests of one method."""
        return [request for request in self.requests if request.method == method]

    def say(self, status: int, *lines: str, body: bytes = b"") -> None:
        """Adds a response to the script."""
        self.script.append((status, lines, body))

    def reply(self, request: Request, status: int, lines: tuple[str, ...], body: bytes) -> None:
        """Sends a response."""
        tag = "" if status == 100 else "rogue"
        said = response_to(request, status, *lines, tag=tag, body=body.decode())
        self.sip.transport.sendto(said, self.server)

    def request(self, method: str, cseq: int, *lines: str, body: bytes = b"", branch: str = "") -> bytes:
        """A request within the call that came last, with the right ids."""
        invite = self.asked("INVITE")[-1]
        extra = "".join(f"{line}\r\n" for line in lines) + (
            "Content-Type: application/sdp\r\n" if body else ""
        )
        return (
            f"{method} sip:us@127.0.0.1 SIP/2.0\r\n"
            f"Via: SIP/2.0/UDP 127.0.0.1:{self.sip.port};branch=z9hG4bK{branch or method}{cseq};rport\r\n"
            f"Max-Forwards: 70\r\nFrom: {invite.header('To')};tag=rogue\r\nTo: {invite.header('From')}\r\n"
            f"Call-ID: {invite.call_id}\r\nCSeq: {cseq} {method}\r\n{extra}"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body

    def send(self, data: bytes, *, by: Socket | None = None) -> None:
        """A datagram to whoever called, from `by` in the place of its own socket."""
        (by or self.sip).transport.sendto(data, self.server)

    def _heard(self, data: bytes, source: Address) -> None:
        message = parse(data)
        self.server = source
        if isinstance(message, Response):
            self.responses.append(message)
            return
        first = not any(each.to_bytes() == message.to_bytes() for each in self.requests)
        self.requests.append(message)
        if message.method == "INVITE" and message.to.tag is None and first:
            for status, lines, body in self.script:
                self.reply(message, status, lines, body)
        elif message.method in ("BYE", "CANCEL", "PRACK"):
            self.reply(message, 200, (), b"")
            if message.method == "CANCEL":
                self.reply(self.asked("INVITE")[-1], 487, (), b"")


@asynccontextmanager
async def rogue() -> AsyncIterator[Rogue]:
    """A far end at 127.0.0.1, which is what a trunk of the tests may send to."""
    async with udp("127.0.0.1") as sip, udp("127.0.0.1") as rtp:
        yield Rogue(sip, rtp)
