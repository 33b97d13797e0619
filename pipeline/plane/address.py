"""Socket addresses as the plane compares them: `struct sockaddr_in` and `sockaddr_in6`."""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any, Final, TypeAlias

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int]

_V4: Final = struct.Struct("!H4s8x")
_V6: Final = struct.Struct("!HI16s")
_FAMILY: Final = struct.Struct("=H")
_SCOPE: Final = struct.Struct("=I")
_AS_NUMBERS: Final = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


def sockaddr(address: Any) -> bytes:
    """`address`, of two members (IPv4) or four (IPv6), in the layout of Linux."""
    host, port = address[0], address[1]
    if len(address) == 2:
        return _FAMILY.pack(socket.AF_INET) + _V4.pack(port, socket.inet_pton(socket.AF_INET, host))
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return _FAMILY.pack(socket.AF_INET6) + _V6.pack(port, 0, packed) + _SCOPE.pack(address[3])


def unpacked(packed: bytes) -> Address:
    """The address of `packed`, as `recvfrom` gives it."""
    port = int.from_bytes(packed[2:4], "big")
    if len(packed) >= 28:
        scope = int.from_bytes(packed[24:28], sys.byteorder)
        host = socket.inet_ntop(socket.AF_INET6, packed[8:24])
        if scope:  # a link-local address has its interface's name behind it
            host, _ = socket.getnameinfo((host, port, 0, scope), _AS_NUMBERS)
        return host, port, 0, scope
    return socket.inet_ntop(socket.AF_INET, packed[4:8]), port
