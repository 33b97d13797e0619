"""Addresses of a call's media in the form that sockets take."""

from __future__ import annotations

import ipaddress
import socket

from pipeline.plane.address import Address
from sip.errors import LocalError
from sip.sdp.media_plan import MediaPlan


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
