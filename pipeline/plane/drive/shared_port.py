"""A UDP port that many streams share, as asyncio sees it: whose the addresses are, and what is put aside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pipeline.plane import atomic
from pipeline.plane.called import address_of, forget_at, know_at
from pipeline.plane.drive.contract import Drive
from pipeline.plane.port import ASIDES, NO_STREAM

BURST: Final = 64
"""The most datagrams that are handed on in one turn of the loop: a flood must not hold up the calls."""

_NS: Final = 1e9

Aside = Callable[[bytes, bytes, float], None]
"""Takes a datagram that the plane leaves to Python, the sockaddr it came from, and when. Never raises."""


class SharedPort:
    """Made by `pipeline.plane.drive.plane.Plane.open_port`. RTP of an address goes to the stream that
    `know` names; other datagrams come to `aside`."""

    def __init__(self, port: Any, drive: Drive, loop: asyncio.AbstractEventLoop, aside: Aside) -> None:
        self._port, self._drive, self._loop, self._aside = port, drive, loop, aside
        self._at = address_of(port)
        self._reads = self._closed = False

    @property
    def strays(self) -> int:
        """Datagrams that belong to no connection."""
        return int(self._port["strays"])

    def know(self, address: bytes, number: int = NO_STREAM) -> None:
        """RTP of the sockaddr `address` is that of the stream `number` from now on, which is on the port's
        plane; `NO_STREAM`: of none."""
        with atomic.held(self._port["owner"]):
            know_at(self._at, np.frombuffer(address, np.uint8).copy(), number)

    def forget(self, address: bytes) -> None:
        """Nothing but STUN of the sockaddr `address` counts any more."""
        with atomic.held(self._port["owner"]):
            forget_at(self._at, np.frombuffer(address, np.uint8).copy())

    def close(self) -> None:
        """The port's socket is not touched any more. Idempotent: the record may be another port's by then."""
        if self._closed:
            return
        self._closed = True
        with atomic.held(self._port["owner"]):
            self._port["open"] = 0
            self._drive.forget_port(int(self._port["number"]))

    def read(self) -> None:
        """Hands on what was put aside: the rest in the next turn of the loop, where there is much."""
        if not self._reads:
            self._read()

    def _read(self) -> None:
        port, self._reads = self._port, False
        for _ in range(BURST):
            tail = int(port["tail"])
            if self._closed or tail == port["head"]:
                return
            slot = tail % ASIDES
            size, length, arrived_ns = port["aside"][slot].item()
            data, sender = port["aside_octets"][slot, :size].tobytes(), port["aside_from"][slot, :length]
            port["tail"] = tail + 1
            self._aside(data, sender.tobytes(), arrived_ns / _NS)
        self._reads = True
        self._loop.call_soon(self._read)


def begin_port(port: Any, fd: int, number: int, rows_at: int) -> None:
    """Makes `port` the port `number` of a plane with rows at `rows_at`, over the datagram socket `fd`. No
    address is known yet. The port is held."""
    for name in ("sources", "head", "tail", "waiting", "strays", "dropped", "source"):
        port[name] = 0
    port["number"], port["rows_at"], port["fd"] = number, rows_at, fd
    port["open"] = 1
