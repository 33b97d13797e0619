"""A carrier's registrar made of one socket: it grants every contact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from sip.message.message import Request, Response, parse


class Registrar(asyncio.DatagramProtocol):
    """`contacts`: those that were registered, in order."""

    def __init__(self) -> None:
        self.contacts: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the socket."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Grants a contact for as long as was asked."""
        request = parse(data)
        if not isinstance(request, Request) or request.method != "REGISTER":
            return
        contact = request.header("Contact") or ""
        self.contacts.append(contact)
        answer = Response(200, "OK", request.headers.copy())
        answer.headers.set("Contact", f"{contact};expires={request.header('Expires')}")
        self._transport.sendto(answer.to_bytes(), addr)


@asynccontextmanager
async def registrar(port: int) -> AsyncIterator[Registrar]:
    """A registrar on a UDP port of this machine."""
    loop = asyncio.get_running_loop()
    transport, made = await loop.create_datagram_endpoint(Registrar, local_addr=("127.0.0.1", port))
    try:
        yield made
    finally:
        transport.close()
