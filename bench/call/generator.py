"""The load generator, `python -m bench.call.generator`: runs callers in a process of its own; reads a job as
JSON.

Prints `begin` and `end` around the measured time, then the result as one line of JSON. One thread, one epoll,
one heap of deadlines: 100 calls take an eighth of a core."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench.call.caller import SO_TIMESTAMPNS, WAIT_S, Caller, Heard, Mode, stamp_ns
from bench.call.people import utterances
from bench.call.sip_line import Line, LineState, call_id_of

RAMP_PER_S: Final = 20.0
SETTLE_S: Final = 3.0
"""Seconds for greetings and first turns, before the measured time."""

HOLD_S: Final = 0.5
"""Seconds that a call of the set-up phase lasts."""

_OVERDUE_NS: Final = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to measure. With `rate_per_s`: short calls (of `hold_s` seconds, with their packets where
    `records`) for `seconds`; else `calls` that talk for `seconds`. The callers' numbers count up from
    `first_number`. A caller counts an answer as missed that has not begun after `patience_s`."""

    server: tuple[str, int]
    called: str
    first_number: int
    calls: int = 1
    seconds: float = 10.0
    mode: str = Mode.SCRIPT.value
    rate_per_s: float = 0.0
    hold_s: float = HOLD_S
    records: bool = False
    patience_s: float = WAIT_S


class Generator:
    """The callers of a job, and the heap of their deadlines."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.lines: list[Line] = []
        self.callers: list[Caller] = []
        self._sip = socket.socket(type=socket.SOCK_DGRAM)
        self._sip.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._sip.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._sip.bind(("127.0.0.1", 0))
        self._sip.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._sip, select.EPOLLIN)
        self._by_id: dict[str, tuple[Line, Caller]] = {}
        self._by_fd: dict[int, Caller] = {}
        self._deadlines: list[tuple[int, int, Callable[[int], None]]] = []
        self._order = itertools.count()
        self._run_id = f"{random.SystemRandom().getrandbits(48):012x}"
        self.at(time.time_ns() + _OVERDUE_NS, self._resend)

    def at(self, due_ns: int, what: Callable[[int], None]) -> None:
        """Calls `what(now_ns)` at `due_ns`."""
        heapq.heappush(self._deadlines, (due_ns, next(self._order), what))

    def run_until(self, end_ns: int, done: Callable[[], bool] = lambda: False) -> None:
        """Sends and receives until `end_ns`, or until `done` returns True."""
        while (now := time.time_ns()) < end_ns and not done():
            while self._deadlines and self._deadlines[0][0] <= now:
                heapq.heappop(self._deadlines)[2](now)
                now = time.time_ns()
            next_ns = min(self._deadlines[0][0], end_ns) if self._deadlines else end_ns
            for fd, _ in self._epoll.poll(max(0.0, (next_ns - now) / 1e9)):
                caller = self._by_fd.get(fd)
                if caller is not None:
                    caller.readable()
                elif fd == self._sip.fileno():
                    self._signalled()

    def call(self, now_ns: int) -> Line:
        """Places one more call."""
        number = len(self.lines)
        mode = Mode(self.job.mode)
        sayings = utterances() if mode is Mode.PEOPLE else ()
        caller = Caller(
            "127.0.0.1",
            mode,
            seed=self.job.first_number + number,
            sayings=sayings,
            patience_s=self.job.patience_s,
        )
        line = Line(
            self.job.server,
            self._sip.getsockname(),
            call_id=f"{self._run_id}-{number}",
            caller=f"+{self.job.first_number + number}",
            called=self.job.called,
            keys=caller.keys,
        )
        self.lines.append(line)
        self.callers.append(caller)
        self._by_id[line.call_id] = line, caller
        self._by_fd[caller.socket.fileno()] = caller
        self._epoll.register(caller.socket, select.EPOLLIN)
        self._send(line.invite(caller.address, now_ns))
        return line

    def leave(self, line: Line, now_ns: int) -> None:
        """Hangs a call up."""
        self._send(line.leave(now_ns))

    def ramp(self, now_ns: int) -> None:
        """Places the job's calls one by one, `RAMP_PER_S` per second."""
        self.call(now_ns)
        if len(self.lines) < self.job.calls:
            self.at(now_ns + round(1e9 / RAMP_PER_S), self.ramp)

    def close(self) -> None:
        """Closes the sockets."""
        for caller in self.callers:
            caller.close()
        self._epoll.close()
        self._sip.close()

    def count(self, states: tuple[LineState, ...]) -> int:
        """Returns how many calls are in one of `states`."""
        return sum(line.state in states for line in self.lines)

    def _send(self, message: bytes) -> None:
        if message:
            self._sip.sendto(message, self.job.server)

    def _signalled(self) -> None:
        try:
            # Not only SIP arrives: callers send no RTCP, and the server's reports to an RTP port plus one may
            # hit this port.
            data, ancillary, _, _ = self._sip.recvmsg(65_536, 64)
        except BlockingIOError:
            return
        message, came_ns = data.decode(errors="replace"), stamp_ns(ancillary[0][2])
        line, caller = self._by_id.get(call_id_of(message), (None, None))
        if line is None or caller is None:
            return
        before = line.state
        self._send(line.receive(message, came_ns))
        if line.state is before:
            return
        now = time.time_ns()
        if line.state is LineState.TALKING:
            caller.begin(line.media, now)
            self.at(caller.due_ns, lambda now: self._tick(line, caller, now))
        elif line.state in (LineState.ENDED, LineState.FAILED):
            self._by_fd.pop(caller.socket.fileno(), None)
            caller.close()

    def _tick(self, line: Line, caller: Caller, now_ns: int) -> None:
        if line.state in (LineState.TALKING, LineState.LEAVING):
            caller.tick(now_ns)
            self.at(caller.due_ns, lambda now: self._tick(line, caller, now))

    def _resend(self, now_ns: int) -> None:
        for line in self.lines:
            if line.state in (LineState.CALLING, LineState.LEAVING):
                self._send(line.overdue(now_ns))
        self.at(now_ns + _OVERDUE_NS, self._resend)


