"""Ranges of ports that were free a moment ago."""

from __future__ import annotations

import os
import socket


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
