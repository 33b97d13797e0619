"""Computes the figures of the table from the counts of the generator and the system."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench.call.processes import ENDPOINT_MS
from mediaserver.benchmark.figures import Figures, percentiles

PERIOD_MS: Final = 20.0
BROKEN_MS: Final = 10.0
"""Milliseconds; pacing has failed when the 99th percentile of the gaps' distance from 20 ms exceeds this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The system's counters for the measured time of a phase. `metrics`: the server's /metrics before and
    after."""

    seconds: float
    server_cpu_ms: float
    generator_cpu_ms: float
    machine_cpu_ms: float
    cores: int
    rss_before: int
    rss: int
    metrics: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Turns:
    """Voice-to-voice latency of one phase in milliseconds. `differences`: the generator's figure minus the
    server's for the same turn; `engines`: the engines' part of a turn, by the server's account."""

    measured: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)
    engines: list[float] = field(default_factory=list)


def talk_figures(result: Mapping[str, Any], window: Window, reports: Sequence[Mapping[str, Any]]) -> Figures:
    """Returns the figures of calls that talked; `reports` are the API's, where the target has an API."""
    calls = result["calls"]
    turns = matched(calls, reports)
    engines = float(np.median(turns.engines)) if turns.engines else 0.0
    barge_ins = [(last - decided) / 1e6 for call in calls for decided, last in call["barge_ins"]]
    return {
        "calls": len(calls),
        "up_at_end": result["up"],
        "seconds": round(window.seconds, 2),
        "cpu_ms_per_call_second": round(window.server_cpu_ms / window.seconds / len(calls), 3),
        "voice_to_voice_ms": percentiles(turns.measured, 50, 95, 99),
        "framework_ms": percentiles((ms - ENDPOINT_MS - engines for ms in turns.measured), 50, 95, 99),
        "engines_ms": round(engines, 3),
        "against_server_ms": percentiles(turns.differences, 5, 50, 95),
        "missed_turns": sum(call["missed"] for call in calls),
        "barge_in_ms": percentiles(barge_ins, 50, 95, 100),
        **pacing(calls),
        "loop_lag_p99_ms": loop_lag_ms(window.metrics, 0.99),
        "server_lost": counted(window.metrics, 'mediaserver_rtp_packets_total{kind="lost"}'),
        "server_late": counted(window.metrics, 'mediaserver_rtp_packets_total{kind="late"}'),
        "rss_per_call_kib": round((window.rss - window.rss_before) / len(calls) / 1024),
        **surroundings(calls, window),
    }


def pacing(calls: Sequence[Mapping[str, Any]]) -> Figures:
    """Returns how evenly the server's packets arrived, by the kernel's clock, and how many were lost."""
    gaps, jitters, lost = [], [], 0
    for call in calls:
        arrivals = np.asarray(call["arrivals_ns"], np.float64) / 1e6
        steps = np.diff(np.asarray(call["sequences"], np.int64)).astype(np.int64) & 0xFFFF
        between = np.diff(arrivals)
        gaps.append(between[steps == 1])
        lost += int(np.sum(np.clip(steps[steps < 0x8000] - 1, 0, None)))
        jitters.append(jitter_ms(between, steps))
    every = np.concatenate(gaps) if gaps else np.empty(0)
    return {
        "gap_ms": percentiles(every, 1, 50, 99, 99.9, 100),
        "gap_from_20_ms_p99": percentiles(np.abs(every - PERIOD_MS), 99)["p99"],
        "jitter_ms": percentiles(jitters, 50, 100),
        "packets": sum(len(call["arrivals_ns"]) for call in calls),
        "generator_lost": lost,
    }


def jitter_ms(gaps: np.ndarray[Any, Any], steps: np.ndarray[Any, Any]) -> float:
    """Returns the interarrival jitter of RFC 3550 6.4.1 at the end of the call, in milliseconds."""
    jitter = 0.0
    for gap, step in zip(gaps.tolist(), steps.tolist(), strict=True):
        if step < 0x8000:
            jitter += (abs(gap - PERIOD_MS * step) - jitter) / 16
    return jitter


def surroundings(calls: Sequence[Mapping[str, Any]], window: Window) -> Figures:
    """Returns the conditions of a measurement: the punctuality of the generator, and the CPU of other
    programs."""
    late = [ns / 1e6 for call in calls for ns in call["late_sends_ns"]]
    whole_ms = window.seconds * 1000 * window.cores
    others = window.machine_cpu_ms - window.server_cpu_ms - window.generator_cpu_ms
    return {
        "generator_late_ms": percentiles(late, 50, 99),
        "server_share_of_a_core": round(window.server_cpu_ms / window.seconds / 1000, 4),
        "generator_share_of_a_core": round(window.generator_cpu_ms / window.seconds / 1000, 4),
        "others_share_of_machine": round(max(0.0, others) / whole_ms, 3),
    }


