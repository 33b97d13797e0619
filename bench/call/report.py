"""Shows the figures of `bench call` as tables beside their targets, and as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import report
from bench.call.phases import kept_up, paced

Figures = Mapping[str, Any]
Row = tuple[str, str, str, str, str, str]

COLUMNS = ("what", "target", "reached", "bare asyncio", "bare uvloop", "")

FLOORS = {"bare": "bare", "bare_uvloop": "bare, uvloop"}
"""The floors by the key of their figures, with their names."""


def rows(figures: Figures) -> list[Row]:
    """Returns name, target, measured value, the values of both floors, and whether the target is met."""
    one, many, always = figures["one"], figures["many"], figures["many_always"]
    impaired = figures["many_impaired"]
    n = many["calls"]
    found = [
        _row(f"CPU ms per call-second, {n} calls", 5.0, many, "cpu_ms_per_call_second"),
        _row(f"the same, both sides talking always, {n}", 5.0, always, "cpu_ms_per_call_second"),
        _row(f"the same, DTX, echo, loss and jitter, {n}", 5.0, impaired, "cpu_ms_per_call_second"),
        _row("framework part, 1 call, p50 ms", 3.0, one, "framework_ms", "p50"),
        _row("framework part, 1 call, p95 ms", 10.0, one, "framework_ms", "p95"),
        _row(f"framework part, {n} calls, p95 ms", 15.0, many, "framework_ms", "p95"),
        _row(f"gap between packets, {n} calls, p99 ms", 22.0, many, "gap_ms", "p99"),
        _row(f"barge-in to last packet, {n} calls, p95 ms", 40.0, many, "barge_in_ms", "p95"),
        _limit("start to ready, warm cache, s", 3.0, figures["start_warm_s"]),
    ]
    rates = [float(step["rate_per_s"]) for step in figures["set_up"] if kept_up(step)]
    more = "" if len(rates) < len(figures["set_up"]) else " and more"
    found.append(_least("set-up and tear-down, calls per s", 50.0, max(rates, default=0.0), more))
    if "sweep" in figures:
        held = max((step["calls"] for step in figures["sweep"] if paced(step)), default=0)
        more = "" if any(not paced(step) for step in figures["sweep"]) else " and more"
        found.append(_least("concurrent calls before pacing breaks", 100, held, more))
    return found


def show(figures: Figures) -> None:
    """Prints the tables on the terminal."""
    report.show("Calls over SIP and RTP, engines at 0 ms", COLUMNS, rows(figures))
    phases = _phases(figures)
    report.show("Milliseconds that a caller waits", _LATENCY, [_latency(*each) for each in phases])
    report.show("The server's packets", _PACKETS, [_packets(*each) for each in phases])
    report.show("What calls cost", _COST, [_cost(*each) for each in phases])
    report.show("Set-up and tear-down", _RATES, [_rate(step) for step in figures["set_up"]])


def draw(figures: Figures) -> list[Path]:
    """Draws the pictures under results/ and returns their paths."""
    if len(figures.get("sweep", ())) < 2:
        return []
    steps = figures["sweep"]
    calls = [step["calls"] for step in steps]
    pacing = {
        "gap between packets, p99": [step["gap_ms"]["p99"] for step in steps],
        "framework part of voice-to-voice, p95": [step["framework_ms"]["p95"] or 0.0 for step in steps],
        "framework part of voice-to-voice, p50": [step["framework_ms"]["p50"] or 0.0 for step in steps],
    }
    return [report.lines("call", "Calls at once", calls, pacing, labels=("calls", "ms"))]


_LATENCY = ("phase", "turns", "v2v p50", "p95", "p99", "ours p50", "p95", "p99", "barge-in", "server's")
_PACKETS = ("phase", "gap p50", "p99", "p99.9", "jitter", "lost", "to server", "late", "loop lag p99")
_COST = (
    "phase",
    "CPU ms/call-s",
    "× bare",
    "× uvloop",
    "of a core",
    "generator",
    "others",
    "KiB/call",
    "generator late p99",
)
_RATES = ("calls per s", "calls", "failed", "set-up p50", "p95", "tear-down p95", "CPU ms/call", "of a core")


def _phases(figures: Figures) -> list[tuple[str, Figures]]:
    named = [
        ("1", figures["one"]),
        (f"{figures['many']['calls']}", figures["many"]),
        (f"{figures['many_always']['calls']}, always", figures["many_always"]),
        (f"{figures['many_impaired']['calls']}, impaired", figures["many_impaired"]),
        *((f"n={step['calls']}", step) for step in figures.get("sweep", ())),
    ]
    return [
        pair
        for name, of in named
        for pair in (*((f"{FLOORS[key]}, {name}", of[key]) for key in FLOORS if key in of), (name, of))
    ]


def _latency(name: str, of: Figures) -> list[object]:
    voice, framework = of["voice_to_voice_ms"], of["framework_ms"]
    ranks = ("p50", "p95", "p99")
    whole = ("" if voice[rank] is None else f"{voice[rank]:.1f}" for rank in ranks)
    parts = [framework[rank] for rank in ranks] + [of["barge_in_ms"]["p95"], of["against_server_ms"]["p50"]]
    return [name, voice["count"], *whole, *map(_number, parts)]


def _packets(name: str, of: Figures) -> list[object]:
    gap = of["gap_ms"]
    values = (gap["p50"], gap["p99"], gap["p99.9"], of["jitter_ms"]["p50"])
    counts = (of["generator_lost"], of["server_lost"], of["server_late"])
    told = ("" if count is None else count for count in counts)
    return [name, *map(_number, values), *told, _number(of["loop_lag_p99_ms"])]


def _cost(name: str, of: Figures) -> list[object]:
    shares = ("server_share_of_a_core", "generator_share_of_a_core", "others_share_of_machine")
    cpu_ms = of["cpu_ms_per_call_second"]
    return [
        name,
        _number(cpu_ms),
        *(_times(of, cpu_ms, key) for key in FLOORS),
        *(f"{of[share]:.0%}" for share in shares),
        of["rss_per_call_kib"],
        _number(of["generator_late_ms"]["p99"]),
    ]


def _times(of: Figures, cpu_ms: float, floor: str) -> str:
    """Returns how many times the CPU of `floor` is used."""
    least_ms = of[floor]["cpu_ms_per_call_second"] if floor in of else 0.0
    return _number(cpu_ms / least_ms) if least_ms else ""


def _rate(step: Figures) -> list[object]:
    values = (step["set_up_ms"]["p50"], step["set_up_ms"]["p95"], step["tear_down_ms"]["p95"])
    failed = f"{step['failed']} {', '.join(step['reasons'])}".strip()
    return [
        f"{step['rate_per_s']:g}",
        step["calls"],
        failed,
        *(_number(value) for value in values),
        step["cpu_ms_per_call"],
        f"{step['server_share_of_a_core']:.0%}",
    ]


def _row(name: str, target: float, of: Figures, key: str, rank: str = "") -> Row:
    """Returns a row; the target is missed where not all calls were up at the end of the phase."""
    value, plain, on_uvloop = (
        each[key][rank] if rank else each[key] for each in (of, *(of[floor] for floor in FLOORS))
    )
    lost = of["calls"] - of["up_at_end"]
    met = value is not None and value <= target and not lost
    return (
        name,
        f"≤ {target:g}",
        _number(value) + (f", {lost} calls not up" if lost else ""),
        _number(plain),
        _number(on_uvloop),
        _verdict(met),
    )


def _limit(name: str, target: float, value: float) -> Row:
    return name, f"≤ {target:g}", _number(value), "", "", _verdict(value <= target)


def _least(name: str, target: float, value: float, more: str = "") -> Row:
    return name, f"≥ {target:g}", f"{value:g}{more}", "", "", _verdict(value >= target)


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
