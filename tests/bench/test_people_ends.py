"""Ends of turns of recorded people: which silences count, and how sure the figures are."""

from __future__ import annotations

import numpy as np
import pytest

from bench.people.ends import Scored, area
from bench.people.ends_page import wilson
from bench.people.prompts import Prompt, stops
from pipeline.audio import Pcm
from pipeline.endpointing.weights import Terms


def said(*lengths_ms: int) -> Pcm:
    """A voice and silence in turns."""
    tone = (8000 * np.sin(np.arange(8 * 2000))).astype(np.int16)
    return np.concatenate(
        [tone[: 8 * each] * (number % 2 == 0) for number, each in enumerate(lengths_ms)]
    ).astype(np.int16)


def test_pauses_are_between_voices_and_the_last_silence_is_the_end() -> None:
    prompt = Prompt("en", "vm-goodbye.wav", said(500, 250, 500, 100, 400, 600, 500))
    assert [stop.kind for stop in stops(prompt)] == ["short pause", "long pause", "end"]


def test_a_recording_after_which_the_sentence_goes_on_is_no_end() -> None:
    assert [stop.kind for stop in stops(Prompt("en", "vm-onefor.wav", said(500)))] == ["begun"]


def test_a_pause_and_an_end_have_the_same_silence_after_them() -> None:
    pause, end = stops(Prompt("en", "vm-goodbye.wav", said(900, 300, 900)))
    after = np.abs(pause.audio[-8 * 160 :]).max(), np.abs(end.audio[-8 * 160 :]).max()
    assert after[0] == after[1] < 10


def test_the_area_is_one_where_every_end_is_surer_than_every_pause() -> None:
    pause, end = stops(Prompt("en", "vm-goodbye.wav", said(900, 300, 900)))
    rows = [Scored(stop, Terms(frozenset(), {}), None, {}) for stop in (pause, end)]
    assert area(rows, lambda each: float(each.stop is end))["auc"] == 1.0
    assert area(rows, lambda each: float(each.stop is pause))["auc"] == 0.0


def test_the_interval_of_a_share_is_wilsons() -> None:
    assert wilson(0.0, 100) == pytest.approx((0.0, 0.037), abs=0.001)
    assert wilson(0.5, 100) == pytest.approx((0.404, 0.596), abs=0.001)
