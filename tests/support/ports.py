"""Ports of loopback that no other process of a parallel run of the tests is given."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator

# Below the ports that Linux gives to those who ask for any (32768 and up), so that no connection takes one.
_FIRST, _LAST = 20_000, 32_000
_SHARES = 8
_SINGLE = 376  # of a share; the others are for RTP


def _share() -> range:
    """The ports of this process: its own as a process of pytest-xdist, else by chance."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    number = int(worker.removeprefix("gw")) if worker else os.getpid()
    size = (_LAST - _FIRST) // _SHARES
    first = _FIRST + number % _SHARES * size
    return range(first, first + size)


def _round(ports: range) -> Iterator[int]:
    """The ports in a circle, from a random start: what was just closed comes last."""
    at = random.randrange(len(ports))
    while True:
        yield ports[at]
        at = (at + 1) % len(ports)


_single = _round(_share()[:_SINGLE])
_media = _round(_share()[_SINGLE::2])


def free_port() -> int:
    """A port that nothing is bound to, neither UDP nor TCP. Raises RuntimeError."""
    for _ in range(_SINGLE):
        port = next(_single)
        if _free(port, socket.SOCK_STREAM) and _free(port, socket.SOCK_DGRAM):
            return port
    raise RuntimeError("no free port")


def free_rtp_range(count: int = 80) -> tuple[int, int]:
    """The first and the last port of a range for RTP, both free. Raises RuntimeError."""
    end = _share().stop
    for _ in range(len(_share())):
        first = next(_media)
        if first + count > end:
            continue
        if _free(first, socket.SOCK_DGRAM) and _free(first + count - 1, socket.SOCK_DGRAM):
            for _ in range(count // 2):
                next(_media)
            return first, first + count - 1
    raise RuntimeError("no free range of ports")


def free_rtp_ports(count: int = 80) -> str:
    """As `free_rtp_range`, as a configuration has it. Raises RuntimeError."""
    first, last = free_rtp_range(count)
    return f"{first}-{last}"


def _free(port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(type=kind) as held:
        try:
            held.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
