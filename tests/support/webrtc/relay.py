"""A bad network in this process: stands between a client and a port of ours, loses and delays media."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast


class _Side(asyncio.DatagramProtocol):
    """One socket of the relay. `client`: whose datagrams leave on it; None for the one that clients see."""

    def __init__(self, relay: Relay, client: tuple[str, int] | None = None) -> None:
        self._relay = relay
        self.client = client
        self.transport: asyncio.DatagramTransport | None = None
        self.early: list[tuple[bytes, tuple[str, int]]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)
        for data, target in self.early:
            self.transport.sendto(data, target)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._relay.forward(data, addr, client=self.client)

    async def bind(self, host: str) -> None:
        """A socket on a free port of `host`."""
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, local_addr=(host, 0))

    def close(self) -> None:
        """Closes it."""
        if self.transport is not None:
            self.transport.close()


class Relay:
    """`loss` is a share of media packets, `jitter_s` the most that one is delayed. `lost` counts. To the
    server each client has an address of its own. While it is `cut` nothing passes."""

    def __init__(self, server: tuple[str, int], *, loss: float, jitter_s: float, seed: int = 1) -> None:
        self.lost = 0
        self.cut = False
        self.port = 0
        self._server = server
        self._host = "127.0.0.1"
        self._loss = loss
        self._jitter_s = jitter_s
        self._rng = random.Random(seed)
        self._outer = _Side(self)
        self._inner: dict[tuple[str, int], _Side] = {}
        self._binding: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Binds the socket that clients send to."""
        await self._outer.bind("127.0.0.1")
        assert self._outer.transport is not None
        self.port = self._outer.transport.get_extra_info("sockname")[1]

    def close(self) -> None:
        """Closes all sockets."""
        for side in (self._outer, *self._inner.values()):
            side.close()

    async def move(self, host: str) -> None:
        """From now on the server sees the clients at other addresses: telephones that changed their
        network."""
        self._host = host
        before, self._inner = self._inner, {client: _Side(self, client) for client in self._inner}
        for side in self._inner.values():
            await side.bind(host)
        for side in before.values():
            side.close()

    def forward(self, data: bytes, addr: tuple[str, int], *, client: tuple[str, int] | None) -> None:
        """One datagram, to the server or back to `client`."""
        if self.cut:
            return
        delay_s = 0.0
        if 127 < data[0] < 192:
            if self._rng.random() < self._loss:
                self.lost += 1
                return
            delay_s = self._rng.random() * self._jitter_s
        side, target = (self._outer, client) if client is not None else (self._of(addr), self._server)
        if target is not None:
            asyncio.get_running_loop().call_later(delay_s, self._send, side, data, target)

    def _of(self, client: tuple[str, int]) -> _Side:
        if client not in self._inner:
            side = self._inner[client] = _Side(self, client)
            task = asyncio.create_task(side.bind(self._host))
            self._binding.add(task)
            task.add_done_callback(self._binding.discard)
        return self._inner[client]

    def _send(self, side: _Side, data: bytes, target: tuple[str, int]) -> None:
        if side.client is not None:
            side = self._inner.get(side.client, side)  # it may have moved meanwhile
        if side.transport is None:
            side.early.append((data, target))
        elif not side.transport.is_closing():
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
