"""A carrier's registrar made of one socket: it grants every contact."""

from __future__ import annotations

from sip.message.message import Request, Response, parse
from tests.support.udp import UdpServer


class Registrar(UdpServer):
    """`contacts`: those that were registered, in order; `expires`: for how long each was asked for."""

    def __init__(self) -> None:
        self.contacts: list[str] = []
        self.expires: list[str] = []

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Grants a contact for as long as was asked."""
        request = parse(data)
        if not isinstance(request, Request) or request.method != "REGISTER":
            return
        contact = request.header("Contact") or ""
        self.contacts.append(contact)
        self.expires.append(request.header("Expires") or "")
        answer = Response(200, "OK", request.headers.copy())
        answer.headers.set("Contact", f"{contact};expires={self.expires[-1]}")
        self.transport.sendto(answer.to_bytes(), addr)
