"""The other end of a site's trunk: an endpoint in this process, which answers calls and places them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from sip.call import Call, CallFailed
from sip.endpoint import Endpoint, EndpointSettings
from sip.trunk import Trunk
from sip.trunk_settings import TrunkSettings
from tests.support.node.node import Site
from tests.support.ports import free_rtp_ports

Answering: TypeAlias = Callable[[Call], Awaitable[None]]
"""What is done with a call that comes; one that fails under it is over."""


class Carrier:
    """`calls`: those that came. `trunk` places calls to the server."""

    def __init__(self, phone: Endpoint, trunk: Trunk) -> None:
        self.phone = phone
        self.trunk = trunk
        self.calls: list[Call] = []

    async def answer_with(self, answering: Answering) -> None:
        """Every call is treated by `answering`, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            async for call in self.phone.incoming():
                self.calls.append(call)
                tasks.create_task(self._treat(answering, call))
                del call

    async def _treat(self, answering: Answering, call: Call) -> None:
        with suppress(CallFailed):
            await answering(call)


@asynccontextmanager
async def carrier(site: Site, answering: Answering) -> AsyncIterator[Carrier]:
    """Treats the calls of the site's trunk by `answering` until the block ends."""
    first, last = (int(port) for port in free_rtp_ports(160).split("-"))
    rtp_ports = (first + 80, last)  # the lower half is the site's
    settings = EndpointSettings(udp=f"127.0.0.1:{site.carrier}", rtp_ports=rtp_ports)
    async with Endpoint(settings) as phone:
        uri = f"sip:127.0.0.1:{site.sip};transport=udp"
        trunk = phone.add_trunk(TrunkSettings(id="us", uri=uri, allow_from=("127.0.0.1/32",)))
        side = Carrier(phone, trunk)
        task = asyncio.create_task(side.answer_with(answering))
        try:
            yield side
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
