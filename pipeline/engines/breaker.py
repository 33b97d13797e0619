"""A circuit breaker: a failed engine gets no requests for a while, so that its deadline costs one caller once
and not every caller at every sentence.

Sans I/O: results in, a state out, `now` in seconds as an argument. The pattern is Nygard's ("Release It!",
ch. 5). Closed: requests pass. Open: requests are refused. Half open, after a pause: one request passes, and
its result closes the breaker or opens it again, with twice the pause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class BreakerState(Enum):
    """The state of a circuit breaker: closed, open or half open."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class _Sign(Enum):
    SUCCEEDED = auto()
    FAILED = auto()  # fewer failures in a row than open the breaker
    TRIPPED = auto()  # the failure that opens the breaker
    PAUSE_OVER = auto()


_C, _O, _H = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN

# A request may outlive a change of state: an open breaker closes at the success of an earlier request.
_NEXT: Final[Mapping[tuple[BreakerState, _Sign], BreakerState]] = {
    (_C, _Sign.SUCCEEDED): _C,
    (_C, _Sign.FAILED): _C,
    (_C, _Sign.TRIPPED): _O,
    (_C, _Sign.PAUSE_OVER): _C,
    (_O, _Sign.SUCCEEDED): _C,
    (_O, _Sign.FAILED): _O,
    (_O, _Sign.TRIPPED): _O,
    (_O, _Sign.PAUSE_OVER): _H,
    (_H, _Sign.SUCCEEDED): _C,
    (_H, _Sign.FAILED): _O,
    (_H, _Sign.TRIPPED): _O,
    (_H, _Sign.PAUSE_OVER): _H,
}


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """The settings of a circuit breaker. `failures`: failures in a row that open the breaker; a missed
    deadline opens it at once. `pause_s`: the first pause; `longest_s`: the longest, after doublings.
    `probe_s`: time after which a request in half open without a result no longer counts. In seconds."""

    failures: int = 3
    pause_s: float = 5.0
    longest_s: float = 60.0
    probe_s: float = 30.0


class Breaker:
    """The circuit breaker of one engine. Call `admits` before a request and one of `succeeded`, `failed` and
    `abandoned` after it; `abandoned` for a request that its caller gave up."""

    __slots__ = ("_failures", "_pause_s", "_probed_at", "_settings", "_until", "state")

    def __init__(self, settings: BreakerSettings | None = None) -> None:
        self.state = BreakerState.CLOSED
        self._settings = settings or BreakerSettings()
        self._failures = 0
        self._pause_s = self._settings.pause_s
        self._until = 0.0
        self._probed_at: float | None = None

    def admits(self, now: float) -> bool:
        """Whether a request may be sent at `now`; in half open True counts as the one request."""
        if self.state is _O and now >= self._until:
            self._receive(_Sign.PAUSE_OVER)
        if self.state is not _H:
            return self.state is _C
        if self._probed_at is not None and now < self._probed_at + self._settings.probe_s:
            return False
        self._probed_at = now
        return True

    def is_open(self, now: float) -> bool:
        """Whether a request would be refused now; changes nothing."""
        if self.state is _O:
            return now < self._until
        probing = self._probed_at is not None and now < self._probed_at + self._settings.probe_s
        return self.state is _H and probing

    def succeeded(self) -> None:
        """Notes an answered request, which closes the breaker."""
        self._failures = 0
        self._pause_s = self._settings.pause_s
        self._receive(_Sign.SUCCEEDED)

    def failed(self, now: float, *, slow: bool = False, rest_s: float = 0.0) -> None:
        """Notes a failed request. `slow`: the request missed its deadline; `rest_s`: the pause in seconds
        that the engine asked for."""
        self._failures += 1
        was = self.state
        enough = slow or rest_s > 0 or self._failures >= self._settings.failures
        self._receive(_Sign.TRIPPED if enough else _Sign.FAILED)
        if self.state is _O and was is not _O:
            self._until = now + max(self._pause_s, rest_s)
            self._pause_s = min(self._settings.longest_s, 2 * self._pause_s)

    def abandoned(self) -> None:
        """Notes a request that was given up before it had a result."""
        self._probed_at = None

    def _receive(self, sign: _Sign) -> None:
        self.state = _NEXT[self.state, sign]
        self._probed_at = None
