"""Measures how many calls one core carries, and what callers hear while Python stands still: `python -m bench
capacity`.

The server of `bench call` as it is shipped (recording, voice detection, echo gate, keys in the audio,
evidence), on one core; on another one the far end of all calls, whose media is native code of its own
(`bench.capacity.far_end`). Each side speaks half of the time. Calls are set up over SIP at a steady rate."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import click

from bench import report
from bench.call.figures import Window, counted, loop_lag_ms
from bench.call.phases import measured
from bench.call.processes import SERVER, ServerUnderTest, agent_table, serving, session_table
from bench.capacity import report as tables
from bench.capacity.flame_graph import drawn
from bench.capacity.load import RATE_PER_S, Crowd
from bench.capacity.stalling import STALL_MS, stalls
from bench.capacity.threads import policy_of, shares
from mediaserver.benchmark.figures import Figures

COUNTS: Final = (50, 100, 200, 300, 400)
NUMBER: Final = "+14155550103"
STALLING: Final = (sys.executable, "-m", "bench.capacity.stalling")
ORDINARY: Final = ("setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice")
"""Runs a command that may not raise its priority, root's too."""

_ENDPOINT_MS: Final = 200
_AGENT: Final = agent_table(
    "5d0e0b0c-0e1e-4c57-9f6e-0a7c0f7d1e33", NUMBER, session=session_table(_ENDPOINT_MS)
)
_LOST: Final = 'mediaserver_rtp_packets_total{kind="lost"}'
_LATE: Final = 'mediaserver_rtp_packets_total{kind="late"}'


class Bench:
    """Measures steps against servers on `server_core`, with the load on `load_core`."""

    def __init__(self, server_core: int, load_core: int, *, seconds: float, rate_per_s: float) -> None:
        self._server_core, self._load_core = server_core, load_core
        self._seconds, self._rate_per_s = seconds, rate_per_s
        self._number = 14_155_600_000

    @contextmanager
    def server(self, launch: Sequence[str] = SERVER) -> Iterator[ServerUnderTest]:
        """Runs a server, started by `launch`, for the length of the block."""
        pinned = (*_on(self._server_core), *launch)
        with (
            tempfile.TemporaryDirectory() as scratch,
            serving(Path(scratch), _AGENT, launch=pinned) as server,
        ):
            yield server

    def step(
        self, server: ServerUnderTest, calls: int, *, beside: AbstractContextManager[None] | None = None
    ) -> Figures:
        """Returns the figures of so many calls at once; `beside` is entered for the measured time."""
        self._number += 10_000
        job = Crowd(
            server=server.address,
            called=NUMBER,
            first_number=self._number,
            calls=calls,
            seconds=self._seconds,
            rate_per_s=self._rate_per_s,
        )
        load = (*_on(self._load_core), sys.executable, "-m", "bench.capacity.load")
        cpu: dict[str, float] = {}
        with_shares = _both(shares(server.process.pid, cpu), beside or nullcontext())
        result, window = measured(server, job, generator=load, beside=with_shares)
        return {
            "calls": calls,
            **result,
            "plane": policy_of(server.process.pid),
            "shares_of_core": cpu,
            **surroundings(window, calls),
        }


def surroundings(window: Window, calls: int) -> Figures:
    """Returns what the system counted of a step."""
    ms, cores = window.seconds * 1000, os.cpu_count() or 1
    others_ms = window.machine_cpu_ms - window.server_cpu_ms - window.generator_cpu_ms
    return {
        "seconds": round(window.seconds, 2),
        "cpu_ms_per_call_second": round(window.server_cpu_ms / window.seconds / calls, 3),
        "server_lost": counted(window.metrics, _LOST),
        "server_late": counted(window.metrics, _LATE),
        "loop_lag_p99_ms": loop_lag_ms(window.metrics, 0.99),
        "rss_per_call_kib": round((window.rss - window.rss_before) / calls / 1024),
        "load_share_of_core": round(window.generator_cpu_ms / ms, 4),
        "others_share_of_machine": round(max(0.0, others_ms) / ms / cores, 3),
    }


def search(bench: Bench, counts: Sequence[int]) -> list[Figures]:
    """Measures more and more calls on one server, until a number of calls does not hold."""
    steps: list[Figures] = []
    with bench.server() as server:
        for calls in counts:
            _say(f"{calls} calls")
            steps.append(bench.step(server, calls))
            if not tables.holds(steps[-1]):
                break
    return steps


def stalled(bench: Bench, calls: int, rounds: int) -> list[Figures]:
    """Measures calls while Python stands still, in turns with the plane's thread before others, and as one
    of them."""
    steps: list[Figures] = []
    for _ in range(rounds):
        for launch in (STALLING, (*ORDINARY, *STALLING)):
            with bench.server(launch) as server:
                _say(f"{calls} calls, Python stands still for {STALL_MS} ms of each second")
                steps.append(bench.step(server, calls, beside=stalls(server.process.pid)))
    return steps


@click.command()
@click.option(
    "--calls",
    default=",".join(map(str, COUNTS)),
    show_default=True,
    callback=lambda _, __, text: [int(each) for each in text.split(",")],
    help="Numbers of calls, rising.",
)
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(2), help="Seconds of each.")
@click.option("--rate", default=RATE_PER_S, show_default=True, help="Calls set up a second.")
@click.option(
    "--cores",
    default=(0, 1),
    show_default=True,
    nargs=2,
    type=click.IntRange(0),
    help="Core of the server, and of the load.",
)
@click.option(
    "--stalls", "stalling", is_flag=True, help=f"Let Python stand still for {STALL_MS} ms a second."
)
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1), help="Turns of --stalls.")
@click.option(
    "--flame-graph", type=click.Path(path_type=Path), help="Draw one of the server with py-spy; no figures."
)
def main(
    calls: list[int],
    *,
    seconds: float,
    rate: float,
    cores: tuple[int, int],
    stalling: bool,
    rounds: int,
    flame_graph: Path | None,
) -> None:
    """How many calls one core carries, by the gaps and losses at their far end."""
    bench = Bench(*cores, seconds=seconds, rate_per_s=rate)
    if flame_graph is not None:
        with bench.server() as server:
            title = f"mediaserver, {calls[0]} calls on one core"
            picture = drawn(server.process.pid, flame_graph, title=title, seconds=seconds)
            bench.step(server, calls[0], beside=picture)
        return
    conditions: Figures = {"load_average_before": os.getloadavg()}
    name = "capacity_stalls" if stalling else "capacity"
    steps = stalled(bench, calls[0], rounds) if stalling else search(bench, calls)
    figures = conditions | {"load_average_after": os.getloadavg(), "rate_per_s": rate, "steps": steps}
    held = max((step["calls"] for step in steps if tables.holds(step)), default=0)
    tables.show(name, figures)
    saved = [report.save(name, figures), *tables.draw(name, figures)]
    if not stalling:
        click.echo(f"{held} calls hold")
    click.echo(", ".join(str(path.relative_to(report.RESULTS.parent)) for path in saved))


@contextmanager
def _both(first: AbstractContextManager[None], second: AbstractContextManager[None]) -> Iterator[None]:
    with first, second:
        yield


def _on(core: int) -> tuple[str, ...]:
    return "taskset", "--cpu-list", str(core)


def _say(text: str) -> None:
    click.echo(f"measuring: {text}", err=True)


if __name__ == "__main__":
    main()
