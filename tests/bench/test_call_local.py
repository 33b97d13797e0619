"""The benchmark of calls of people: what it counts as broken, what its callers say, and that it has calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from bench.call import local
from bench.call.figures import above
from bench.call.people import utterances
from bench.call.processes import bare, serving
from pipeline.engines.local_weights import PIPER, WHISPER
from tests.support.paths import ROOT
from tests.support.speech.local_speech import needs


def step(calls: int, **changes: Any) -> dict[str, Any]:
    return {
        "calls": calls,
        "up_at_end": calls,
        "missed_turns": 0,
        "waited_too_long": 0,
        "decoder_wait_ms": {"p100": 390.0},
        "voice_ms": {"p95": 480.0},
        "gap_from_20_ms_p99": 9.0,
        **changes,
    }


def test_everything_that_gave_is_named_with_how_much() -> None:
    assert local.broken(step(6)) == {}
    assert local.broken(step(6, waited_too_long=1, decoder_wait_ms={"p100": 600.0})) == {"decoder wait": 1.5}
    assert local.broken(step(6, voice_ms={"p95": 600.0}, gap_from_20_ms_p99=20.0)) == {
        "voice": 1.2,
        "loop": 2.0,
    }
    for silent in ({"missed_turns": 1}, {"up_at_end": 5}):
        assert set(local.broken(step(6, **silent))) == {"silence"}


def test_calls_are_carried_up_to_the_first_step_that_broke() -> None:
    steps = [{"calls": 2, "broken": {}}, {"calls": 6, "broken": {}}, {"calls": 10, "broken": {"voice": 1.1}}]
    assert local.carried([*steps, {"calls": 14, "broken": {}}]) == 6
    assert local.carried([{"calls": 2, "broken": {"loop": 3.0}}]) == 0


def test_of_a_histogram_between_two_scrapes_what_is_above_a_bound_is_counted() -> None:
    def scrape(*counts: int) -> str:
        bounds = ("0.1", "0.4", "+Inf")
        return "\n".join(
            f'mediaserver_decoder_wait_seconds_bucket{{engine="faster-whisper",le="{bound}"}} {count}.0'
            for bound, count in zip(bounds, counts, strict=True)
        )

    name = "mediaserver_decoder_wait_seconds"
    assert above((scrape(1, 1, 3), scrape(5, 8, 12)), name, 0.4) == (2, 9)
    assert above(("", ""), name, 0.4) == (0, 0)


def test_callers_say_what_a_person_says() -> None:
    found = utterances()
    assert len(found) >= 50
    assert all(35 <= len(each) <= 160 for each in found)
    assert {len(frame) for each in found for frame in each} == {160}


@pytest.mark.nightly("ci")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_calls_of_people_are_had_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs(WHISPER)
    needs(PIPER)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    with serving(tmp_path, local.agents(threads=2)) as server, bare(tmp_path) as floor:
        figures = local.Load().step(server, floor, 2, 15.0)
    assert figures["up_at_end"] == figures["calls"] == 2
    assert figures["voice_to_voice_ms"]["count"] >= 2
    assert figures["turns_understood"] >= 2
    assert figures["results_decoded"] >= 2
    assert figures["bare"]["packets"] > 100
    programs = figures["programs"]
    assert programs["whisper.process"]["cpu_ms_per_call_second"] > 0
    assert programs["onnx.process"]["cpu_ms_per_call_second"] > 0
    whole = {"steps": [{**figures, "broken": local.broken(figures)}]}
    (row,) = local.rows(whole)
    assert len(row) == len(local.COLUMNS)
