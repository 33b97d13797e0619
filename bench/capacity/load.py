"""Many calls from one process, `python -m bench.capacity.load`: SIP in Python, media in `far_end`.

Reads a job as JSON, prints `begin` and `end` around the measured time, then the figures as one line of
JSON."""

from __future__ import annotations

import json
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.call.caller import SO_TIMESTAMPNS, speech
from bench.call.figures import pacing
from bench.call.sip_line import Line, LineState, call_id_of
from bench.capacity.far_end import CALLER, FRAME_SAMPLES, Clock, run
from mediaserver.benchmark.figures import Figures, percentiles

RATE_PER_S: Final = 10.0
SETTLE_S: Final = 4.0
"""Seconds for greetings and first turns, before the measured time."""

TALK_FRAMES: Final = 75
"""1.5 s, as long as the agent's sentences."""

PAUSE_MS: Final = (60, 300)
"""From the end of what the agent says to the caller's turn, a time of each caller's own."""

_PER_SECOND: Final = 50
_SLACK: Final = 4 * _PER_SECOND
_OVERDUE_NS: Final = 100_000_000
_LEAVE_S: Final = 0.01
_TRIES: Final = 4
_AGAIN_S: Final = 2.0
_RECEIVE_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """`calls` to number `called`, set up at `rate_per_s`, of which `seconds` are measured once all are up.
    The callers' numbers count up from `first_number`."""

    server: tuple[str, int]
    called: str
    first_number: int
    calls: int
    seconds: float
    rate_per_s: float = RATE_PER_S


