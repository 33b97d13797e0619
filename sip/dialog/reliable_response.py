"""Retransmits responses to an INVITE: a 2xx until its ACK, a reliable 1xx until its PRACK."""

from __future__ import annotations

import math
from collections.abc import Callable

from sip.message.message import Response
from sip.transaction.timers import GIVE_UP_S, T1_S, T2_S, Alarm, Clock
from sip.transaction.transaction import ServerTransaction


class ReliableResponse:
    """Retransmits a response at growing intervals until it is acknowledged or given up.

    A 2xx: intervals from T1 doubling to T2 (RFC 3261 13.3.1.4). A reliable 1xx: doubling without limit (RFC
    3262 section 3, `ceiling_s` infinite). Both are given up after 64*T1."""

    def __init__(
        self,
        clock: Clock,
        transaction: ServerTransaction,
        response: Response,
        *,
        ceiling_s: float = T2_S,
        on_give_up: Callable[[float], None],
    ) -> None:
        self.cseq = response.cseq.number
        self._clock = clock
        self._transaction = transaction
        self._response = response
        self._ceiling_s = ceiling_s
        self._on_give_up = on_give_up
        self._wait_s = T1_S
        self._next: Alarm | None = None
        self._end: Alarm | None = None

    def start(self, now: float) -> None:
        """Sends the response for the first time."""
        # Armed before the transaction's own timer of the same length, so that it rings first.
        self._end = self._clock.at(now + GIVE_UP_S, self._give_up)
        self._send(now)

    def stop(self) -> None:
        """Stops retransmitting, because the response was acknowledged or is obsolete. Idempotent."""
        for alarm in (self._next, self._end):
            if alarm is not None:
                alarm.cancel()

    def _send(self, now: float) -> None:
        self._transaction.respond(self._response, now)
        self._next = self._clock.at(now + self._wait_s, self._send)
        self._wait_s = min(2 * self._wait_s, self._ceiling_s)

    def _give_up(self, now: float) -> None:
        self.stop()
        self._on_give_up(now)


UNLIMITED_S = math.inf
