"""Compares this server with other voice agent frameworks, in the same run and with the same stub models:
`python -m bench.peers`, or `python -m bench peers`.

At every number of sessions all contenders take turns. This server takes calls over SIP and RTP, and, as does
stock aiortc, participants over WebRTC (`bench.rooms`); Pipecat and LiveKit Agents have a websocket
(`bench.peers.pipecat_server`, `bench.peers.livekit_server`). A contender that is not installed is left
out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from bench import report
from bench.call.caller import Mode
from bench.call.figures import talk_figures
from bench.call.generator import Job
from bench.call.phases import measured
from bench.call.processes import ENDPOINT_MS, SCRIPT_NUMBER, Target, serving
from bench.rooms.__main__ import delays_ms
from bench.rooms.__main__ import measure as room
from bench.support.processes import usage_of
from mediaserver.benchmark.figures import percentiles

SESSIONS: Final = (1, 5, 10)
SECONDS: Final = 10.0
READY_S: Final = 8.0
"""Seconds for a peer to import its modules and load its detectors, and as much again for each 20 sessions."""

FIRST_PORT: Final = 19_600

OURS: Final = "this server, SIP"
OURS_WEB: Final = "this server, WebRTC"
PIPECAT: Final = "Pipecat, websocket"
LIVEKIT: Final = "LiveKit Agents, websocket"
AIORTC: Final = "stock aiortc, WebRTC"

MODULES: Final[Mapping[str, tuple[str, str, str]]] = {
    PIPECAT: ("pipecat", "bench.peers.pipecat_server", "pipecat"),
    LIVEKIT: ("livekit.agents", "bench.peers.livekit_server", "pcm"),
}
"""By contender: the module that must be installed, the server, the protocol of its callers."""

Figures = dict[str, Any]
Measure = Callable[[int, float], Figures]


def figures(sessions: int, cpu_s: float, wall_s: float, over_ms: Sequence[float], missed: int) -> Figures:
    """Returns the figures of one contender at one number of sessions. `over_ms`: response times less the
    silence that ends a turn."""
    return {
        "sessions": sessions,
        "cpu_ms_per_session_second": round(cpu_s / wall_s / sessions * 1000, 2),
        "over_ms": percentiles(over_ms, 50, 95),
        "missed": missed,
    }


def by_sip(sessions: int, seconds: float) -> Figures:
    """Measures this server over SIP and RTP, with recorded people as callers."""
    with tempfile.TemporaryDirectory() as scratch, serving(Path(scratch)) as server:
        job = Job(
            server=server.address,
            called=SCRIPT_NUMBER,
            first_number=14_155_570_000,
            calls=sessions,
            seconds=seconds,
            mode=Mode.PEOPLE.value,
        )
        result, window = measured(server, job)
    if result["up"] < sessions:
        raise click.ClickException(f"{sessions - result['up']} of {sessions} calls were refused or broke off")
    told = talk_figures(result, window, ())
    over_ms = [
        (first - voiced) / 1e6 - ENDPOINT_MS for call in result["calls"] for voiced, first, _ in call["turns"]
    ]
    return figures(sessions, window.server_cpu_ms / 1000, window.seconds, over_ms, told["missed_turns"])


def in_room(kind: str) -> Measure:
    """Returns what measures WebRTC participants on "ours" or on "stock" aiortc. A beep is answered at once,
    so the response has no silence that ends a turn."""

    def run(sessions: int, seconds: float) -> Figures:
        told = room(kind, "answer", sessions, seconds=seconds, decode=True)
        over_ms = delays_ms(told["sent"], told["answered"])
        beeps = sum(len(each) for each in told["sent"].values())
        return figures(sessions, told["cpu_s"], told["wall_s"], over_ms, beeps - len(over_ms))

    return run


def by_websocket(python: str, name: str) -> Measure:
    """Returns what measures the peer `name`, which runs with the interpreter `python`."""
    _, module, protocol = MODULES[name]

    def run(sessions: int, seconds: float) -> Figures:
        with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
            command = [python, "-m", module, str(FIRST_PORT), str(sessions)]
            server = Target(command, ("127.0.0.1", FIRST_PORT), Path(scratch) / "log", PYTHONPATH=os.getcwd())
            stack.callback(server.close)
            time.sleep(READY_S * (1 + sessions / 20))
            return _called(python, protocol, server, sessions, seconds)

    return run


def _called(python: str, protocol: str, server: Target, sessions: int, seconds: float) -> Figures:
    arguments = [protocol, str(FIRST_PORT), str(sessions), str(seconds)]
    callers = subprocess.Popen(
        [python, "-m", "bench.peers.client", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    )
    with callers:
        assert callers.stdout is not None
        marks = []
        for word in ("begin", "end"):
            line = callers.stdout.readline().strip()
            if line != word:
                raise click.ClickException(f"the callers said {line!r}: {server.log.read_text()[-500:]}")
            marks.append((time.monotonic(), usage_of(server.process.pid).cpu_ms))
        told = json.loads(callers.stdout.readline())
    (began, before_ms), (ended, after_ms) = marks
    over_ms = [ms - ENDPOINT_MS for ms in told["responses_ms"]]
    return figures(
        sessions, (after_ms - before_ms) / 1000, ended - began, over_ms, told["missed"] + told["failed"]
    )


def contenders(python: str) -> dict[str, Measure]:
    """Returns what measures each contender that is installed."""
    found: dict[str, Measure] = {OURS: by_sip}
    for name, (needed, _, _) in MODULES.items():
        if subprocess.run([python, "-c", f"import {needed}"], capture_output=True, check=False).returncode:
            click.echo(f"left out, not installed: {name}", err=True)
        else:
            found[name] = by_websocket(python, name)
    return found | {OURS_WEB: in_room("ours"), AIORTC: in_room("stock")}


def measure(python: str, counts: Sequence[int], seconds: float) -> list[Figures]:
    """Returns the figures of all contenders at each number of sessions, in turns."""
    found = []
    makes = contenders(python)
    for sessions in counts:
        for name, run in makes.items():
            click.echo(f"measuring: {name}, {sessions}", err=True)
            try:
                found.append({"contender": name} | run(sessions, seconds))
            except click.ClickException as failure:
                click.echo(f"no figures: {failure.message}", err=True)
    return found


def show(found: Sequence[Figures]) -> None:
    """Prints the table."""
    rows = [
        [
            each["contender"],
            each["sessions"],
            each["cpu_ms_per_session_second"],
            *(each["over_ms"][rank] for rank in ("p50", "p95", "count")),
            each["missed"],
        ]
        for each in found
    ]
    columns = ["", "sessions", "CPU ms/session-s", "over 500 ms, p50", "p95", "answers", "missed"]
    report.show("Frameworks with the same stub models", columns, rows)


def draw(found: Sequence[Figures]) -> list[Path]:
    """Draws results/peers_cpu.png and results/peers_p95.png."""
    names = list(dict.fromkeys(each["contender"] for each in found))
    counts = sorted({each["sessions"] for each in found})
    cpu: dict[str, list[float]] = {name: [float("nan")] * len(counts) for name in names}
    p95: dict[str, list[float]] = {name: [float("nan")] * len(counts) for name in names}
    for each in found:
        place = counts.index(each["sessions"])
        cpu[each["contender"]][place] = each["cpu_ms_per_session_second"]
        p95[each["contender"]][place] = each["over_ms"]["p95"] or float("nan")
    return [
        report.lines("peers_cpu", "CPU of a session", counts, cpu, labels=("sessions", "ms/s")),
        report.lines("peers_p95", "Response over the silence, p95", counts, p95, labels=("sessions", "ms")),
    ]


@click.command()
@click.option("--short", is_flag=True, help="Measure 1 and 5 sessions for a few seconds, and save nothing.")
@click.option(
    "--python", default=sys.executable, help="Interpreter with the extra `peers`.  [default: this one]"
)
def main(*, short: bool, python: str) -> None:
    """Compares CPU and response of this server, Pipecat, LiveKit Agents and stock aiortc."""
    before = os.getloadavg()
    found = measure(python, (1, 5) if short else SESSIONS, 8.0 if short else SECONDS)
    show(found)
    if short:
        return
    report.save("peers", {"load_average": (before, os.getloadavg()), "steps": found})
    draw(found)


if __name__ == "__main__":
    main()
