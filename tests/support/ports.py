"""Ports of loopback that were free a moment ago."""

from __future__ import annotations

import os
import socket


def free_port() -> int:
    """A port that nothing is bound to, neither UDP nor TCP."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port: int = tcp.getsockname()[1]
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def free_rtp_ports(count: int = 80) -> str:
    """A range for RTP below the ephemeral ports, its ends free."""
    for first in range(10_000 + (os.getpid() % 200) * 100, 32_000, count):
        with socket.socket(type=socket.SOCK_DGRAM) as low, socket.socket(type=socket.SOCK_DGRAM) as high:
            try:
                low.bind(("127.0.0.1", first))
                high.bind(("127.0.0.1", first + count - 1))
            except OSError:
                continue
            return f"{first}-{first + count - 1}"
    raise RuntimeError("no free range of ports")
