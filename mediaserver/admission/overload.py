"""Judges whether this node is overloaded, by what callers notice. No clock of its own.

Three things grow without bound where there is more work than time: how late the event loop is (every packet
of audio is as late), how long a SIP message waits to be handled, and how long a caller waits for the
application's first response. Each has a limit. A moment is HIGH where one of them is over its limit, and LOW
where all are under half of it, by the median of the last `LOOKS` looks, so that a single pause (a garbage
collection, a machine that was busy elsewhere) does not count.

```
            HIGH                    LOW                     LOW for `recovery_s`
CALM ────────────────► OVERLOADED ───────► RECOVERING ─────────────────────────► CALM
                            ▲                   │ HIGH, BETWEEN
                            └───────────────────┘
```
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from statistics import median
from typing import Final

LOOKS: Final = 5
"""The number of looks of which the median counts: a quarter of a second at 20 looks a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Milliseconds of each figure of a `Look` from which on the node is overloaded; 0: the figure does not
    count. `recovery_s`: how long all figures must be low before new work is accepted again."""

    lag_ms: float
    backlog_ms: float
    set_up_ms: float
    recovery_s: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The figures of one moment, in milliseconds: how late the event loop was, how long a SIP message has
    waited since the last look, how long a caller has waited for a response."""

    lag_ms: float = 0.0
    backlog_ms: float = 0.0
    set_up_ms: float = 0.0


FIGURES: Final = ("lag_ms", "backlog_ms", "set_up_ms")


class State(Enum):
    """New work is accepted in CALM alone."""

    CALM = auto()
    OVERLOADED = auto()
    RECOVERING = auto()


class Level(Enum):
    """How a moment compares with the limits."""

    LOW = auto()
    BETWEEN = auto()
    HIGH = auto()


MOVES: Final[Mapping[State, Mapping[Level, State]]] = {
    State.CALM: {
        Level.LOW: State.CALM,
        Level.BETWEEN: State.CALM,
        Level.HIGH: State.OVERLOADED,
    },
    State.OVERLOADED: {
        Level.LOW: State.RECOVERING,
        Level.BETWEEN: State.OVERLOADED,
        Level.HIGH: State.OVERLOADED,
    },
    State.RECOVERING: {
        Level.LOW: State.RECOVERING,  # CALM after `recovery_s`
        Level.BETWEEN: State.OVERLOADED,
        Level.HIGH: State.OVERLOADED,
    },
}


class Judge:
    """Judges the load by regular calls of `look`. `state` is the result, `medians` the figures that it was
    judged by."""

    def __init__(self, limits: Limits) -> None:
        self.state = State.CALM
        self.medians = Look()
        self._limits = limits
        self._looks: deque[Look] = deque(maxlen=LOOKS)
        self._low_since = 0.0

    @property
    def takes_more(self) -> bool:
        """Whether new work is accepted."""
        return self.state is State.CALM

    def look(self, look: Look, now: float) -> State:
        """Takes the figures of `now` (seconds); returns the node's state."""
        self._looks.append(look)
        self.medians = Look(**{name: median(getattr(each, name) for each in self._looks) for name in FIGURES})
        before, self.state = self.state, MOVES[self.state][self._level()]
        if self.state is not State.RECOVERING:
            return self.state
        if before is not State.RECOVERING:
            self._low_since = now
        elif now - self._low_since >= self._limits.recovery_s:
            self.state = State.CALM
        return self.state

    def _level(self) -> Level:
        if len(self._looks) < LOOKS:
            return Level.LOW  # a process that has just started is late with everything
        pairs = [(getattr(self.medians, name), getattr(self._limits, name)) for name in FIGURES]
        pressures = [value / limit for value, limit in pairs if limit]
        worst = max(pressures, default=0.0)
        if worst >= 1.0:
            return Level.HIGH
        return Level.LOW if worst < 0.5 else Level.BETWEEN
