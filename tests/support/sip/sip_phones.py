"""Two endpoints on loopback that know each other as trunks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from sip.call import Call
from sip.endpoint import Endpoint, EndpointSettings
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings
from tests.support.udp import UdpServer

LOOPBACK = ("127.0.0.0/8",)
PATIENCE_S = 20.0


@dataclass
class Phones:
    """`ours` calls over `trunk`; `theirs` is called over `line`."""

    ours: Endpoint
    theirs: Endpoint
    trunk: Trunk
    line: Trunk

    async def offered(self) -> Call:
        """The next call that arrives."""
        return await asyncio.wait_for(anext(self.theirs.incoming()), PATIENCE_S)

    async def up(self) -> tuple[Call, Call]:
        """A call that has been answered: (caller's side, called's side)."""
        call = await self.trunk.call("+15551234")
        offered = await self.offered()
        await offered.answer()
        await asyncio.wait_for(call.answered(), PATIENCE_S)
        return call, offered


@asynccontextmanager
async def phones(
    *,
    transport: str = "udp",
    trunk: TrunkSettings | None = None,
    line: TrunkSettings | None = None,
    max_calls: int = 1000,
) -> AsyncIterator[Phones]:
    """`trunk` and `line` are settings whose id, uri and allow_from are filled in."""
    settings = EndpointSettings(udp="127.0.0.1:0", tcp="127.0.0.1:0", rtp_ports=(30000, 32999))
    ours, theirs = Endpoint(settings), Endpoint(replace(settings, max_calls=max_calls))
    async with ours, theirs:
        port = address(theirs, transport)[1]
        uri = f"sip:127.0.0.1:{port};transport={transport}"
        out = ours.add_trunk(replace(trunk or TrunkSettings(id="out", uri=uri), id="out", uri=uri))
        back = f"sip:127.0.0.1:{address(ours, transport)[1]};transport={transport}"
        admitted = line or TrunkSettings(id="in", uri=back, allow_from=LOOPBACK)
        yield Phones(ours, theirs, out, theirs.add_trunk(replace(admitted, id="in", uri=back)))


def address(phone: Endpoint, transport: str = "udp") -> tuple[str, int]:
    """Where a phone listens."""
    bound = phone.udp_address if transport == "udp" else phone.tcp_address
    assert bound is not None
    return bound


class Raw(UdpServer):
    """A peer that says whatever it is told to."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.heard.put_nowait(data)

    async def next(self) -> bytes:
        return await asyncio.wait_for(self.heard.get(), PATIENCE_S)


@asynccontextmanager
async def raw(to: tuple[str, int], host: str = "127.0.0.1") -> AsyncIterator[Raw]:
    """A UDP peer connected to `to`."""
    loop = asyncio.get_running_loop()
    transport, peer = await loop.create_datagram_endpoint(Raw, local_addr=(host, 0), remote_addr=to)
    try:
        yield peer
    finally:
        transport.close()
