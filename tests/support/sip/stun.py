"""A STUN server made of one socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aioice import stun

from tests.support.hostile.rogue import Socket, udp

ONE = "203.0.113.7"


class StunServer:
    """Tells whoever asks `address`; with "" nothing. `lost`: so many requests are not answered before."""

    def __init__(self, bound: Socket, *, address: str = ONE) -> None:
        self.address, self.lost, self.asked = address, 0, 0
        self.port = bound.port
        self._bound = bound
        bound.on_datagram = self._answer

    def _answer(self, data: bytes, source: tuple[str, int]) -> None:
        self.asked += 1
        self.lost -= 1
        if not self.address or self.lost >= 0:
            return
        request = stun.parse_message(data)
        said = stun.Message(stun.Method.BINDING, stun.Class.RESPONSE, request.transaction_id)
        said.attributes["XOR-MAPPED-ADDRESS"] = (self.address, 40_000)
        stranger = stun.Message(stun.Method.BINDING, stun.Class.RESPONSE)  # forged: of no request
        stranger.attributes["XOR-MAPPED-ADDRESS"] = ("198.51.100.66", 40_000)
        short = b"\x01\x01\0\x08\x21\x12\xa4\x42" + request.transaction_id + b"\0\x24\0\x02\0\0\0\0"
        for message in (b"\x01\x01nonsense", short, bytes(stranger), bytes(said)):
            self._bound.transport.sendto(message, source)


@asynccontextmanager
async def stun_server(*, address: str = ONE) -> AsyncIterator[StunServer]:
    async with udp("127.0.0.1") as bound:
        yield StunServer(bound, address=address)
