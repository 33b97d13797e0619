"""Calls with SRTP beside calls without, in turns, against one server: `python -m bench call --srtp`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import report
from bench.call.caller import Mode
from bench.call.phases import Phases, Plan
from bench.call.processes import serving

TURNS: Final = 5
TARGET: Final = 1.15
"""Of a call's CPU without SRTP."""

_CPU: Final = "cpu_ms_per_call_second"


def measure(plan: Plan) -> dict[str, Any]:
    """Returns the CPU of a call-second in each turn, plain and protected, and the ratio of their medians."""
    phases = Phases(plan)
    found: dict[Mode, list[float]] = {Mode.SCRIPT: [], Mode.PROTECTED: []}
    lost = []
    figures: dict[str, Any] = {"load_average_before": os.getloadavg(), "calls": plan.calls}
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        with serving(directory) as server:
            phases.talk(server, plan.calls, plan.seconds / 2)
            for turn in range(TURNS):
                for mode in (Mode.SCRIPT, Mode.PROTECTED)[:: 1 if turn % 2 else -1]:
                    step = phases.talk(server, plan.calls, plan.seconds, mode=mode)
                    found[mode].append(step[_CPU])
                    lost.append(step["generator_lost"])
    plain, protected = found[Mode.SCRIPT], found[Mode.PROTECTED]
    return figures | {
        "plain_cpu_ms": plain,
        "srtp_cpu_ms": protected,
        "ratio": round(median(protected) / median(plain), 3),
        "lost_by_callers": lost,
        "load_average_after": os.getloadavg(),
    }


def run(plan: Plan) -> None:
    """Measures, prints the table and keeps the figures."""
    figures = measure(plan)
    verdict = "met" if figures["ratio"] <= TARGET else "missed"
    rows = [
        ("CPU ms per call-second, plain", f"{median(figures['plain_cpu_ms']):.2f}", ""),
        ("CPU ms per call-second, SRTP", f"{median(figures['srtp_cpu_ms']):.2f}", ""),
        ("ratio", f"{figures['ratio']:.3f}", verdict),
    ]
    report.show(f"{figures['calls']} calls, SRTP and plain RTP in turns", ("what", "reached", ""), rows)
    report.save("call_srtp", figures)
