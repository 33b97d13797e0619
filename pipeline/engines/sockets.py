"""Sockets for HTTP clients, to addresses that `pipeline.reach` allows: the one place where that is asked."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from pipeline.reach import AddressRefused, Reach

AddressInfo: TypeAlias = tuple[Any, Any, int, str, tuple[Any, ...]]
"""As `socket.getaddrinfo` gives it."""


def sockets_within(reach: Reach) -> Callable[[AddressInfo], socket.socket]:
    """The `socket_factory` of an aiohttp connector: a socket for an address, or `AddressRefused`."""

    def checked(info: AddressInfo) -> socket.socket:
        family, kind, protocol, _, address = info
        if not reach.allows(str(address[0])):
            raise AddressRefused("address refused")
        return socket.socket(family, kind, protocol)

    return checked
