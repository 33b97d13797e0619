"""Measures more calls than the server can handle, and the outcome of those that it took: `python -m bench
overload`.

The server and the load of `bench call`: short calls over SIP and RTP at a steady rate. First the rate is
raised until calls are refused; then half of that rate, the rate itself and three times as much are measured
in turns. A good server answers every call soon, with 200 or with 503 and Retry-After, and calls in progress
are not disturbed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from bench import report
from bench.call.figures import Window, loop_lag_ms, pacing, surroundings
from bench.call.generator import Job
from bench.call.phases import measured
from bench.call.processes import SCRIPT_NUMBER, ServerUnderTest, before_others, serving
from mediaserver.benchmark.figures import Figures, percentiles

REFUSAL_TARGET_MS: Final = 100.0
GAP_TARGET: Final = 2.0
SHARES: Final = (0.5, 1.0, 3.0)

HOLD_S: Final = 2.0
"""Seconds that a call lasts: long enough for a greeting, short enough that call set-up is most of the
work."""

FIRST_RATE: Final = 8.0
STEP: Final = 1.25
LAST_RATE: Final = 400.0
STEP_S: Final = 4.0
REFUSED_SHARE: Final = 0.02
"""Share of a step's calls that are refused, or not answered at all, from which on refusal has begun."""


class Load:
    """Short calls against one server; each phase has numbers of its own."""

    def __init__(self, server: ServerUnderTest, *, hold_s: float) -> None:
        self._server = server
        self._hold_s = hold_s
        self._number = 14_155_560_000

    def onset(self) -> float:
        """Returns the lowest rate at which calls are refused."""
        rate = FIRST_RATE
        while rate < LAST_RATE:
            step = phase_figures(*self.at(rate, STEP_S))
            click.echo(f"{rate:.0f} a second: {step['refused']} of {step['calls']} refused", err=True)
            if step["refused"] + step["unanswered"] >= REFUSED_SHARE * step["calls"]:
                break
            rate *= STEP
        return rate

    def at(self, rate_per_s: float, seconds: float) -> tuple[list[Figures], Window]:
        """Runs the calls of a phase; returns their outcomes and the system's counters."""
        self._number += 10_000
        job = Job(
            server=self._server.address,
            called=SCRIPT_NUMBER,
            first_number=self._number,
            seconds=seconds,
            rate_per_s=rate_per_s,
            hold_s=self._hold_s,
            records=True,
        )
        result, window = measured(self._server, job)
        return result["calls"], window


def phase_figures(calls: Sequence[Figures], window: Window) -> Figures:
    """Returns the figures of one phase."""
    refused = [call for call in calls if call["refused_ms"] is not None]
    talked = [call for call in calls if call["set_up_ms"] is not None]
    return {
        "calls": len(calls),
        "answered": len(talked),
        "refused": len(refused),
        "refused_without_retry_after": sum(not call["retry_after_s"] for call in refused),
        "statuses": sorted({call["reason"] for call in refused}),
        "unanswered": len(calls) - len(talked) - len(refused),
        "retransmissions": sum(call["retransmissions"] for call in calls),
        "refused_ms": percentiles((call["refused_ms"] for call in refused), 50, 99, 100),
        "set_up_ms": percentiles((call["set_up_ms"] for call in talked), 50, 99),
        "loop_lag_p99_ms": loop_lag_ms(window.metrics, 0.99),
        **pacing(talked),
        **surroundings(talked, window),
    }


