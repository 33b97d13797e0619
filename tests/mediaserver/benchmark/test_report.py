"""Figures of calls, whatever came of them: the JSON, the table, the line that complains, the picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from rich.console import Console

from mediaserver.benchmark.caller import CallerTurn, Fate, ReceivedAudio
from mediaserver.benchmark.calls import CallPlan, Record, Run
from mediaserver.benchmark.figures import Figures
from mediaserver.benchmark.plot import svg
from mediaserver.benchmark.report import complaint, conditions, figures, lines, table
from mediaserver.benchmark.target import CallTarget
from sip.rtp.media_stream import MediaStats

HERE = CallTarget("a<b&c", "127.0.0.1", None, "udp", "127.0.0.1")


def turn(fate: Fate, **more: float) -> CallerTurn:
    made = CallerTurn("words", interrupts="stopped_s" in more, begun_s=110.0, ended_s=112.0, fate=fate)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def answered(
    turns: Sequence[CallerTurn] = (), *, packets: int = 500, voice_s: float | None = 101.0
) -> Record:
    heard = ReceivedAudio([0.02, 0.021, 0.019], 500, 0, voice_s)
    media = MediaStats(packets_received=packets, packets_sent=500, lost=2, rtt_ms=3.0, remote_lost=1)
    return Record(1, 99.0, 100.0, 130.0, 200, "normal", "local", list(turns), heard, media)


def refused(status: int = 486, by: str = "remote") -> Record:
    return Record(2, 99.0, None, 100.0, status, "busy", by)


def found(*records: Record) -> tuple[Run, Figures]:
    run = Run(list(records), [0.001, 0.002])
    return run, figures(run, conditions(CallPlan(target=HERE), [], agent="", speech="1 recording"))


ANSWERED = answered(
    [turn(Fate.ANSWERED, answered_s=112.5), turn(Fate.ANSWERED, answered_s=113.0, stopped_s=110.4)]
)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ((), "stopped before the first call"),
        ((ANSWERED,), ""),
        ((ANSWERED, refused()), "1 of 2 calls not answered: 1 × 486 Busy Here"),
        ((refused(499),), "1 of 1 calls not answered: 1 × 499"),
        ((refused(408, by="local"),), "1 × busy"),
        ((answered(packets=0),), "no audio came"),
        ((answered([turn(Fate.MISSED)], voice_s=None),), "only silence came"),
        ((answered([turn(Fate.MISSED)]),), "what was said was not answered"),
        ((answered([turn(Fate.CUT_SHORT)]),), "the call ended before a turn was over"),
        ((answered([turn(Fate.MISSED, echo_ms=40.0)]),), "our own voice, 40.0 ms late"),
    ],
)
def test_what_went_wrong_is_told_in_a_line(records: tuple[Record, ...], said: str) -> None:
    run, figured = found(*records)
    told = complaint(figured)
    assert said in told
    assert bool(told) == bool(said)
    assert "\n" not in told
    # Whatever it is, it can be written, shown and drawn.
    json.loads(json.dumps(figured, allow_nan=False))
    ElementTree.fromstring(svg(run, figured))
    Console(quiet=True).print(table(figured))
    assert lines(figured)


def test_the_figures_are_what_happened() -> None:
    _, figured = found(ANSWERED, refused())
    assert figured["voice_to_voice_ms"] == {
        "p50": 750.0,
        "p95": 975.0,
        "p99": 995.0,
        "p100": 1000.0,
        "count": 2,
    }
    assert figured["barge_in_ms"]["p50"] == 400.0
    assert (figured["set_up_ms"]["p50"], figured["first_voice_ms"]["p50"]) == (1000.0, 1000.0)
    assert figured["gap_ms"]["count"] == 3
    assert figured["packets"]["lost"] == 2
    assert figured["packets"]["reported"]["lost"] == 1
    turns = figured["turns"]
    assert (turns["begun"], turns["answered"], turns["interruptions"], turns["gave_way"]) == (2, 2, 1, 1)
    assert figured["calls"]["failed"] == {"486 Busy Here": 1}
    assert figured["conditions"]["loop_late_ms"]["p100"] == 2.0
