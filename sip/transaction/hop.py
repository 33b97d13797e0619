"""Source and destination of SIP messages."""

from __future__ import annotations

from dataclasses import dataclass, field

from sip.egress import Egress
from sip.message.headers import Via
from sip.message.uri import Uri

SWITCH_S = 1.0
"""Seconds in which a connection for a request too large for a datagram must open: else it goes over UDP."""

DEFAULT_PORTS = {"udp": 5060, "tcp": 5060, "tls": 5061, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Hop:
    """The other end of one hop. `host` is an address or, for sending, possibly a name to resolve.

    `connection` is the number of the stream connection that a message arrived on (0: none, or any to that
    address). `elastic`: no transport was asked for, so a request too large for a datagram may use another.
    `egress` checks the address to which `host` resolves; None for the source of a request. `name`: the domain
    of which `host` is an address, and for which a certificate must be."""

    transport: str
    host: str
    port: int
    connection: int = 0
    elastic: bool = False
    egress: Egress | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False)

    @property
    def domain(self) -> str:
        """What the trunk or the far end named: `name`, or `host` where nothing was looked up."""
        return self.name or self.host

    @property
    def reliable(self) -> bool:
        """Whether the transport retransmits (RFC 3261 17)."""
        return self.transport != "udp"

    @property
    def switched(self) -> bool:
        """Whether the request goes over a stream only because it is too large for a datagram."""
        return self.elastic and self.reliable


@dataclass(frozen=True, slots=True)
class Transmission:
    """One message to send. `key` is that of the transaction to which a failure is reported, "" for none."""

    data: bytes
    hop: Hop
    key: str = ""


def hop_of(uri: Uri, *, egress: Egress | None = None) -> Hop:
    """Returns the hop of a request for `uri` (RFC 3263 4.1 and 4.2 without NAPTR and SRV: an address record),
    checked by `egress` when it is sent."""
    transport = uri.transport or ("tls" if uri.scheme == "sips" else "udp")
    if uri.scheme == "sips":
        transport = "tls"
    host = uri.params.get("maddr") or uri.host
    elastic = transport == "udp" and uri.transport is None
    return Hop(
        transport, host, uri.port or DEFAULT_PORTS.get(transport, 5060), elastic=elastic, egress=egress
    )


def response_hop(via: Via, source: Hop) -> Hop:
    """Returns the hop of the response to a request from `source` (RFC 3261 18.2.2, RFC 3581).

    `maddr` is ignored: on a unicast socket it could only aim responses at a third party."""
    if source.reliable:
        port = via.port or DEFAULT_PORTS[source.transport]
        return Hop(source.transport, source.host, port, source.connection)
    if "rport" in via.params:
        return source
    return Hop(source.transport, source.host, via.port or 5060)
