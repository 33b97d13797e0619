"""A name server on the loopback, whose zone a test writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

Zone = dict[tuple[str, str], tuple[int, list[str]]]
"""(name, kind) to TTL in seconds and records as text: ("carrier.test", "A"): (60, ["127.0.0.1"])."""


class NameServer(asyncio.DatagramProtocol):
    """Answers by `zone`. `asked`: the questions in order. `silent`: it answers nothing."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.asked: list[tuple[str, str]] = []
        self.silent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the socket."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    @property
    def address(self) -> str:
        """Where a server finds it."""
        host, port = self._transport.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answers one question."""
        question = dns.message.from_wire(data)
        (asked,) = question.question
        name, kind = str(asked.name).rstrip(".").lower(), dns.rdatatype.to_text(asked.rdtype)
        self.asked.append((name, kind))
        if self.silent:
            return
        answer = dns.message.make_response(question)
        answer.flags |= dns.flags.AA
        ttl, records = self.zone.get((name, kind), (0, []))
        if records:
            answer.answer.append(dns.rrset.from_text(asked.name, ttl, "IN", kind, *records))
        elif not any(name == known for known, _ in self.zone):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        self._transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def name_server(zone: Zone) -> AsyncIterator[NameServer]:
    """A name server until the block ends."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(zone), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()
