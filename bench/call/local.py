"""Measures how many calls of real speech a machine carries with weights by pip: `python -m bench call
--engines local`.

The unmodified server, Whisper tiny.en in one process for all agents and a Piper voice in another. Callers
over SIP and RTP play recordings of a person, the agent repeats what it understood. Steps of more and more
calls, in turns with the bare asyncio agent under the same callers, until a limit is exceeded: the wait for a
decoder, the latency of the voice or of the event loop, or a missed answer."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from bench import report
from bench.call.caller import Mode
from bench.call.figures import (
    BROKEN_MS,
    Window,
    above,
    counted,
    histogram_ms,
    loop_lag_ms,
    pacing,
    surroundings,
)
from bench.call.generator import Job
from bench.call.phases import measured
from bench.call.processes import (
    ServerUnderTest,
    Target,
    agent_table,
    bare,
    before_others,
    nicer_to_us,
    serving,
    usage_by_module,
)
from bench.support.processes import Usage
from mediaserver.benchmark.figures import Figures, percentiles
from pipeline.engines.local_weights import WHISPER, whole_files

STEPS: Final = (2, 6, 10, 14, 18, 24, 30)
STEP_S: Final = 20.0
BARE_S: Final = 5.0

WAIT_S: Final = 0.4
"""Seconds; an utterance that waits longer for a decoder breaks the step."""

VOICE_MS: Final = 500.0
"""Milliseconds; the voice is late when a twentieth of its first sounds take longer."""

NUMBER: Final = "+14155550103"
OTHER_NUMBER: Final = "+14155550104"
_WAITS: Final = "mediaserver_decoder_wait_seconds"
_FAILURES: Final = 'mediaserver_engine_failures_total{{engine="{}",kind="{}"}}'

_STT: Final = """engine = "faster-whisper"
model = "{model}"
encoder_window_s = 12
compute_type = "int8"
threads = {threads}"""


def agents(threads: int) -> str:
    """Returns the settings of two agents with the same engines, of which one is called: they share the
    processes."""
    model = whole_files(WHISPER)["model.bin"].parent
    ids = {
        NUMBER: "5d0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f33",
        OTHER_NUMBER: "6e0f7e7e-4f5a-4b8e-9f43-5f0f2c3f9f44",
    }
    stt, tts = _STT.format(model=model, threads=threads), 'engine = "piper"'
    return "".join(
        agent_table(each, number, script="repeats = true", stt=stt, tts=tts) for number, each in ids.items()
    )


@dataclass(slots=True)
class Shares:
    """CPU time and memory of each of the server's programs at two times."""

    pid: int
    before: Mapping[str, Usage]
    after: Mapping[str, Usage]

    def figures(self, calls: int, seconds: float) -> Figures:
        """Returns CPU milliseconds per second of a call, and resident MiB, by program."""
        none = Usage(0.0, 0)
        return {
            name: {
                "cpu_ms_per_call_second": round(
                    (use.cpu_ms - self.before.get(name, none).cpu_ms) / seconds / calls, 2
                ),
                "rss_mib": use.rss >> 20,
            }
            for name, use in self.after.items()
        }


@contextmanager
def looked_at(shares: Shares) -> Iterator[None]:
    """Fills `shares` at the beginning and the end of the block."""
    shares.before = usage_by_module(shares.pid)
    yield
    shares.after = usage_by_module(shares.pid)


class Load:
    """Calls of people against one target; each phase has numbers of its own."""

    def __init__(self) -> None:
        self._number = 14_155_560_000

    def step(self, server: ServerUnderTest, floor: Target, calls: int, seconds: float) -> Figures:
        """Runs `calls` at once; `bare` of the figures are those of the bare agent just before."""
        bare_result, bare_window = measured(floor, self._job(floor, calls, min(seconds, BARE_S)))
        shares = Shares(server.process.pid, {}, {})
        result, window = measured(server, self._job(server, calls, seconds), beside=looked_at(shares))
        told = list(server.reports(calls))
        return {
            **step_figures(result, window, told),
            "programs": shares.figures(calls, window.seconds),
            "bare": {
                "cpu_ms_per_call_second": _cpu(bare_window, calls),
                **pacing(bare_result["calls"]),
            },
        }

    def _job(self, target: Target, calls: int, seconds: float) -> Job:
        self._number += 10_000
        return Job(
            server=target.address,
            called=NUMBER,
            first_number=self._number,
            calls=calls,
            seconds=seconds,
            mode=Mode.PEOPLE.value,
        )


