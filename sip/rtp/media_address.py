"""Addresses of a call's media in the form that sockets take."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

from pipeline.plane.address import Address, sockaddr, unpacked
from sip.errors import LocalError
from sip.sdp.media_plan import MediaPlan


def resolved(bound: socket.socket, host: str, port: int, *, signalled_by: str = "") -> Address:
    """Returns the address as `recvfrom` does. A link-local one is on the link of `signalled_by`, where the
    signalling comes from, unless it names its own, or else on that of the socket. Raises `LocalError` for a
    name, since a look-up would block, and for another address family than the socket's."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise LocalError("the far end's media address is not an IP address") from None
    if bound.family == socket.AF_INET6:
        if isinstance(address, ipaddress.IPv4Address):
            raise LocalError("an IPv4 media address for a stream bound to IPv6")
        if not address.is_link_local:
            return address.compressed, port, 0, 0
        scope = _interface(address.scope_id or signalled_by.partition("%")[2]) or bound.getsockname()[3]
        return unpacked(sockaddr((address.compressed, port, 0, scope)))
    if address.version == 6:
        raise LocalError("an IPv6 media address for a stream bound to IPv4")
    return str(address), port


def _interface(zone: str) -> int:
    """The number of the interface that an address names behind its "%"; 0 where there is none of it here."""
    try:
        return int(zone) if zone.isdecimal() else socket.if_nametoindex(zone)
    except OSError:
        return 0


def rtcp_address(bound: socket.socket, plan: MediaPlan, *, signalled_by: str = "") -> Address | None:
    """Returns where RTCP reports go; None where RTCP is off."""
    if plan.rtcp_port is None and not plan.rtcp_mux:
        return None
    port = plan.remote_port if plan.rtcp_mux else plan.rtcp_port
    return resolved(bound, plan.remote_host, port or plan.remote_port, signalled_by=signalled_by)


def sendable(address: Address | None, reaches: Callable[[str], bool] | None) -> Address | None:
    """Returns `address` if `reaches` (None: everything) lets it be sent to, else None. The unspecified
    address of RFC 2543's hold would be this machine."""
    if address is None or ipaddress.ip_address(address[0].partition("%")[0]).is_unspecified:
        return None
    return address if reaches is None or reaches(address[0]) else None
