"""Decides which addresses SIP and RTP may be sent to.

A far end names most addresses that a call sends to: the Contact of its answer, its Record-Route, the address
in its SDP. Whoever manages a trunk controls what its names resolve to, now and at the next look-up (DNS
rebinding). The socket therefore asks an `Egress` about the very address that a datagram or a connection is
about to go to. A response is not checked: it goes to the address that its request came from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, ip_address
from typing import Final, Self
from urllib.parse import urlsplit

from pipeline.net.egress import EgressPolicy
from sip.client_tls import ClientTls

STUN: Final = "stun:"


def canonical(address: str) -> str:
    """Returns one spelling for each IP address: without zone, and IPv4 where a dual-stack socket shows it
    within IPv6. A name stays as it is."""
    try:
        known = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = known.ipv4_mapped if isinstance(known, IPv6Address) else None
    return str(mapped or known)


def is_address(host: str) -> bool:
    """Whether `host` is an IP address, which needs no look-up."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _nowhere(host: str) -> Collection[str]:
    return ()


@dataclass(slots=True)
class PublicAddress:
    """The address under which a trunk's peers reach this endpoint, "" where that is the endpoint's own.
    `server`: the STUN server that is asked for it, None for none; `failed`: it did not answer when it was
    asked last, and the address is what it said before."""

    now: str = ""
    server: tuple[str, int] | None = None
    failed: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads an address, or "stun:host" with a port or without. Raises ValueError."""
        if not text.startswith(STUN):
            return cls(text)
        parts = urlsplit(f"//{text.removeprefix(STUN)}")
        if not parts.hostname or parts.path or parts.query or parts.username is not None:
            raise ValueError('must be an address, or "stun:host:port"')
        return cls(server=(parts.hostname, parts.port or 3478))


@dataclass(frozen=True, slots=True)
class EgressRule:
    """Addresses that the calls of a trunk may send to: those that `egress` allows (None: every one), and the
    trunk's own `hosts`, whatever these resolve to. `addresses_of` returns the known addresses of a name, None
    where it is not known. `tls`: how its connections over TLS are made; None, as those of other trunks.
    `public`: the address under which its peers reach this endpoint. `keeps_flow`: requests within its calls
    go to where the far end's messages come from, whatever its Contact says."""

    egress: EgressPolicy | None = None
    hosts: frozenset[str] = frozenset()
    addresses_of: Callable[[str], Collection[str] | None] = _nowhere
    tls: ClientTls | None = None
    public: PublicAddress = field(default_factory=PublicAddress)
    keeps_flow: bool = False

    def with_host(self, host: str) -> EgressRule:
        """Returns a rule that allows `host` as well."""
        return replace(self, hosts=self.hosts | {host.lower()})

    def allows(self, host: str, address: str) -> bool:
        """Whether `address`, to which `host` resolved, may be sent to."""
        if self.egress is None or self.egress.allows(address) or host.lower() in self.hosts:
            return True
        return any(canonical(address) in (self.addresses_of(own) or ()) for own in self.hosts)


ANY_ADDRESS = EgressRule()


class Egress:
    """Addresses that one call or registration may send to: those of its trunk's rule, and `peer`, the source
    of its INVITE. `on_refused` is called for each message that was not sent."""

    def __init__(
        self,
        rule: EgressRule,
        *,
        peer: str = "",
        on_refused: Callable[[str, float], None] = lambda address, now: None,
    ) -> None:
        self.refused = on_refused
        self._rule = rule
        self._peer = canonical(peer)

    @property
    def tls(self) -> ClientTls | None:
        """The TLS of the trunk; None where it has none of its own."""
        return self._rule.tls

    @property
    def keeps_flow(self) -> bool:
        """Whether requests within a call go to where the far end's messages come from."""
        return self._rule.keeps_flow

    @property
    def public(self) -> str:
        """The public address of the trunk; "" where it has none of its own."""
        return self._rule.public.now

    def allows(self, address: str, *, host: str = "") -> bool:
        """Whether `address` may be sent to; `host` is the name that resolved to it."""
        return canonical(address) == self._peer or self._rule.allows(host or address, address)


ANYWHERE = Egress(ANY_ADDRESS)
