"""Addresses of clients: how they are written, and what counts as one client."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_SUBSCRIBER_BITS = 64
"""Of an IPv6 address: whoever has one has all with the same."""


def parsed(text: str) -> Address | None:
    """An address as the kernel and proxies write it: bare, with a port, in brackets, with a zone. IPv4 within
    IPv6 is IPv4."""
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
    """What counts as one client: an IPv4 address, or the /64 that an IPv6 subscriber has whole; "" for nobody
    that can be told."""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, _SUBSCRIBER_BITS), strict=False))
    return str(address or "")


def within(address: Address, networks: Iterable[Network]) -> bool:
    """Whether `address` is in one of `networks`."""
    return any(address in network for network in networks if network.version == address.version)
