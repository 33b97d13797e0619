"""Limits the addresses that this server connects to for a customer's webhook, tool, model or trunk.

A URL may point at this machine, at its private network or at a cloud's metadata service: by address, by a
name that resolves there, or by a name that resolves elsewhere when it is checked and there when it is used
(DNS rebinding). HTTP clients and SIP (`sip.egress`) therefore check with `EgressPolicy` the address itself to
which a socket is about to be connected or a datagram to be sent.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Networks of IANA's special-purpose registries (RFC 6890) that are not public, and that some supported
# version of `ipaddress` takes for global.
_NEVER = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "168.63.129.16/32",  # Azure's virtual host, which is in no registry of IANA
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "224.0.0.0/3",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")  # RFC 2765: IPv4-translated addresses
_COMPATIBLE = ipaddress.IPv6Network("::/96")


class AddressRefused(OSError):
    """The policy refuses an address. Raised instead of making a socket; aiohttp keeps the exception as the
    cause of its own."""


class EgressPolicy:
    """Allows public addresses, and those in `allow_networks` (CIDR). Raises ValueError for a text that is no
    network."""

    def __init__(self, allow_networks: Iterable[str] = ()) -> None:
        self._allowed: tuple[IpNetwork, ...] = tuple(ipaddress.ip_network(text) for text in allow_networks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EgressPolicy) and self._allowed == other._allowed

    def __hash__(self) -> int:
        return hash(self._allowed)

    def allows(self, host: str) -> bool:
        """Whether the IP address `host` may be connected to."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return all(self._allows(inner) for inner in _meanings(address))

    def _allows(self, address: IpAddress) -> bool:
        if any(address in network for network in self._allowed):
            return True
        return address.is_global and not any(address in network for network in _NEVER)


def _meanings(address: IpAddress) -> list[IpAddress]:
    """The addresses that a packet to `address` may reach: `address` itself, an IPv4 address embedded in
    it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    if address in _NAT64 or address in _TRANSLATED or (address in _COMPATIBLE and int(address) > 1):
        return [address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]


def is_egress_denied(error: BaseException) -> bool:
    """Whether `error` or one of its causes is `AddressRefused`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AddressRefused) or isinstance(getattr(cause, "os_error", None), AddressRefused):
            return True
        cause = cause.__cause__
    return False


_EGRESS: ContextVar[EgressPolicy | None] = ContextVar("reach", default=None)


def current() -> EgressPolicy:
    """Gives the policy for engines made now: that of `egress_policy`, else public addresses only."""
    return _EGRESS.get() or EgressPolicy()


@contextmanager
def egress_policy(egress: EgressPolicy) -> Iterator[None]:
    """Sets the policy of engines that are made in the `with` block, for as long as the engines live."""
    token = _EGRESS.set(egress)
    try:
        yield
    finally:
        _EGRESS.reset(token)


AddressInfo: TypeAlias = tuple[Any, Any, int, str, tuple[Any, ...]]
"""An item of the list that `socket.getaddrinfo` gives."""


def sockets_within(egress: EgressPolicy) -> Callable[[AddressInfo], socket.socket]:
    """Makes the `socket_factory` of an aiohttp connector, which raises `AddressRefused` for an address that
    `egress` does not allow."""

    def checked(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if not egress.allows(str(address[0])):
            raise AddressRefused("address refused")
        return socket.socket(family, kind, protocol)

    return checked
