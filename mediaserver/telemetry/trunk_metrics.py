"""Figures of each trunk for Prometheus: its registration, and how the calls over it went.

A trunk's figures go with the trunk, and beyond `SHOWN` trunks the others are counted together: whoever makes
trunks over the API cannot fill a monitoring server."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.utils import floatToGoString

from sip.call import Call, CallFailed
from sip.states import CallState, Direction

SHOWN = 200
"""Trunks with figures of their own."""

OTHERS = "(others)"
"""The label of all further trunks together; no trunk has this id."""

NO_RESPONSE = "none"
"""The code of a call without a final response, or whose INVITE could not leave."""

DELAYS_S = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 15.0, 20.0, 30.0)

_CODES = frozenset(
    {200, 400, 401, 403, 404, 407, 408, 410, 415, 420, 480, 481, 482, 483, 484, 486, 487, 488}
    | {500, 501, 502, 503, 504, 600, 603, 604, 606, 607, 608}
)
"""Codes that are told each by itself; the others by their class, "4xx"."""


@dataclass(slots=True)
class _Figures:
    """What one trunk's calls came to: final codes by direction, and post-dial delays by bucket."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    delays: list[int] = field(default_factory=lambda: [0] * (len(DELAYS_S) + 1))
    delay_s: float = 0.0
    signatures: Counter[str] = field(default_factory=Counter)

    def add(self, other: _Figures) -> None:
        """Adds another trunk's figures."""
        self.calls.update(other.calls)
        self.delays = [one + more for one, more in zip(self.delays, other.delays, strict=True)]
        self.delay_s += other.delay_s
        self.signatures.update(other.signatures)


class TrunkFigures(Collector):
    """Follows calls over trunks, and shows how they went in `registry`.

    `registered` is set to what returns the trunks that there are: by id, whether a registrar holds the
    contact, None for a trunk that does not register; `telephones` to what returns how many telephones are
    registered here, by trunk."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registered: Callable[[], Mapping[str, bool | None]] = dict
        self.telephones: Callable[[], Mapping[str, int]] = dict
        self._figures: dict[str, _Figures] = {}
        registry.register(self)

    def follow(self, call: Call) -> None:
        """Counts `call` by its final response, and times its first sign of ringing. To be called in the step
        in which the call was made."""
        _Following(self._of, call)

    def passed_over(self, trunk_id: str, status: int) -> None:
        """Counts a call that went on over another trunk; `status` 408: nobody answered."""
        code = NO_RESPONSE if status == 408 else _label(status)
        self._of(trunk_id).calls[Direction.OUTBOUND.value, code] += 1

    def signed(self, trunk_id: str, *, succeeded: bool) -> None:
        """Counts an INVITE that a signing service was to sign."""
        self._of(trunk_id).signatures["signed" if succeeded else "unsigned"] += 1

    @contextmanager
    def placing(self, trunk_id: str) -> Iterator[None]:
        """Counts a call whose INVITE could not leave: the block raises `CallFailed`."""
        try:
            yield
        except CallFailed:
            self._of(trunk_id).calls[Direction.OUTBOUND.value, NO_RESPONSE] += 1
            raise

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of the trunks that there are."""
        trunks = self.registered()
        self._forget(trunks)
        yield self._registrations(trunks)
        yield self._telephones()
        calls = CounterMetricFamily(
            "mediaserver_trunk_calls",
            "Calls over a trunk by the final code of their INVITE",
            labels=("trunk", "direction", "code"),
        )
        delays = HistogramMetricFamily(
            "mediaserver_trunk_post_dial_delay_seconds",
            "From the INVITE to the first sign of ringing, or the answer",
            labels=("trunk",),
        )
        bounds = [*map(floatToGoString, DELAYS_S), "+Inf"]
        for trunk, figures in self._shown(trunks).items():
            for (direction, code), count in sorted(figures.calls.items()):
                calls.add_metric((trunk, direction, code), count)
            buckets = list(zip(bounds, accumulate(figures.delays), strict=True))
            delays.add_metric((trunk,), buckets, figures.delay_s)
        yield from (calls, delays, self._signatures(trunks))

    def _signatures(self, trunks: Mapping[str, bool | None]) -> CounterMetricFamily:
        family = CounterMetricFamily(
            "mediaserver_trunk_signatures",
            "INVITEs of trunks with a signing service, signed or not",
            labels=("trunk", "result"),
        )
        for trunk, figures in self._shown(trunks).items():
            for result, count in sorted(figures.signatures.items()):
                family.add_metric((trunk, result), count)
        return family

    def _registrations(self, trunks: Mapping[str, bool | None]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "mediaserver_trunk_registered", "1: a registrar holds the trunk's contact", labels=("trunk",)
        )
        asking = [(trunk, held) for trunk, held in sorted(trunks.items()) if held is not None]
        for trunk, held in asking[:SHOWN]:
            family.add_metric((trunk,), float(held))
        if rest := asking[SHOWN:]:
            family.add_metric((OTHERS,), float(all(held for _, held in rest)))
        return family

    def _telephones(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "mediaserver_trunk_telephones", "Telephones that are registered here", labels=("trunk",)
        )
        for trunk, many in sorted(self.telephones().items())[:SHOWN]:
            family.add_metric((trunk,), float(many))
        return family

    def _shown(self, trunks: Mapping[str, bool | None]) -> dict[str, _Figures]:
        """Returns the figures by the label of their trunk."""
        own = set(sorted(trunks)[:SHOWN])
        shown: dict[str, _Figures] = {}
        for trunk, figures in sorted(self._figures.items()):
            shown.setdefault(trunk if trunk in own else OTHERS, _Figures()).add(figures)
        return shown

    def _of(self, trunk: str) -> _Figures:
        if trunk not in self._figures:
            self._forget(self.registered())
        return self._figures.setdefault(trunk, _Figures())

    def _forget(self, trunks: Mapping[str, bool | None]) -> None:
        for gone in self._figures.keys() - trunks.keys():
            del self._figures[gone]


class _Following:
    """One call over a trunk, until its INVITE has its final response."""

    def __init__(self, of: Callable[[str], _Figures], call: Call) -> None:
        self._of = of
        self._trunk_id = call.trunk_id
        of(call.trunk_id)
        self._began = asyncio.get_running_loop().time()
        self._delayed = call.direction is Direction.INBOUND  # not timed: the delay is this server's own
        self._over = False
        call.on_state(self._moved)
        if call.state in (CallState.ANSWERED, CallState.ENDED):
            self._moved(call, call.state, self._began)

    def _moved(self, call: Call, state: CallState, now: float) -> None:
        figures = self._of(call.trunk_id)
        if state in (CallState.RINGING, CallState.ANSWERED) and not self._delayed:
            self._delayed = True
            if call.trunk_id == self._trunk_id:  # else the delay is mostly that of the trunk before
                figures.delays[bisect_left(DELAYS_S, now - self._began)] += 1
                figures.delay_s += now - self._began
        if state in (CallState.ANSWERED, CallState.ENDED) and not self._over:
            self._over = True
            figures.calls[call.direction.value, _code(call, state)] += 1


def _code(call: Call, state: CallState) -> str:
    """Returns the label of the final response to the call's INVITE."""
    if state is CallState.ANSWERED:
        return "200"
    if not call.status or (call.direction is Direction.OUTBOUND and not call.definite):
        return NO_RESPONSE
    return _label(call.status)


def _label(status: int) -> str:
    return str(status) if status in _CODES else f"{status // 100}xx"
