"""Timers of RFC 3261 as data, and the clock of alarms that the stack runs on."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

T1_S = 0.5
"""Round-trip estimate (RFC 3261 17.1.1.1)."""
T2_S = 4.0
"""Longest retransmission interval of non-INVITE requests and INVITE responses."""
T4_S = 5.0
"""Longest life of a message in the network."""
GIVE_UP_S = 64 * T1_S
"""Seconds of timers B, F, H, L, M: the wait for the other side."""


class Timer(StrEnum):
    """The transaction timers, by their letters in RFC 3261 table 4 and RFC 6026."""

    A = "A"  # INVITE request retransmission
    B = "B"  # INVITE transaction timeout
    D = "D"  # wait for retransmitted final responses
    E = "E"  # non-INVITE request retransmission
    F = "F"  # non-INVITE transaction timeout
    G = "G"  # INVITE response retransmission
    H = "H"  # wait for the ACK
    I = "I"  # wait for retransmitted ACKs  # noqa: E741
    J = "J"  # wait for retransmitted non-INVITE requests
    K = "K"  # wait for retransmitted responses
    L = "L"  # RFC 6026: absorbs INVITEs retransmitted after a 2xx
    M = "M"  # RFC 6026: passes up retransmitted and forked 2xx


@dataclass(frozen=True, slots=True)
class TimerRule:
    """Seconds of a timer: `first_s` over UDP, `reliable_s` over TCP and TLS (None: not started there). A
    retransmission timer doubles up to `ceiling_s`."""

    first_s: float
    reliable_s: float | None
    ceiling_s: float = math.inf
    repeats: bool = False


TIMER_RULES = {
    Timer.A: TimerRule(T1_S, None, repeats=True),
    Timer.B: TimerRule(GIVE_UP_S, GIVE_UP_S),
    Timer.D: TimerRule(GIVE_UP_S, 0.0),
    Timer.E: TimerRule(T1_S, None, T2_S, repeats=True),
    Timer.F: TimerRule(GIVE_UP_S, GIVE_UP_S),
    Timer.G: TimerRule(T1_S, None, T2_S, repeats=True),
    Timer.H: TimerRule(GIVE_UP_S, GIVE_UP_S),
    Timer.I: TimerRule(T4_S, 0.0),
    Timer.J: TimerRule(GIVE_UP_S, 0.0),
    Timer.K: TimerRule(T4_S, 0.0),
    Timer.L: TimerRule(GIVE_UP_S, GIVE_UP_S),
    Timer.M: TimerRule(GIVE_UP_S, GIVE_UP_S),
}


class Alarm:
    """A callback at a time, unless it is cancelled first."""

    __slots__ = ("_call", "at")

    def __init__(self, at: float, call: Callable[[float], None]) -> None:
        self.at = at
        self._call: Callable[[float], None] | None = call

    @property
    def pending(self) -> bool:
        return self._call is not None

    def cancel(self) -> None:
        """Cancels the alarm and drops its callback. Idempotent."""
        self._call = None

    def ring(self, now: float) -> None:
        call, self._call = self._call, None
        if call is not None:
            call(now)


class Clock:
    """A heap of alarms. `run(now)` passes the time in."""

    _COMPACT_ABOVE = 1024

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._count = 0
        self._compact_at = self._COMPACT_ABOVE

    def __len__(self) -> int:
        """Number of pending alarms; for tests of leaks."""
        return sum(alarm.pending for _, _, alarm in self._heap)

    def at(self, when: float, call: Callable[[float], None]) -> Alarm:
        """Arms an alarm at `when` (seconds of the caller's clock)."""
        alarm = Alarm(when, call)
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, alarm))
        if len(self._heap) > self._compact_at:
            self._compact()
        return alarm

    def next_at(self) -> float | None:
        """Returns the time of the next pending alarm, None without one."""
        while self._heap and not self._heap[0][2].pending:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> None:
        """Calls every alarm that is due, in order of time."""
        while (when := self.next_at()) is not None and when <= now:
            heapq.heappop(self._heap)[2].ring(now)

    def _compact(self) -> None:
        # Most alarms (A, B, E, F) are cancelled long before they are due: without compaction a busy server
        # would hold 32 s of cancelled ones.
        self._heap = [entry for entry in self._heap if entry[2].pending]
        heapq.heapify(self._heap)
        self._compact_at = max(self._COMPACT_ABOVE, 2 * len(self._heap))
