"""The phases of the benchmark: runs the generator against a target, and reads the system's counters
meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import IO, Any, Final

from bench.call.caller import Mode
from bench.call.figures import BROKEN_MS, Window, set_up_figures, talk_figures
from bench.call.generator import Job
from bench.call.processes import (
    MONOLOGUE_NUMBER,
    SCRIPT_NUMBER,
    ServerUnderTest,
    Target,
    machine_busy_ms,
)
from bench.support.processes import usage_of
from mediaserver.benchmark.figures import Figures

GENERATOR: Final = (sys.executable, "-m", "bench.call.generator")

NO_FLOORS: Final[Mapping[str, Target]] = MappingProxyType({})
"""Nothing is measured beside the target."""

FAILED_SHARE: Final = 0.01
SET_UP_LIMIT_MS: Final = 500.0
"""A rate is sustained while at most 1 % of its calls fail and 95 % are answered before T1 would have their
INVITE retransmitted (milliseconds)."""

ATTEMPTS: Final = 3
"""Tries of a step of the sweep until pacing counts as failed, since others may use the machine too."""

_REPORTED_CALLS: Final = 60
"""The most calls of a phase whose latencies are read from the API."""

_WRITTEN_S: Final = 2.0
"""Seconds that the server gets after the last call to write the outcomes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes and durations of the phases."""

    calls: int = 30
    seconds: float = 30.0
    single_seconds: float = 90.0
    rates: tuple[float, ...] = (10, 25, 50, 75, 100, 150)
    rate_seconds: float = 8.0
    sweep: tuple[int, ...] = (10, 30, 60, 100, 150, 200, 300, 400, 500)
    sweep_seconds: float = 15.0


class Phases:
    """Runs phases against one target after the other."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._number = 14_155_560_000

    def talk(
        self,
        target: Target,
        calls: int,
        seconds: float,
        *,
        mode: Mode = Mode.SCRIPT,
        beside: Mapping[str, Target] = NO_FLOORS,
    ) -> Figures:
        """Measures `calls` at once that talk for `seconds`. Each of `beside` gets the same calls just before,
        and the figures have those of each by its name."""
        floor = {name: self.talk(each, calls, seconds, mode=mode) for name, each in beside.items()}
        called = MONOLOGUE_NUMBER if mode is Mode.ALWAYS else SCRIPT_NUMBER
        job = self._job(target, called=called, calls=calls, seconds=seconds, mode=mode.value)
        result, window = measured(target, job)
        reports: list[dict[str, Any]] = []
        if isinstance(target, ServerUnderTest) and mode is not Mode.ALWAYS:
            reports = list(target.reports(min(calls, _REPORTED_CALLS)))
        return talk_figures(result, window, reports) | floor

    def set_up(self, target: Target) -> list[Figures]:
        """Measures short calls at rising rates, until one is not sustained."""
        steps: list[Figures] = []
        for rate in self._plan.rates:
            job = self._job(
                target, called=SCRIPT_NUMBER, seconds=self._plan.rate_seconds, rate_per_s=float(rate)
            )
            result, window = measured(target, job)
            steps.append(set_up_figures(result, window, rate))
            if not kept_up(steps[-1]):
                break
        return steps

    def sweep(self, target: Target, beside: Mapping[str, Target]) -> list[Figures]:
        """Measures more and more calls, in turns with `beside`, until the target's pacing fails."""
        steps: list[Figures] = []
        for calls in self._plan.sweep:
            steps.append(self._step(target, calls, beside))
            if not paced(steps[-1]):
                break
        return steps

    def _step(self, target: Target, calls: int, beside: Mapping[str, Target]) -> Figures:
        for attempt in range(1, ATTEMPTS + 1):
            step = self.talk(target, calls, self._plan.sweep_seconds, beside=beside) | {"attempts": attempt}
            if paced(step):
                break
        return step

    def _job(self, target: Target, **fields: Any) -> Job:
        self._number += 10_000
        return Job(server=target.address, first_number=self._number, **fields)


def kept_up(step: Figures) -> bool:
    """Whether the server sustained the rate of that step."""
    p95 = step["set_up_ms"]["p95"]
    return step["failed"] <= FAILED_SHARE * step["calls"] and p95 is not None and p95 <= SET_UP_LIMIT_MS


def paced(step: Figures) -> bool:
    """Whether the server's packets came evenly, and all calls were up at the end of that step."""
    deviation = step["gap_from_20_ms_p99"]
    return step["up_at_end"] == step["calls"] and deviation is not None and deviation <= BROKEN_MS


def measured(
    target: Target,
    job: Any,
    *,
    generator: Sequence[str] = GENERATOR,
    beside: AbstractContextManager[None] | None = None,
) -> tuple[dict[str, Any], Window]:
    """Runs the command `generator` with `job`, a dataclass, and reads the system's counters between its
    `begin` and `end`, during which `beside` is entered."""
    idle = target.usage()
    metrics = _metrics(target)
    with _generator(generator, job) as (process, lines):
        _expect(lines, "begin")
        before = time.monotonic(), target.usage(), usage_of(process.pid), machine_busy_ms()
        with beside or nullcontext():
            _expect(lines, "end")
        after = time.monotonic(), target.usage(), usage_of(process.pid), machine_busy_ms()
        result = json.loads(lines.readline())
    time.sleep(_WRITTEN_S)
    return result, Window(
        seconds=after[0] - before[0],
        server_cpu_ms=after[1].cpu_ms - before[1].cpu_ms,
        generator_cpu_ms=after[2].cpu_ms - before[2].cpu_ms,
        machine_cpu_ms=after[3] - before[3],
        cores=len(os.sched_getaffinity(0)),
        rss_before=idle.rss,
        rss=after[1].rss,
        metrics=(metrics, _metrics(target)),
    )


@contextmanager
def _generator(command: Sequence[str], job: Any) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(job)))
        process.stdin.close()
        try:
            yield process, process.stdout
        finally:
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()


def _expect(lines: IO[str], word: str) -> None:
    line = lines.readline().strip()
    if line != word:
        raise RuntimeError(f"the generator said {line[:200]!r} and not {word!r}")


def _metrics(target: Target) -> str:
    return str(target.get("/metrics")) if isinstance(target, ServerUnderTest) else ""
