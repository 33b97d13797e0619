"""A bad network in this process: stands between a client and a port of ours, loses and delays media."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast


class _Side(asyncio.DatagramProtocol):
    """One socket of the relay."""

    def __init__(self, relay: Relay, *, inward: bool) -> None:
        self._relay = relay
        self._inward = inward
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._relay.forward(data, addr, inward=self._inward)


class Relay:
    """`loss` is a share of media packets, `jitter_s` the most that one is delayed. `lost` counts."""

    def __init__(self, server: tuple[str, int], *, loss: float, jitter_s: float, seed: int = 1) -> None:
        self.lost = 0
        self.port = 0
        self._server = server
        self._client: tuple[str, int] | None = None
        self._loss = loss
        self._jitter_s = jitter_s
        self._rng = random.Random(seed)
        self._outer = _Side(self, inward=True)
        self._inner = _Side(self, inward=False)

    async def open(self) -> None:
        """Binds both sockets."""
        loop = asyncio.get_running_loop()
        for side in (self._outer, self._inner):
            await loop.create_datagram_endpoint(lambda side=side: side, local_addr=("127.0.0.1", 0))  # type: ignore[misc]
        assert self._outer.transport is not None
        self.port = self._outer.transport.get_extra_info("sockname")[1]

    def close(self) -> None:
        """Closes them."""
        for side in (self._outer, self._inner):
            if side.transport is not None:
                side.transport.close()

    def forward(self, data: bytes, addr: tuple[str, int], *, inward: bool) -> None:
        """One datagram, to the server or back."""
        if inward:
            self._client = addr
        delay_s = 0.0
        if 127 < data[0] < 192:
            if self._rng.random() < self._loss:
                self.lost += 1
                return
            delay_s = self._rng.random() * self._jitter_s
        asyncio.get_running_loop().call_later(delay_s, self._send, data, inward)

    def _send(self, data: bytes, inward: bool) -> None:
        side = self._inner if inward else self._outer
        target = self._server if inward else self._client
        if side.transport is not None and not side.transport.is_closing() and target is not None:
            side.transport.sendto(data, target)


@asynccontextmanager
async def relay(port: int, *, loss: float, jitter_s: float) -> AsyncIterator[Relay]:
    """A relay in front of `port` of this machine."""
    made = Relay(("127.0.0.1", port), loss=loss, jitter_s=jitter_s)
    await made.open()
    try:
        yield made
    finally:
        made.close()
