"""Client addresses: how they are written, and what counts as one client."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SUBSCRIBER_BITS = 64
"""Bits of the prefix that an IPv6 subscriber has whole."""


def parsed(text: str) -> Address | None:
    """Parses an address as the kernel and proxies write it: bare, with a port, in brackets, with a zone. IPv4
    within IPv6 becomes IPv4. None for what is no address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def subscriber(address: Address | None) -> str:
    """Returns the name that counts as one client: an IPv4 address, or the /64 of an IPv6 address, which a
    subscriber has whole; "" for None."""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _SUBSCRIBER_BITS), strict=False))
    return str(address or "")


def within(address: Address, networks: Iterable[Network]) -> bool:
    """Whether `address` is in one of `networks`."""
    return any(address in network for network in networks if network.version == address.version)
