"""Measures cost and latency of participants, this server beside stock aiortc: `python -m bench rooms`.

Server and participants are two processes; both servers run the same application (`bench.rooms.server`). Times
are from a packet sent by the participant to its sound in the pipeline, or to the first packet of the answer.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any, Final

import click

from bench import report
from bench.rooms import join

TARGETS: Final = {
    "mic_ms": 12.0,
    "mic_loss_ms": 20.0,
    "voice_p50_ms": 20.0,
    "voice_p95_ms": 40.0,
    "speaking_ms": 14.0,
    "silent_ms": 7.0,
    "stall_gap_p99_ms": 30.0,
    "stall_gap_p999_ms": 30.0,
    "capacity": 60,
}
"""Target of each figure (ms of latency, ms of CPU per participant-second, ms between packets while Python
stands still for 200 ms of each second, participants)."""

KINDS: Final = ("ours", "stock")
FULL_RATE: Final = 49.0
"""Packets per second; below it pacing has failed."""

COUNTS: Final = {"ours": [60, 75, 90, 120, 150], "stock": [20, 30, 40]}
"""Numbers of participants tried on one core; a short run tries the first."""

LATE_MS: Final = 20.0

TRIES: Final = 3

JOIN_MS: Final = 100.0
"""Milliseconds from the request for a token to the agent's first sound in the Python SDK, at the median."""


def measure(
    kind: str,
    mode: str,
    participants: int,
    *,
    seconds: float,
    loss: float = 0.0,
    decode: bool = False,
    core: int = -1,
) -> dict[str, Any]:
    """Runs one server and one load; returns the figures of both."""
    command = [sys.executable, "-m", "bench.rooms.server", kind, mode, "--core", str(core)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            load = [
                sys.executable,
                "-m",
                "bench.rooms.client",
                url,
                str(participants),
                str(seconds),
                str(loss),
            ]
            done = subprocess.run(
                [*load, *(["--decode"] if decode else [])], check=True, stdout=subprocess.PIPE, text=True
            )
        finally:
            server.kill()
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def delays_ms(sent: dict[str, list[float]], seen: dict[str, list[float]]) -> list[float]:
    """Returns the delay from each beep to its first sound within the beep's second, in milliseconds."""
    found = []
    for number, moments in sent.items():
        for moment in moments:
            after = [each - moment for each in seen.get(number, []) if 0 <= each - moment < 0.9]
            found += [min(after) * 1000] if after else []
    return found


def cpu_ms(figures: dict[str, Any], participants: int) -> float:
    """Returns the server's CPU milliseconds per participant and second."""
    return float(figures["cpu_s"] / figures["wall_s"] / participants * 1000)


def latencies(kind: str, participants: int, seconds: float) -> dict[str, float]:
    """Measures microphone to pipeline, without and with loss, and voice to voice."""
    clean = measure(kind, "silent", 1, seconds=seconds)
    lossy = measure(kind, "silent", 1, seconds=seconds, loss=0.02)
    talk = measure(kind, "answer", participants, seconds=seconds, decode=True)
    voice = sorted(delays_ms(talk["sent"], talk["answered"]))
    return {
        "mic_ms": statistics.median(delays_ms(clean["sent"], clean["heard"])),
        "mic_loss_ms": statistics.median(delays_ms(lossy["sent"], lossy["heard"])),
        "voice_p50_ms": statistics.median(voice),
        "voice_p95_ms": voice[len(voice) * 95 // 100],
    }


def costs(kind: str, participants: int, seconds: float) -> dict[str, float]:
    """Measures the CPU while the agent speaks all the time, and while it is silent."""
    speaking = measure(kind, "speak", participants, seconds=seconds)
    silent = measure(kind, "silent", participants, seconds=seconds)
    return {"speaking_ms": cpu_ms(speaking, participants), "silent_ms": cpu_ms(silent, participants)}


def stalls(kind: str, participants: int, seconds: float) -> dict[str, float]:
    """Measures the gaps between packets of a server whose Python stands still for a fifth of each second."""
    still = measure(kind, "stall", participants, seconds=seconds)
    return {"stall_gap_p99_ms": still["gap_p99_ms"], "stall_gap_p999_ms": still["gap_p999_ms"]}


def capacity(kind: str, counts: list[int], seconds: float) -> dict[str, float]:
    """Returns the most participants, of those tried, that one core serves with every packet in time (0: the
    fewest are too many), and the share of that core in use."""
    reached = {"capacity": 0.0, "core_share": 0.0}
    for participants in counts:
        share = _kept_up(kind, participants, seconds)
        if share is None:
            break
        reached = {"capacity": float(participants), "core_share": share}
    return reached


def _kept_up(kind: str, participants: int, seconds: float) -> float | None:
    """Returns the share of one core in use; None: packets were late in each try. Other programs may take the
    core away for longer than a jitter buffer lasts; a server that is itself the limit fails every time."""
    core = min(os.sched_getaffinity(0))
    for _ in range(TRIES):
        figures = measure(kind, "speak", participants, seconds=seconds, core=core)
        slowest, share = min(figures["packets_per_s"]), float(figures["cpu_s"] / figures["wall_s"])
        click.echo(
            f"  {kind} {participants} on one core: {slowest:.1f} packets/s, "
            f"p99 lag {figures['lag_p99_ms']:.1f} ms, {share:.0%} of the core"
        )
        if slowest >= FULL_RATE and figures["lag_p99_ms"] <= LATE_MS:
            return share
    return None


@click.command()
@click.option("--short", is_flag=True, help="Measure a few seconds each, and capacity up to its target only.")
@click.option("--participants", default=20, show_default=True)
def main(short: bool, participants: int) -> None:
    """Measures latency, CPU and capacity of WebRTC participants in rooms."""
    seconds = 6.0 if short else 30.0
    figures: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        figures[kind] = latencies(kind, participants, seconds) | costs(kind, participants, seconds)
        figures[kind] |= stalls(kind, participants, seconds)
        figures[kind] |= capacity(kind, COUNTS[kind][: 1 if short else None], min(seconds, 10.0))
    rows = [(name, *(figures[kind][name] for kind in KINDS), target) for name, target in TARGETS.items()]
    report.show(f"rooms: {participants} participants", ["figure", *KINDS, "target"], rows)
    measured = join.measure()
    joins = {step: statistics.median(each[step] for each in measured) for step in measured[0]}
    steps = [(step, took, JOIN_MS if step == "sound" else "") for step, took in joins.items()]
    report.show("rooms: a join with the Python SDK, ms", ["until", "p50", "target"], steps)
    saved = {"participants": participants, "seconds": seconds, "targets": TARGETS, "join_ms": joins}
    report.save("rooms", saved | figures)


if __name__ == "__main__":
    main()
