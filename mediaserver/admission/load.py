"""Measures this node's load twenty times a second; asked before anything new is accepted.

Calls in progress are never touched. New calls get 503 with Retry-After by SIP, as do browser sessions and
speech requests over HTTP. Queued calls stay in the queue, since nobody waits for them on a line. `/readyz`
reports the overload, for load balancers."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from mediaserver.admission.overload import Judge, Limits, Look
from mediaserver.errors import Unavailable
from mediaserver.settings import OverloadSettings
from mediaserver.telemetry.metrics import Metrics
from sip.endpoint import Endpoint

log = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 2
"""Retry-After of refused calls. Short: a carrier that obeys sends nothing at all for so long, also calls for
which there would be time."""

OVERLOADED: Final = "overloaded"


class Load:
    """Decides whether this node accepts more. `observe` gets the event loop's lateness, again and again."""

    def __init__(self, settings: OverloadSettings, *, endpoint: Endpoint, metrics: Metrics) -> None:
        limits = Limits(lag_ms=settings.lag_ms, backlog_ms=settings.backlog_ms, set_up_ms=settings.set_up_ms)
        self._judge = Judge(limits)
        self._endpoint = endpoint
        self._metrics = metrics
        self._shed = 0
        endpoint.gate.overload = self.pause_s

    def pause_s(self) -> int:
        """Returns after how many seconds a client may ask again; 0: now."""
        return 0 if self._judge.takes_more else RETRY_AFTER_S

    def check(self) -> None:
        """Raises `Unavailable` while the node is overloaded."""
        if not self._judge.takes_more:
            raise Unavailable("The server is overloaded", retry_after_s=RETRY_AFTER_S)

    def observe(self, lag_s: float) -> None:
        """Takes the event loop's lateness in seconds, and judges the load."""
        self._metrics.loop_lag.observe(lag_s)
        look = Look(
            lag_ms=lag_s * 1000,
            backlog_ms=self._endpoint.backlog_s() * 1000,
            set_up_ms=self._endpoint.undecided_s() * 1000,
        )
        before = self._judge.takes_more
        self._judge.look(look, asyncio.get_running_loop().time())
        if self._judge.takes_more is not before:
            self._tell()

    def _tell(self) -> None:
        calm, medians, shed = self._judge.takes_more, self._judge.medians, self._endpoint.stats.shed
        self._metrics.overloaded.set(0 if calm else 1)
        if calm:
            log.warning("no longer overloaded", extra={"refused_by_sip": shed - self._shed})
            return
        self._shed = shed
        log.warning(
            "overloaded, nothing new is taken",
            extra={
                "lag_ms": round(medians.lag_ms, 1),
                "backlog_ms": round(medians.backlog_ms, 1),
                "set_up_ms": round(medians.set_up_ms, 1),
            },
        )