def talk(generator: Generator) -> dict[str, Any]:
    """Runs `calls` at once, measured for `seconds` when all are up."""
    job, start = generator.job, time.time_ns()
    generator.ramp(start)
    limit = start + round((job.calls / RAMP_PER_S + 15) * 1e9)
    waiting = (LineState.CALLING,)
    generator.run_until(limit, lambda: len(generator.lines) == job.calls and not generator.count(waiting))
    generator.run_until(time.time_ns() + round(SETTLE_S * 1e9))
    _say("begin")
    _record(generator, recording=True)
    generator.run_until(time.time_ns() + round(job.seconds * 1e9))
    up = generator.count((LineState.TALKING,))
    _record(generator, recording=False)
    _say("end")
    for line in generator.lines:
        generator.leave(line, time.time_ns())
        generator.run_until(time.time_ns() + 2_000_000)
    busy = (LineState.CALLING, LineState.LEAVING)
    generator.run_until(time.time_ns() + 8_000_000_000, lambda: not generator.count(busy))
    return {
        "up": up,
        "calls": [_told(*each) for each in zip(generator.lines, generator.callers, strict=True)],
    }


def short_calls(generator: Generator) -> dict[str, Any]:
    """Runs calls of `hold_s`, `rate_per_s` started each second for `seconds`."""
    job, start = generator.job, time.time_ns()
    total = round(job.rate_per_s * job.seconds)
    _say("begin")
    for number in range(total):
        generator.at(start + round(number * 1e9 / job.rate_per_s), lambda now: _short(generator, now))
    busy = (LineState.CALLING, LineState.TALKING, LineState.LEAVING)
    end = start + round((job.seconds + 10) * 1e9)
    generator.run_until(end, lambda: len(generator.lines) == total and not generator.count(busy))
    _say("end")
    if not job.records:
        return {"calls": [_set_up(line) for line in generator.lines]}
    return {"calls": [_told(*each) for each in zip(generator.lines, generator.callers, strict=True)]}


def _short(generator: Generator, now_ns: int) -> None:
    line = generator.call(now_ns)
    generator.callers[-1].recording = generator.job.records
    generator.at(now_ns + round(generator.job.hold_s * 1e9), lambda now: _end_short(generator, line, now))


def _end_short(generator: Generator, line: Line, now_ns: int) -> None:
    if line.state is LineState.CALLING:  # not answered yet: hung up after the answer
        generator.at(now_ns + _OVERDUE_NS, lambda now: _end_short(generator, line, now))
    else:
        generator.leave(line, now_ns)


def _record(generator: Generator, *, recording: bool) -> None:
    for caller in generator.callers:
        caller.recording = recording


def _set_up(line: Line) -> dict[str, Any]:
    ended = line.state is LineState.ENDED
    return {
        "state": line.state.name,
        "reason": line.reason,
        "refused_ms": (line.refused_ns - line.invited_ns) / 1e6 if line.refused_ns else None,
        "retry_after_s": line.retry_after_s,
        "set_up_ms": (line.answered_ns - line.invited_ns) / 1e6 if line.answered_ns else None,
        "tear_down_ms": (line.ended_ns - line.left_ns) / 1e6 if ended and line.left_ns else None,
        "retransmissions": line.retransmissions,
    }


def _told(line: Line, caller: Caller) -> dict[str, Any]:
    heard: Heard = caller.heard
    plain = asdict(heard) | {
        name: getattr(heard, name).tolist() for name in ("late_sends_ns", "arrivals_ns", "sequences")
    }
    return _set_up(line) | {"caller": line.caller} | plain


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """Reads a job from standard input and runs it."""
    fields = json.load(sys.stdin)
    job = Job(**fields | {"server": tuple(fields["server"])})
    with closing(Generator(job)) as generator:
        result = short_calls(generator) if job.rate_per_s else talk(generator)
    _say(json.dumps(result))


if __name__ == "__main__":
    main()
