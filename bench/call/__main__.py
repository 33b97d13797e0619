"""Measures real calls over SIP and RTP against a running server, from outside: `python -m bench call`.

Three processes: the unmodified server, with engines that take no time (`bench.call.server`); the load
(`bench.call.generator`); and this one, which starts both and reads the system's counters. A bare asyncio
agent gets the same load, on asyncio's own loop (`bench.call.bare`) and on uvloop (`bench.call.bare_uvloop`),
in turns with the server at every number of calls: on a noisy machine trust the ratios."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click

from bench import report
from bench.call import in_turns, local, memory
from bench.call import report as call_report
from bench.call.caller import Mode
from bench.call.phases import Phases, Plan
from bench.call.processes import before_others, floors, serving

SHORT = Plan(
    seconds=12.0,
    single_seconds=25.0,
    rates=(25, 50, 75),
    rate_seconds=4.0,
    sweep=(30, 100),
    sweep_seconds=8.0,
)


def measure(plan: Plan, *, sweep: bool = True) -> dict[str, Any]:
    """Returns all figures, as in results/call.json."""
    figures: dict[str, Any] = {"load_average_before": os.getloadavg()}
    phases = Phases(plan)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        served = partial(serving, directory, kernels=directory / "kernels")
        with served() as server:  # there are no kernels yet
            figures["start_cold_s"] = round(server.started_s, 2)
        with served() as server, floors(directory) as floor:
            figures["start_warm_s"] = round(server.started_s, 2)
            _say("one call")
            figures["one"] = phases.talk(server, 1, plan.single_seconds, beside=floor)
            _say(f"{plan.calls} calls")
            figures["many"] = phases.talk(server, plan.calls, plan.seconds, beside=floor)
            _say(f"{plan.calls} calls, both sides talking all the time")
            figures["many_always"] = phases.talk(
                server, plan.calls, plan.seconds / 2, mode=Mode.ALWAYS, beside=floor
            )
            _say(f"{plan.calls} calls on lines with DTX, echo, loss and jitter")
            figures["many_impaired"] = phases.talk(
                server, plan.calls, plan.seconds, mode=Mode.IMPAIRED, beside=floor
            )
            _say("set-up and tear-down")
            figures["set_up"] = phases.set_up(server)
        if sweep:
            with served() as server, floors(directory) as floor:
                _say("more and more calls")
                figures["sweep"] = phases.sweep(server, floor)
    figures["load_average_after"] = os.getloadavg()
    return figures


@click.command()
@click.option(
    "--calls",
    default=30,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="Concurrent calls of the main phases.",
)
@click.option("--seconds", type=click.FloatRange(2), help="Seconds of the main phases.  [default: 30]")
@click.option(
    "--sweep/--no-sweep",
    default=True,
    show_default=True,
    help="Measure more and more concurrent calls until pacing fails.",
)
@click.option("--short", is_flag=True, help="Run fewer and shorter phases, about seven minutes.")
@click.option("--realtime", is_flag=True, help="Run server, load and floors under SCHED_RR (needs root).")
@click.option(
    "--engines",
    type=click.Choice(["none", "local"]),
    default="none",
    show_default=True,
    help="Stub engines without delay, or Whisper and Piper of the extra `local`.",
)
@click.option("--srtp", is_flag=True, help="Compare the CPU of calls with SRTP and without, in turns.")
@click.option(
    "--memory", "of_memory", is_flag=True, help="Measure the memory of live calls, and of many short ones."
)
def main(
    calls: int,
    seconds: float | None,
    *,
    sweep: bool,
    short: bool,
    realtime: bool,
    engines: str,
    srtp: bool,
    of_memory: bool,
) -> None:
    """Measures latency, pacing and cost of calls over SIP and RTP. With `--engines local`, recorded people
    call, more and more of them until a limit is exceeded."""
    if engines == "local":
        local.run(short=short, realtime=realtime, threads=len(os.sched_getaffinity(0)))
        return
    if of_memory:
        with before_others(wanted=realtime):
            memory.run(short=short)
        return
    base = SHORT if short else Plan()
    plan = Plan(
        calls=calls,
        seconds=seconds or base.seconds,
        single_seconds=seconds or base.single_seconds,
        rates=base.rates,
        rate_seconds=base.rate_seconds,
        sweep=base.sweep,
        sweep_seconds=base.sweep_seconds,
    )
    if srtp:
        with before_others(wanted=realtime):
            in_turns.run(plan)
        return
    with before_others(wanted=realtime):
        figures = measure(plan, sweep=sweep)
    call_report.show(figures)
    options = {"short": short, "realtime": realtime}
    saved = [report.save("call", options | figures), *call_report.draw(figures)]
    click.echo(", ".join(str(path.relative_to(report.RESULTS.parent)) for path in saved))


def _say(text: str) -> None:
    click.echo(f"measuring: {text}", err=True)
