"""Ports of loopback for servers of benchmarks and tests."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of loopback that nothing is bound to, neither UDP nor TCP."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port: int = tcp.getsockname()[1]
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
