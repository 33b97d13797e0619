"""Keeps the flow of a registration open: CRLF keep-alives (RFC 5626 4.4.1), asked for by `keep` (RFC 6223).

Over a stream the registrar answers a ping by a pong; a connection that stays silent is given up, and the
contact registered anew. Over UDP a ping opens the NAT, and nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from sip.dialog.registration import Registration
from sip.message.framing import PING
from sip.stack.transport import StreamConnection, Transport
from sip.transaction.hop import Transmission

PONG_S: Final = 10.0
"""How long a pong may take (RFC 5626 4.4.1)."""

LOOK_S: Final = 5.0
"""How often a registration is looked at while nothing is to be sent."""

STREAM_S, DATAGRAM_S = 120.0, 29.0
"""The longest intervals where the registrar names none (RFC 5626 4.4)."""

SHORTEST_S: Final = 10.0
"""A registrar that asks for pings more often gets them this often."""


class KeepAlive:
    """The keep-alives of one registration. `every_s` 0: as often as the registrar asks for them, if it does.
    `renew` is called where the flow is gone."""

    def __init__(
        self,
        transport: Transport,
        registration: Registration,
        *,
        every_s: float,
        random: Random,
        renew: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._registration = registration
        self._every_s = every_s
        self._random = random
        self._renew = renew

    async def run(self, is_current: Callable[[], bool]) -> None:
        """Sends pings until the registration is not current any more."""
        loop = asyncio.get_running_loop()
        waited_s = 0.0  # for the last pong
        while is_current():
            longest_s = self._interval_s()
            if longest_s is None:
                await asyncio.sleep(LOOK_S)
                continue
            await asyncio.sleep(max(0.0, longest_s * self._random.uniform(0.8, 1.0) - waited_s))
            waited_s = 0.0
            if is_current() and self._registration.settled:
                pinged_at = loop.time()
                await self._ping()
                waited_s = loop.time() - pinged_at

    def _interval_s(self) -> float | None:
        """Returns the longest time between two pings, None where none are sent."""
        asked_s = self._registration.keep_s
        if self._every_s:
            return self._every_s
        if asked_s is None or not self._registration.settled:
            return None
        usual_s = DATAGRAM_S if self._registration.hop.transport == "udp" else STREAM_S
        return max(float(asked_s), SHORTEST_S) if asked_s else usual_s

    async def _ping(self) -> None:
        hop = self._registration.hop
        if hop.transport == "udp":
            self._transport.send(Transmission(PING, hop))
            return
        flow = self._transport.dialled(hop)
        if flow is None:
            self._renew()
        elif not await self._lives(flow):
            flow.abort()
            if self._registration.settled:
                self._renew()

    async def _lives(self, flow: StreamConnection) -> bool:
        """Whether the peer of `flow` answers a ping, or is none of those that do."""
        heard, sent = flow.heard, flow.ping()
        if not sent:
            return False
        await asyncio.sleep(PONG_S)
        promised = flow.pongs > 0 or self._registration.keep_s is not None
        return flow.heard != heard or not promised
