"""Rate limits of this node, in memory: requests a minute, and requests at once, of each caller."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from mediaserver.errors import TooMany

CALLERS_LIMIT = 10_000
"""The most callers remembered; the one that has been quiet longest is forgotten first, and starts anew."""

BURST_S = 10
"""A caller that was quiet may ask at once for as much as its rate gives in this time."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a caller stands: at most `limit` requests at once, `remaining` of them now, all again after
    `reset_s` seconds."""

    limit: int
    remaining: int
    reset_s: int


class RateLimit:
    """A token bucket for each caller: `per_minute` on average."""

    def __init__(self, per_minute: float) -> None:
        self._per_s = per_minute / 60
        self._burst = max(1.0, self._per_s * BURST_S)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, now: float) -> float:
        """Takes one of the caller's tokens and returns 0.0, or the seconds until there is one."""
        tokens, since = self._buckets.get(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._per_s)
        allowed = tokens >= 1.0
        self._buckets[caller] = (tokens - 1.0 if allowed else tokens, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > CALLERS_LIMIT:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1.0 - tokens) / self._per_s

    def standing(self, caller: str) -> Standing:
        """Returns how the caller stands after its last `take`."""
        tokens, _ = self._buckets.get(caller, (self._burst, 0.0))
        return Standing(int(self._burst), int(tokens), ceil((self._burst - tokens) / self._per_s))


class Places:
    """At most `limit` requests in progress for each caller. Further ones are refused, not queued: a client
    knows better what can wait."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Holds a place for the length of the block. Raises `TooMany`."""
        if self._taken[caller] >= self._limit:
            raise TooMany(f"No more than {self._limit} requests at once", retry_after_s=1)
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]