def step_figures(result: Mapping[str, Any], window: Window, told: Sequence[Mapping[str, Any]]) -> Figures:
    """Returns the figures of calls at once; `told` are the server's own reports on these."""
    calls = result["calls"]
    latencies = [turn["latency"] for call in told for turn in call["turns"] if turn["latency"] is not None]
    waited, decodes = above(window.metrics, _WAITS, WAIT_S)
    heard = [line for call in told for line in call["transcript"] if line["role"] == "caller"]
    return {
        "calls": len(calls),
        "up_at_end": result["up"],
        "seconds": round(window.seconds, 2),
        "cpu_ms_per_call_second": _cpu(window, len(calls)),
        "voice_to_voice_ms": percentiles(
            ((first - voiced) / 1e6 for call in calls for voiced, first, _ in call["turns"]), 50, 95, 100
        ),
        "missed_turns": sum(call["missed"] for call in calls),
        "results_decoded": decodes,
        "waited_too_long": waited,
        "decoder_wait_ms": {
            f"p{rank:g}": histogram_ms(window.metrics, _WAITS, rank / 100) for rank in (50, 95, 100)
        },
        "stt_ms": percentiles((each["sttMs"] for each in latencies), 50, 95),
        "voice_ms": percentiles((each["ttsMs"] for each in latencies), 50, 95),
        "endpoint_ms": percentiles((each["endpointMs"] for each in latencies), 50, 95),
        "turns_understood": sum(bool(line["text"]) for line in heard),
        "calls_with_faults": _faults(told),
        "engine_failures": {
            name: counted(window.metrics, _FAILURES.format(name, kind)) or 0
            for name, kind in (("faster-whisper", "stt"), ("piper", "tts"))
        },
        "loop_lag_p99_ms": loop_lag_ms(window.metrics, 0.99),
        **pacing(calls),
        **surroundings(calls, window),
    }


def broken(step: Figures) -> dict[str, float]:
    """Returns the limits that the step exceeded, each with its factor; {} where all held."""
    found = {
        "decoder wait": (step["decoder_wait_ms"]["p100"] or 0.0) / (WAIT_S * 1000)
        if step["waited_too_long"]
        else 0.0,
        "voice": (step["voice_ms"]["p95"] or 0.0) / VOICE_MS,
        "loop": (step["gap_from_20_ms_p99"] or 0.0) / BROKEN_MS,
        "silence": 2.0 if step["missed_turns"] or step["up_at_end"] < step["calls"] else 0.0,
    }
    return {name: round(times, 2) for name, times in found.items() if times > 1.0}


def measure(steps: Sequence[int], seconds: float, *, threads: int) -> Figures:
    """Returns all figures, as in results/call_local.json. The steps end with the second one that exceeded a
    limit."""
    load_before, began = os.getloadavg(), time.monotonic()
    found: list[Figures] = []
    load = Load()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        with serving(directory, agents(threads)) as server, bare(directory) as floor:
            start_s = round(server.started_s, 1)
            load.step(server, floor, 1, 4.0)  # first-time work of the processes
            for calls in steps:
                click.echo(f"measuring: {calls} calls", err=True)
                step = load.step(server, floor, calls, seconds)
                found.append(step | {"broken": broken(step)})
                if sum(bool(each["broken"]) for each in found) == 2:
                    break
    return {
        "load_average": (load_before, os.getloadavg()),
        "took_s": round(time.monotonic() - began),
        "threads": threads,
        "start_s": start_s,
        "carried": carried(found),
        "gives_first": next((list(each["broken"]) for each in found if each["broken"]), []),
        "steps": found,
    }


def carried(steps: Sequence[Figures]) -> int:
    """Returns the most calls at which all limits held, at every smaller step too."""
    most = 0
    for step in steps:
        if step["broken"]:
            break
        most = step["calls"]
    return most


COLUMNS: Final = (
    "calls", "turns", "v2v p50", "p95", "max", "missed", "wait p95", "> 400", "voice p95", "gap", "CPU",
    "bare", "whisper", "piper", "others", "broken",
)  # fmt: skip


def rows(figures: Figures) -> list[tuple[str, ...]]:
    """Returns a row per step."""
    return [
        (
            str(step["calls"]),
            str(step["voice_to_voice_ms"]["count"]),
            *(_ms(step["voice_to_voice_ms"][rank]) for rank in ("p50", "p95", "p100")),
            str(step["missed_turns"]),
            _ms(step["decoder_wait_ms"]["p95"]),
            f"{step['waited_too_long']} of {step['results_decoded']}",
            _ms(step["voice_ms"]["p95"]),
            _ms(step["gap_from_20_ms_p99"]),
            f"{step['cpu_ms_per_call_second']:.1f}",
            f"{step['bare']['cpu_ms_per_call_second']:.1f}",
            *(_program(step, name) for name in ("whisper.process", "onnx.process")),
            f"{step['others_share_of_machine']:.0%}",
            ", ".join(f"{name} × {times:g}" for name, times in step["broken"].items()),
        )
        for step in figures["steps"]
    ]


def run(*, short: bool, realtime: bool, threads: int) -> None:
    """Measures, prints and saves the figures."""
    steps, seconds = (STEPS[:3], STEP_S / 2) if short else (STEPS, STEP_S)
    with nicer_to_us(wanted=realtime), before_others(wanted=realtime):
        figures = measure(steps, seconds, threads=threads)
    report.show("Calls of people, Whisper tiny.en and Piper", COLUMNS, rows(figures))
    click.echo(
        f"carried: {figures['carried']}; gives first: {', '.join(figures['gives_first']) or 'nothing'}"
    )
    report.save("call_local", {"short": short, "realtime": realtime} | figures)


def _faults(told: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Returns in how many calls each fault was noted."""
    found: dict[str, int] = {}
    for call in told:
        for fault in {str(each["message"]) for each in (call["analysis"] or {}).get("faults", ())}:
            found[fault] = found.get(fault, 0) + 1
    return found


def _program(step: Figures, name: str) -> str:
    use = step["programs"].get(name)
    return "" if use is None else f"{use['cpu_ms_per_call_second']:.1f}"


def _cpu(window: Window, calls: int) -> float:
    return round(window.server_cpu_ms / window.seconds / calls, 2)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
