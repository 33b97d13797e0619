"""The memory of live calls, and what many short ones leave: `python -m bench call --memory`."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from bench import report
from bench.call.generator import Job
from bench.call.owners import VARIABLE
from bench.call.phases import measured
from bench.call.processes import SCRIPT_NUMBER, ServerUnderTest, serving
from bench.support.processes import tree

TARGET_KIB: Final = 200.0
"""Of a call, after the short ones."""

SHORT_PER_S: Final = 20.0
STEPS: Final = 8
"""Of the short calls, after each of which memory is read."""

_FIRST_S: Final = 5.0
_SETTLED_S: Final = 5.0
_KINDS: Final = ("Rss", "Pss", "Anonymous")
_SHOWN: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many calls are held for how long, how many short ones come and go, and how many are traced."""

    calls: int = 100
    live_s: float = 30.0
    short_calls: int = 2000
    traced: int = 20


SHORT: Final = Plan(calls=30, live_s=15.0, short_calls=400, traced=10)


def measure(plan: Plan) -> dict[str, Any]:
    """Returns the memory of a live call before and after the short calls, what these left, and who holds
    it."""
    figures: dict[str, Any] = {"load_average_before": os.getloadavg(), "live_s": plan.live_s}
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as server:
        load = _Load(server)
        load.talk(1, _FIRST_S)
        idle = _memory(server)
        figures["idle_mib"] = {kind: round(kib / 1024, 1) for kind, kib in idle.items()}
        live = load.talk(plan.calls, plan.live_s)
        figures["calls"], figures["live_kib"] = load.up, _share(idle, live, load.up)
        figures["left_kib"] = _share(idle, _memory(server), load.up)
        figures["short"] = list(_short_calls(load, idle, plan.short_calls))
        live = load.talk(plan.calls, plan.live_s)
        figures["calls_after"], figures["live_after_kib"] = load.up, _share(idle, live, load.up)
    return figures | _owners(plan) | {"load_average_after": os.getloadavg()}


def _short_calls(load: _Load, idle: dict[str, float], calls: int) -> Iterator[dict[str, float]]:
    for step in range(1, STEPS + 1):
        failed = load.short(calls // STEPS)
        more = {f"{kind}_mib": round(kib / 1024, 2) for kind, kib in _share(idle, load.memory(), 1).items()}
        yield {"calls": step * (calls // STEPS), "failed": failed} | more


def _owners(plan: Plan) -> dict[str, Any]:
    """Returns KiB of a live call by what holds them, of a server whose allocations are traced."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "owners.json"
        os.environ[VARIABLE] = str(file)
        try:
            with serving(Path(scratch)) as server:
                load = _Load(server)
                load.talk(1, _FIRST_S)
                _told(server, file)
                idle = _told(server, file)
                live = load.talk(plan.traced, plan.live_s, lambda: _told(server, file))
        finally:
            del os.environ[VARIABLE]
    for kind, held in live.items():
        more = Counter(
            {name: (size - idle[kind].get(name, 0)) / load.up / 1024 for name, size in held.items()}
        )
        found[kind] = {name: round(kib, 2) for name, kib in more.most_common(_SHOWN)}
    return {"traced_calls": load.up, "owners_kib": found}


class _Load:
    """Calls against one server; `up`: those that were up at the end of the last `talk`."""

    def __init__(self, server: ServerUnderTest) -> None:
        self.up = 0
        self._server = server
        self._number = 14_155_560_000

    def memory(self) -> dict[str, float]:
        """KiB of the server."""
        return _memory(self._server)

    def talk(self, calls: int, seconds: float, read: Callable[[], Any] | None = None) -> Any:
        """Has `calls` talk for `seconds`; returns what `read`, else the memory, gives near the end."""
        found: list[Any] = []

        @contextmanager
        def near_the_end() -> Iterator[None]:
            time.sleep(max(1.0, seconds - _SETTLED_S))
            found.append((read or self.memory)())
            yield

        result, _ = measured(self._server, self._job(calls=calls, seconds=seconds), beside=near_the_end())
        self.up = result["up"]
        time.sleep(_SETTLED_S)
        return found[0]

    def short(self, calls: int) -> int:
        """Has so many calls come and go; returns how many of them failed."""
        result, _ = measured(self._server, self._job(seconds=calls / SHORT_PER_S, rate_per_s=SHORT_PER_S))
        time.sleep(_SETTLED_S)
        return sum(call["state"] != "ENDED" for call in result["calls"])

    def _job(self, **fields: Any) -> Job:
        self._number += 10_000
        return Job(server=self._server.address, called=SCRIPT_NUMBER, first_number=self._number, **fields)


def _memory(server: ServerUnderTest) -> dict[str, float]:
    """KiB of the server's processes together (smaps_rollup, proc(5))."""
    found = dict.fromkeys(_KINDS, 0.0)
    for pid in tree(server.process.pid):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
                name, _, rest = line.partition(":")
                if name in found:
                    found[name] += int(rest.split()[0])
    return found


def _share(idle: dict[str, float], now: dict[str, float], calls: int) -> dict[str, float]:
    return {kind: round((now[kind] - idle[kind]) / max(1, calls), 1) for kind in _KINDS}


def _told(server: ServerUnderTest, file: Path) -> dict[str, Any]:
    file.unlink(missing_ok=True)
    server.process.send_signal(signal.SIGUSR1)
    while not file.exists():
        time.sleep(0.1)
    told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return told


def run(*, short: bool) -> None:
    """Measures, prints the tables and keeps the figures."""
    figures = measure(SHORT if short else Plan())
    live, after = figures["live_kib"]["Rss"], figures["live_after_kib"]["Rss"]
    first, last = figures["short"][0], figures["short"][-1]
    slope = (last["Rss_mib"] - first["Rss_mib"]) * 1024 / max(1, last["calls"] - first["calls"])
    figures["kib_left_by_a_short_call"] = round(slope, 2)
    rows = [
        (f"RSS of a live call, KiB ({figures['calls']} calls)", f"{live:.0f}", ""),
        (
            f"the same after {last['calls']} short calls ({figures['calls_after']} calls)",
            f"{after:.0f}",
            "met" if after <= TARGET_KIB else "missed",
        ),
        ("left by a short call, KiB", f"{slope:.2f}", ""),
    ]
    report.show("memory of calls", ("what", "reached", ""), rows)
    for kind, held in figures["owners_kib"].items():
        report.show(f"{kind}, KiB of a live call", ("", "KiB"), list(held.items()))
    saved = report.save("call_memory", {"short": short} | figures)
    click.echo(saved.relative_to(report.RESULTS.parent))
