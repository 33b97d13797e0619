"""A name server on the loopback, whose zone a test writes."""

from __future__ import annotations

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from tests.support.udp import UdpServer

Zone = dict[tuple[str, str], tuple[int, list[str]]]
"""(name, kind) to TTL in seconds and records as text: ("carrier.test", "A"): (60, ["127.0.0.1"])."""


class NameServer(UdpServer):
    """Answers by `zone`. `asked`: the questions in order. `silent`: it answers nothing."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.asked: list[tuple[str, str]] = []
        self.silent = False

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
        self.transport.sendto(answer.to_wire(), addr)
