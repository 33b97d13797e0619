"""Where a message comes from and where it goes."""

from __future__ import annotations

from dataclasses import dataclass, field

from sip.egress import Egress
from sip.message.headers import Via
from sip.message.uri import Uri

DEFAULT_PORTS = {"udp": 5060, "tcp": 5060, "tls": 5061}


@dataclass(frozen=True, slots=True)
class Hop:
    """The other end of one hop. `host` is an address or, on the way out, a name still to be resolved.

    `connection` names the stream connection that a message arrived on (0: none, or any to that address).
    `elastic`: nobody asked for this transport, so that a request too large for a datagram may take another.
    `egress` is asked about the address that `host` turns out to be; None for where a request came from.
    """

    transport: str
    host: str
    port: int
    connection: int = 0
    elastic: bool = False
    egress: Egress | None = field(default=None, compare=False, repr=False)

    @property
    def reliable(self) -> bool:
        """Whether the transport itself retransmits (RFC 3261 17)."""
        return self.transport != "udp"


@dataclass(frozen=True, slots=True)
class Transmission:
    """One message to be sent. `key` names the transaction to be told if it cannot be, "" for none."""

    data: bytes
    hop: Hop
    key: str = ""


def hop_of(uri: Uri, *, egress: Egress | None = None) -> Hop:
    """Where a request for `uri` is sent (RFC 3263 4.1 and 4.2 without NAPTR and SRV: an address record), if
    `egress` allows it."""
    transport = uri.transport or ("tls" if uri.scheme == "sips" else "udp")
    if uri.scheme == "sips":
        transport = "tls"
    host = uri.params.get("maddr") or uri.host
    elastic = transport == "udp" and uri.transport is None
    return Hop(
        transport, host, uri.port or DEFAULT_PORTS.get(transport, 5060), elastic=elastic, egress=egress
    )


def response_hop(via: Via, source: Hop) -> Hop:
    """Where the response to a request that came from `source` goes (RFC 3261 18.2.2, RFC 3581).

    `maddr` is not followed: on a unicast socket its only use left is to aim our answers at somebody else.
    """
    if source.reliable:
        port = via.port or DEFAULT_PORTS[source.transport]
        return Hop(source.transport, source.host, port, source.connection)
    if "rport" in via.params:
        return source
    return Hop(source.transport, source.host, via.port or 5060)
