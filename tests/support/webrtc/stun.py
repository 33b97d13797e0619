"""A UDP socket that answers as a TURN server does to who may not have a relay, and notes who asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from aioice import stun

from mediaserver.rooms.webrtc.udp_mux import own_addresses


class StunServer(asyncio.DatagramProtocol):
    """`users`: who signed in for a relay."""

    def __init__(self) -> None:
        self.users: set[str] = set()
        self.host = ""
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.DatagramProtocol`."""
        self._transport = cast(asyncio.DatagramTransport, transport)
        host, port = transport.get_extra_info("sockname")[:2]
        self.host = f"{host}:{port}"

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """See `asyncio.DatagramProtocol`."""
        assert self._transport is not None
        message = stun.parse_message(data)
        if message.message_method is not stun.Method.ALLOCATE:
            return
        if "USERNAME" in message.attributes:
            self.users.add(message.attributes["USERNAME"])
        refusal = stun.Message(stun.Method.ALLOCATE, stun.Class.ERROR, message.transaction_id)
        refusal.attributes["ERROR-CODE"] = (401, "Unauthorized")
        refusal.attributes["REALM"] = "test"
        refusal.attributes["NONCE"] = b"once"
        self._transport.sendto(bytes(refusal), addr)


@asynccontextmanager
async def stun_server() -> AsyncIterator[StunServer]:
    """One on a free port of this machine: browsers do not ask 127.0.0.1 from another address."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(StunServer, local_addr=(own_addresses()[0], 0))
    try:
        yield server
    finally:
        transport.close()