class Load:
    """The calls of a job. Their media run on a thread from the start on."""

    def __init__(self, job: Crowd) -> None:
        self.job = job
        self._lines: dict[str, Line] = {}
        self._order: list[Line] = []
        self._refused = 0
        self._sockets: list[socket.socket] = []
        self._callers = np.zeros(job.calls, CALLER)
        most = round(job.seconds * _PER_SECOND) + _SLACK
        self._records: npt.NDArray[np.int64] = np.zeros((job.calls, 3, most), np.int64)
        self._clock = np.zeros(len(Clock), np.int64)
        self._clock[Clock.CALLS] = job.calls
        self._sip = socket.socket(type=socket.SOCK_DGRAM)
        self._sip.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._sip.bind(("127.0.0.1", 0))
        self._sip.setblocking(False)
        self._run_id = f"{random.SystemRandom().getrandbits(48):012x}"
        self._media = threading.Thread(target=self._run_media, daemon=True)
        self._media.start()

    def close(self) -> None:
        """Ends the media and closes the sockets."""
        self._clock[Clock.STOP] = 1
        self._media.join()
        for each in (self._sip, *self._sockets):
            each.close()

    def count(self, *states: LineState) -> int:
        """Returns how many calls are in one of `states`."""
        return sum(line.state in states for line in self._order)

    def place(self) -> None:
        """Places all calls at the job's rate, and returns when none is under way any more. Those refused are
        placed again, `_TRIES` times in all."""
        wanted = list(range(self.job.calls))
        for again in range(_TRIES):
            for number in wanted:
                self._place(number, again)
                self.wait(1 / self.job.rate_per_s)
            self.wait(15.0, lambda: not self.count(LineState.CALLING))
            wanted = [each for each, line in enumerate(self._order) if line.state is LineState.FAILED]
            if not wanted:
                return
            self._refused += len(wanted)
            self.wait(_AGAIN_S)

    def measure(self) -> Figures:
        """Counts what is heard for the job's seconds; the figures."""
        self._clock[Clock.RECORDING] = 1
        self.wait(self.job.seconds)
        up = self.count(LineState.TALKING)
        self._clock[Clock.RECORDING] = 0
        return {"up_at_end": up}

    def leave(self) -> None:
        """Hangs all calls up."""
        for line in self._order:
            self._send(line.leave(time.time_ns()))
            self.wait(_LEAVE_S)
        self.wait(8.0, lambda: not self.count(LineState.CALLING, LineState.LEAVING))

    def figures(self) -> Figures:
        """Returns what the callers measured; call it after `measure`."""
        callers, records = self._callers, self._records
        heard = [
            {"arrivals_ns": arrivals[:count], "sequences": sequences[:count]}
            for (arrivals, sequences, _), count in zip(records, callers["heard"], strict=True)
        ]
        answers = [
            ns / 1e6
            for (*_, latencies), count in zip(records, callers["answered"], strict=True)
            for ns in latencies[:count]
        ]
        sent, packets = int(callers["sent"].sum()), int(callers["heard"].sum())
        return {
            **pacing(heard),
            "sent": sent,
            "unsent": int(callers["unsent"].sum()),
            "callers_speak": round(int(callers["spoken"].sum()) / max(1, sent), 3),
            "agents_speak": round(int(callers["loud"].sum()) / max(1, packets), 3),
            "voice_to_voice_ms": percentiles(answers, 50, 95, 99),
            "missed_answers": int(callers["missed"].sum()),
            "load_latest_tick_ms": round(int(self._clock[Clock.LATEST_NS]) / 1e6, 2),
            "refused": self._refused,
            "failed": sorted({line.reason for line in self._order if line.reason}),
        }

    def wait(self, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Answers SIP for so long, or until `done` returns True."""
        end = time.monotonic() + seconds
        while (left_s := end - time.monotonic()) > 0 and not done():
            if select.select([self._sip], [], [], min(left_s, _OVERDUE_NS / 1e9))[0]:
                self._signalled()
            now_ns = time.time_ns()
            for line in self._order:
                if line.state in (LineState.CALLING, LineState.LEAVING):
                    self._send(line.overdue(now_ns))

    def _place(self, number: int, again: int) -> None:
        """Sends the INVITE of a call, which was refused `again` times before."""
        line = Line(
            self.job.server,
            self._sip.getsockname(),
            call_id=f"{self._run_id}-{number}-{again}",
            caller=f"+{self.job.first_number + number}",
            called=self.job.called,
        )
        if again:
            self._order[number] = line
        else:
            self._sockets.append(_bound())
            self._order.append(line)
        self._lines[line.call_id] = line
        self._send(line.invite(self._sockets[number].getsockname(), time.time_ns()))

    def _send(self, message: bytes) -> None:
        if message:
            self._sip.sendto(message, self.job.server)

    def _signalled(self) -> None:
        with suppress(BlockingIOError):
            message = self._sip.recv(65_536).decode(errors="replace")
            line = self._lines.get(call_id_of(message))
            if line is None:
                return
            before = line.state
            self._send(line.receive(message, time.time_ns()))
            if line.state is not before:
                self._changed(line)

    def _changed(self, line: Line) -> None:
        """Begins the media of an answered call; that of a call which has ended stops."""
        number = self._order.index(line)
        caller = self._callers[number]
        if line.state is LineState.TALKING:
            self._sockets[number].connect(line.media)
            rng = random.Random(self.job.first_number + number)
            caller["pause_ns"] = rng.randrange(*PAUSE_MS) * 1_000_000
            caller["sequence"], caller["timestamp"] = rng.getrandbits(15), rng.getrandbits(32)
            caller["ssrc"] = rng.getrandbits(32)
            caller["fd"] = self._sockets[number].fileno()  # last: the thread looks at this
        elif line.state in (LineState.ENDED, LineState.FAILED):
            caller["fd"] = 0

    def _run_media(self) -> None:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        run(self._callers, sentence(), self._records, self._clock)


def _bound() -> socket.socket:
    """A caller's RTP socket."""
    bound = socket.socket(type=socket.SOCK_DGRAM)
    bound.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    bound.bind(("127.0.0.1", 0))
    return bound


def sentence() -> npt.NDArray[np.uint8]:
    """What a caller says, in frames of 20 ms of µ-law."""
    short = speech()
    frames = [*short[:-4], *short[16 : 16 + TALK_FRAMES - len(short)], *short[-4:]]
    return np.frombuffer(b"".join(frames), np.uint8).reshape(TALK_FRAMES, FRAME_SAMPLES).copy()


def main() -> None:
    """Reads a job from standard input and runs it."""
    fields = json.load(sys.stdin)
    with closing(Load(Crowd(**fields | {"server": tuple(fields["server"])}))) as load:
        load.place()
        load.wait(SETTLE_S)
        print("begin", flush=True)
        found = load.measure()
        print("end", flush=True)
        load.leave()
    print(json.dumps(found | load.figures()), flush=True)


if __name__ == "__main__":
    main()
