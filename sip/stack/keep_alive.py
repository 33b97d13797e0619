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

SHORTEST_S, LONGEST_S = 10.0, 1800.0
"""A registrar that asks for pings more often, or more seldom, gets them this often."""

BACKOFF_FIRST_S, BACKOFF_LAST_S = 30.0, 1800.0
"""The wait before a flow is made anew that was lost again, at most; it doubles each time (RFC 5626 4.5)."""


class KeepAlive:
    """The keep-alives of one registration, every `every_s` seconds or as often as the registrar asks for
    them, whichever is more; 0: only as it asks. `renew` is called where the flow is gone."""

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
        self._losses = 0  # flows in a row that did not outlive a ping
        self._mute = False  # a flow was given up, and over no flow since did a pong come

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
                if await self._ping():
                    waited_s = loop.time() - pinged_at
                    continue
                await self._back_off()
                if is_current() and self._registration.settled and self._flow() is None:
                    self._renew()

    def _interval_s(self) -> float | None:
        """Returns the longest time between two pings, None where none are sent."""
        if not self._registration.settled:
            return None
        asked_s = self._registration.keep_s
        every = [self._every_s] if self._every_s else []
        if asked_s is not None:
            usual_s = DATAGRAM_S if self._registration.hop.transport == "udp" else STREAM_S
            every.append(min(max(float(asked_s), SHORTEST_S), LONGEST_S) if asked_s else usual_s)
        return min(every, default=None)

    def _flow(self) -> StreamConnection | None:
        return self._transport.dialled(self._registration.hop)

    async def _ping(self) -> bool:
        """Sends a ping; False: the flow is gone, or its peer does not answer."""
        hop = self._registration.hop
        if hop.transport == "udp":
            self._transport.send(Transmission(PING, hop))
            return True
        flow = self._flow()
        if flow is None:
            return False
        if await self._lives(flow):
            self._losses = 0
            return True
        flow.abort()
        return False

    async def _lives(self, flow: StreamConnection) -> bool:
        """Whether the peer of `flow` answers a ping, or is none of those that do: it may ask for pings and
        know no pongs, as the flow after one that was given up shows."""
        heard, sent = flow.heard, flow.ping()
        if not sent:
            return False
        await asyncio.sleep(PONG_S)
        promised = flow.pongs > 0 or (self._registration.keep_s is not None and not self._mute)
        lives = flow.heard != heard or not promised
        self._mute = not flow.pongs and (self._mute or not lives)
        return lives

    async def _back_off(self) -> None:
        """Waits before a flow is made anew, unless the one before has lived."""
        if self._losses:
            longest_s = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(self._losses - 1, 16))
            await asyncio.sleep(longest_s * self._random.uniform(0.5, 1.0))
        self._losses += 1
