"""Shows the figures of `bench capacity` as a table beside their targets, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench import report
from bench.capacity.threads import LOOP, PLANE

Figures = Mapping[str, Any]

GAP_MS: Final = 22.0
STALLED_GAP_MS: Final = 30.0
TITLES: Final = {"capacity": "Calls on one core", "capacity_stalls": "While Python stands still"}

_HEARD: Final = ("calls", "plane", "gap p50", "p99", "p99.9", "longest", "lost", "to server", "")
_COST: Final = ("calls", "of a core", "loop", "plane", "ms/call-s", "v2v p50", "p95", "KiB/call", "others")


def holds(step: Figures) -> bool:
    """Whether all calls were up, no packet was lost in either direction, and packets came evenly."""
    gap_ms = step["gap_ms"]["p99"]
    return not losses(step) and gap_ms is not None and gap_ms <= GAP_MS


def withstands(step: Figures) -> bool:
    """Whether nearly no caller notices that Python stands still."""
    gap_ms = step["gap_ms"]["p99.9"]
    return not losses(step) and gap_ms is not None and gap_ms <= STALLED_GAP_MS


def losses(step: Figures) -> int:
    """Returns how many calls or packets are missing."""
    lost = step["generator_lost"] + step["server_lost"] + step["server_late"] + step["unsent"]
    return int(step["calls"] - step["up_at_end"] + lost)


def show(name: str, figures: Figures) -> None:
    """Prints the tables on the terminal."""
    met = withstands if name == "capacity_stalls" else holds
    steps = figures["steps"]
    report.show(f"{TITLES[name]}: what callers get", _HEARD, [_heard(step, met=met(step)) for step in steps])
    report.show(f"{TITLES[name]}: what it costs", _COST, [_cost(step) for step in steps])


def draw(name: str, figures: Figures) -> list[Path]:
    """Draws results/NAME.png where there are several counts of calls; its path."""
    steps = figures["steps"]
    calls = [step["calls"] for step in steps]
    if len(set(calls)) < 2:
        return []
    series = {
        "gap between packets, p50, ms": [step["gap_ms"]["p50"] for step in steps],
        "gap between packets, p99, ms": [step["gap_ms"]["p99"] for step in steps],
        "gap between packets, p99.9, ms": [step["gap_ms"]["p99.9"] for step in steps],
        "server, % of its core": [100 * sum(step["shares_of_core"].values()) for step in steps],
        "the media plane's thread, % of its core": [100 * step["shares_of_core"][PLANE] for step in steps],
    }
    return [report.lines(name, TITLES[name], calls, series, labels=("calls", "ms, %"))]


def _heard(step: Figures, *, met: bool) -> tuple[str, ...]:
    gap, up = step["gap_ms"], step["up_at_end"]
    return (
        f"{step['calls']}" if up == step["calls"] else f"{up} of {step['calls']}",
        step["plane"],
        *(_number(gap[rank]) for rank in ("p50", "p99", "p99.9", "p100")),
        str(step["generator_lost"]),
        str(step["server_lost"] + step["server_late"] + step["unsent"]),
        "met" if met else "missed",
    )


def _cost(step: Figures) -> tuple[str, ...]:
    voice, cpu = step["voice_to_voice_ms"], step["shares_of_core"]
    return (
        str(step["calls"]),
        *(f"{share:.0%}" for share in (sum(cpu.values()), cpu[LOOP], cpu[PLANE])),
        *map(_number, (step["cpu_ms_per_call_second"], voice["p50"], voice["p95"])),
        str(step["rss_per_call_kib"]),
        f"{step['others_share_of_machine']:.0%}",
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