def matched(calls: Sequence[Mapping[str, Any]], reports: Sequence[Mapping[str, Any]]) -> Turns:
    """Pairs the generator's turns with the server's figures where these can be matched: the server's last
    ones, since it begins to count before the generator does."""
    turns = Turns()
    told = {report["phoneNumber"]: report["turns"] for report in reports}
    for call in calls:
        measured = [(first - voiced) / 1e6 for voiced, first, _ in call["turns"]]
        turns.measured.extend(measured)
        latencies = [turn["latency"] for turn in told.get(call["caller"], ()) if turn["latency"] is not None]
        for ms, latency in _aligned(measured, latencies):
            turns.differences.append(ms - latency["voiceToVoiceMs"])
            turns.engines.append(latency["sttMs"] + latency["agentMs"] + latency["ttsMs"])
    return turns


def _aligned(measured: list[float], told: list[Any]) -> Iterable[tuple[float, Any]]:
    """Pairs by position: skips the turns before the measured time; the hang-up adds none."""
    best: list[tuple[float, Any]] = []
    error = float("inf")
    for skip in range(max(0, len(told) - len(measured)) + 1):
        pairs = list(zip(measured, told[skip:], strict=False))
        off = sum(abs(ms - latency["voiceToVoiceMs"]) for ms, latency in pairs)
        if len(pairs) == len(measured) and off < error:
            best, error = pairs, off
    return best


def set_up_figures(result: Mapping[str, Any], window: Window, rate_per_s: float) -> Figures:
    """Returns the figures of short calls at a rate."""
    calls = result["calls"]
    failed = [call for call in calls if call["state"] != "ENDED" or call["reason"]]
    return {
        "rate_per_s": rate_per_s,
        "calls": len(calls),
        "failed": len(failed),
        "reasons": sorted({call["reason"] or call["state"] for call in failed}),
        "retransmissions": sum(call["retransmissions"] for call in calls),
        "set_up_ms": percentiles((call["set_up_ms"] for call in calls if call["set_up_ms"]), 50, 95, 99),
        "tear_down_ms": percentiles((call["tear_down_ms"] for call in calls if call["tear_down_ms"]), 50, 95),
        "cpu_ms_per_call": round(window.server_cpu_ms / max(1, len(calls)), 2),
        "server_share_of_a_core": round(window.server_cpu_ms / window.seconds / 1000, 3),
    }


def loop_lag_ms(metrics: tuple[str, str], rank: float) -> float | None:
    """Returns a percentile of the event loop's lateness between two scrapes, interpolated within its
    bucket."""
    return histogram_ms(metrics, "mediaserver_loop_lag_seconds", rank)


def histogram_ms(metrics: tuple[str, str], name: str, rank: float) -> float | None:
    """Returns a percentile of a histogram of seconds between two scrapes, in milliseconds, interpolated
    within its bucket."""
    counts = _counts(metrics, name)
    if not counts or not counts[-1][1]:
        return None
    wanted, low, below = rank * counts[-1][1], 0.0, 0.0
    for bound, count in counts:
        if count >= wanted:
            top = bound if bound != float("inf") else low
            share = (wanted - below) / (count - below) if count > below else 1.0
            return round((low + (top - low) * share) * 1000, 2)
        low, below = bound, count
    return None


def above(metrics: tuple[str, str], name: str, bound_s: float) -> tuple[int, int]:
    """Returns how many samples of a histogram between two scrapes were above `bound_s`, one of its bounds,
    and the count of all."""
    counts = dict(_counts(metrics, name))
    whole = counts.get(float("inf"), 0.0)
    return round(whole - counts.get(bound_s, whole)), round(whole)


def _counts(metrics: tuple[str, str], name: str) -> list[tuple[float, float]]:
    before, after = (_buckets(text, name) for text in metrics)
    return [(bound, count - before.get(bound, 0.0)) for bound, count in sorted(after.items())]


def _buckets(text: str, name: str) -> dict[float, float]:
    found = re.findall(rf'^{name}_bucket{{(?:[^}}]*,)?le="([^"]+)"}} (\S+)', text, re.MULTILINE)
    return {float(bound.replace("+Inf", "inf")): float(count) for bound, count in found}


def counted(metrics: tuple[str, str], line: str) -> int | None:
    """Returns the increase of a counter between two scrapes."""
    values = [re.search(rf"^{re.escape(line)} (\S+)", text, re.MULTILINE) for text in metrics]
    if values[1] is None:
        return 0 if metrics[1] else None
    return round(float(values[1].group(1)) - (float(values[0].group(1)) if values[0] else 0.0))
