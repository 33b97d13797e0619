"""Servers of one UDP socket, and the SIP responses of those that speak it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar, cast

from sip.message.message import Request


class UdpServer(asyncio.DatagramProtocol):
    """Knows its socket; a subclass treats what arrives in `datagram_received`."""

    transport: asyncio.DatagramTransport
    host: str
    port: int

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the socket and its address."""
        self.transport = cast("asyncio.DatagramTransport", transport)
        self.host, self.port = transport.get_extra_info("sockname")[:2]

    @property
    def address(self) -> str:
        """Where others find it, as HOST:PORT."""
        return f"{self.host}:{self.port}"


Server = TypeVar("Server", bound=asyncio.DatagramProtocol)


@asynccontextmanager
async def bound(server: Server, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Server]:
    """Runs `server` on a port of this machine (0: a free one) until the block ends."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=(host, port))
    try:
        yield server
    finally:
        transport.close()


def response_to(request: Request, status: int, *lines: str, tag: str = "", body: str = "") -> bytes:
    """A SIP response with these header fields besides; `tag` is put behind a To that has none, and a `body`
    is an SDP answer."""
    said = [f"SIP/2.0 {status} Said"]
    for name in ("Via", "From", "Call-ID", "CSeq"):
        said += [f"{name}: {value}" for value in request.headers.get_all(name)]
    said += [f"To: {request.header('To')}" + (f";tag={tag}" if tag and not request.to.tag else ""), *lines]
    said += ["Content-Type: application/sdp"] if body else []
    return "\r\n".join([*said, f"Content-Length: {len(body)}", "", body]).encode()