def measure(*, seconds: float, rounds: int, onset_per_s: float | None) -> dict[str, Any]:
    """Returns all figures, as in results/overload.json."""
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as server:
        load = Load(server, hold_s=HOLD_S)
        load.at(FIRST_RATE, 2.0)  # first-time work of the process
        onset = onset_per_s or load.onset()
        phases: dict[float, list[Figures]] = {share: [] for share in SHARES}
        for _ in range(rounds):
            for share in SHARES:
                click.echo(f"measuring: {share:g} × {onset:.0f} calls a second", err=True)
                phases[share].append(phase_figures(*load.at(share * onset, seconds)))
    return {
        "load_average": (load_before, os.getloadavg()),
        "onset_per_s": round(onset, 1),
        "onset_given": onset_per_s is not None,
        "seconds": seconds,
        "hold_s": HOLD_S,
        "phases": [
            {"share": share, "rate_per_s": round(share * onset, 1), "rounds": found}
            for share, found in phases.items()
        ],
    }


def rows(figures: Figures) -> list[tuple[str, ...]]:
    """Returns a row per phase and round."""
    return [
        (
            f"{phase['share']:g} × onset, {phase['rate_per_s']:g} a second",
            *(str(each[name]) for name in ("calls", "answered", "refused", "unanswered")),
            _ms(each["refused_ms"]["p99"]),
            _ms(each["set_up_ms"]["p99"]),
            _ms(each["gap_ms"]["p99"]),
            f"{each['server_share_of_a_core']:.0%}",
            f"{each['others_share_of_machine']:.0%}",
        )
        for phase in figures["phases"]
        for each in phase["rounds"]
    ]


def targets(figures: Figures) -> list[tuple[str, str, str, str]]:
    """Returns name, target, measured value, and whether the target is met; the worse round counts."""
    half, _, triple = (phase["rounds"] for phase in figures["phases"])
    slowest = max((each["refused_ms"]["p99"] or 0.0 for each in triple), default=0.0)
    ratios = [
        busy["gap_ms"]["p99"] / quiet["gap_ms"]["p99"]
        for quiet, busy in zip(half, triple, strict=True)
        if busy["gap_ms"]["p99"] and quiet["gap_ms"]["p99"]
    ]
    unanswered = sum(each["unanswered"] for each in triple)
    return [
        (
            "refusal at 3 ×, p99 ms",
            f"≤ {REFUSAL_TARGET_MS:g}",
            f"{slowest:.1f}",
            _met(0 < slowest <= REFUSAL_TARGET_MS),
        ),
        (
            "gap p99 at 3 × over that at 0.5 ×",
            f"≤ {GAP_TARGET:g}",
            f"{max(ratios, default=0.0):.2f}",
            _met(bool(ratios) and max(ratios) <= GAP_TARGET),
        ),
        ("no final answer at 3 ×", "0", str(unanswered), _met(unanswered == 0)),
    ]


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


COLUMNS: Final = (
    "phase",
    "calls",
    "answered",
    "refused",
    "unanswered",
    "refusal p99 ms",
    "set-up p99 ms",
    "gap p99 ms",
    "server's core",
    "others",
)


@click.command()
@click.option(
    "--seconds", default=12.0, show_default=True, type=click.FloatRange(2), help="Seconds of each phase."
)
@click.option(
    "--rounds", default=2, show_default=True, type=click.IntRange(1, 10), help="Rounds of the phases."
)
@click.option(
    "--onset",
    type=click.FloatRange(1),
    help="The rate at which refusing begins; absent, the rate is searched.",
)
@click.option("--short", is_flag=True, help="Run shorter phases, two minutes in all.")
@click.option("--realtime", is_flag=True, help="Run server and load under SCHED_RR (needs root).")
@click.option("--name", default="overload", show_default=True, help="Name of the file of results.")
def main(seconds: float, rounds: int, onset: float | None, *, short: bool, realtime: bool, name: str) -> None:
    """More calls than the server can do: which are refused, how soon, and what the others notice."""
    with before_others(wanted=realtime):
        figures = measure(
            seconds=min(seconds, 6.0) if short else seconds, rounds=1 if short else rounds, onset_per_s=onset
        )
    report.show("Overload", COLUMNS, rows(figures))
    report.show("Targets", ("what", "target", "reached", ""), targets(figures))
    report.save(name, {"short": short, "realtime": realtime} | figures)
