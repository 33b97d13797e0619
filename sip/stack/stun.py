"""Asks a STUN server under which address this machine is seen (RFC 8489, Binding)."""

from __future__ import annotations

import asyncio
import struct
from ipaddress import ip_address

from aioice import stun

RESENT_S = (0.5, 1.0, 2.0, 2.0)
"""Seconds from each request to the next, and after the last: a datagram may be lost."""


class _Asking(asyncio.DatagramProtocol):
    def __init__(self, request: stun.Message, answer: asyncio.Future[str]) -> None:
        self._request = request
        self._answer = answer

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Takes the answer to the request, whose transaction id nobody guesses."""
        try:
            said = stun.parse_message(data)
        except (ValueError, struct.error):
            return
        if said.transaction_id != self._request.transaction_id or self._answer.done():
            return
        mapped = said.attributes.get("XOR-MAPPED-ADDRESS") or said.attributes.get("MAPPED-ADDRESS")
        if said.message_class is stun.Class.RESPONSE and mapped and _usable(mapped[0], addr[0]):
            self._answer.set_result(str(mapped[0]))
        else:
            self._answer.set_exception(OSError("the STUN server names no address"))

    def error_received(self, exc: Exception) -> None:
        """Ends the wait: nobody listens there."""
        if not self._answer.done():
            self._answer.set_exception(exc)


async def mapped_address(host: str, port: int) -> str:
    """Returns the address from which the STUN server at the address `host` sees this machine. Raises
    OSError."""
    loop = asyncio.get_running_loop()
    request = stun.Message(message_method=stun.Method.BINDING, message_class=stun.Class.REQUEST)
    answer: asyncio.Future[str] = loop.create_future()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Asking(request, answer), remote_addr=(host, port)
    )
    try:
        for wait_s in RESENT_S:
            transport.sendto(bytes(request))
            if (await asyncio.wait((answer,), timeout=wait_s))[0]:
                return answer.result()
        raise TimeoutError("the STUN server does not answer")
    finally:
        answer.cancel()
        transport.close()


def _usable(address: str, server: str) -> bool:
    """Whether this machine can be reached at `address` by whoever is of the family of `server`."""
    named = ip_address(address)
    same_family = (":" in address) is (":" in server)
    return same_family and not (named.is_unspecified or named.is_multicast)
