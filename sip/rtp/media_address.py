"""Addresses of a call's media in the form that sockets take."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from typing import TypeAlias

from sip.errors import LocalError
from sip.sdp.media_plan import MediaPlan

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int]


def resolved(bound: socket.socket, host: str, port: int) -> Address:
    """Returns the address as `recvfrom` does. Raises `LocalError` for a name, since a look-up would block,
    and for another address family than the socket's."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise LocalError("the far end's media address is not an IP address") from None
    if bound.family == socket.AF_INET6:
        if address.version == 4:
            raise LocalError("an IPv4 media address for a stream bound to IPv6")
        return address.compressed, port, 0, 0
    if address.version == 6:
        raise LocalError("an IPv6 media address for a stream bound to IPv4")
    return str(address), port


def rtcp_address(bound: socket.socket, plan: MediaPlan) -> Address | None:
    """Returns where RTCP reports go; None where RTCP is off."""
    if plan.rtcp_port is None and not plan.rtcp_mux:
        return None
    port = plan.remote_port if plan.rtcp_mux else plan.rtcp_port
    return resolved(bound, plan.remote_host, port or plan.remote_port)


def unspecified(address: Address) -> bool:
    """Whether `address` is the unspecified one of RFC 2543's hold, which a socket takes for this machine."""
    return ipaddress.ip_address(address[0].partition("%")[0]).is_unspecified


def sockaddr(bound: socket.socket, address: Address) -> bytes:
    """`address` as `struct sockaddr_in` or `sockaddr_in6`."""
    host, port = address[0], address[1]
    if bound.family == socket.AF_INET6:
        scope = address[3] if len(address) == 4 else 0
        return struct.pack("=H", socket.AF_INET6) + struct.pack(">HI", port, 0) + ipaddress.ip_address(host.partition("%")[0]).packed + struct.pack("=I", scope)
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H", port) + ipaddress.ip_address(host).packed + bytes(8)


def unpacked(packed: bytes) -> Address:
    """The address of a `struct sockaddr_in` or `sockaddr_in6`, as `recvfrom` gives it."""
    port = int.from_bytes(packed[2:4], "big")
    if len(packed) >= 28:
        scope = int.from_bytes(packed[24:28], sys.byteorder)
        return ipaddress.IPv6Address(packed[8:24]).compressed, port, 0, scope
    return str(ipaddress.IPv4Address(packed[4:8])), port
