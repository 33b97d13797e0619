"""What an end-of-turn scorer must do (`pipeline.endpointing.policy.EndOfTurnScorer`).

Run by its author: `pytest --pyargs mediaserver.testing.scorer --engine my:Scorer`."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from mediaserver.testing.fixtures import spoken, test_unknown_options_are_refused  # noqa: F401
from pipeline.endpointing.detector import DEADLINE_S
from pipeline.endpointing.policy import EVIDENCE_S, TurnEvidence
from pipeline.speech import Expected

pytest_plugins = ("mediaserver.testing.fixtures",)
Make = Callable[..., Any]


@pytest.fixture
def scorer(make_engine: Make, engine_options: Mapping[str, Any]) -> Any:
    """Gives the scorer under test, made from the options of the command line."""
    return make_engine(engine_options)


def _said(says: str, language: str, rate_hz: int = 16000) -> TurnEvidence:
    """What a caller said, and a pause."""
    voice = asyncio.run(spoken(says, language, rate_hz))
    audio = np.concatenate((voice, np.zeros(rate_hz // 5, np.int16)))[-round(EVIDENCE_S * rate_hz) :]
    voiced_ms = len(voice) * 1000 // rate_hz
    return TurnEvidence(
        audio=audio, rate_hz=rate_hz, words=says, asked="Is that right?", silence_ms=200, voiced_ms=voiced_ms,
        language=language,
    )  # fmt: skip


def _odd(usual: TurnEvidence) -> Iterator[TurnEvidence]:
    """Evidence as it comes on bad days."""
    noise = np.random.default_rng(1).normal(0, 3000, round(EVIDENCE_S * 16000)).astype(np.int16)
    for audio in (np.zeros(0, np.int16), np.zeros(1, np.int16), np.zeros(16000, np.int16), noise):
        yield replace(usual, audio=audio)
        yield replace(usual, audio=audio, words="")
    yield replace(usual, audio=np.full(16000, -32768, np.int16))
    yield replace(usual, words="word " * 800)
    yield replace(usual, words="\N{ARABIC LETTER NOON}\N{ARABIC LETTER AIN}\N{ARABIC LETTER MEEM}")
    yield replace(usual, words="\N{GRINNING FACE} ' -", asked="")
    yield replace(usual, language="ar")
    yield replace(usual, language="xx", words="tere")
    yield replace(usual, expected=Expected(kinds=("digits",), digits=10), words="five five five")
    yield replace(usual, silence_ms=3000, voiced_ms=0)


def _p(scorer: Any, evidence: TurnEvidence) -> float:
    value = scorer.p_eot(evidence)
    assert isinstance(value, int | float), f"{value!r} is no number"
    assert math.isfinite(value)
    assert 0.0 <= value <= 1.0
    return float(value)


@pytest.mark.parametrize("rate_hz", [8000, 16000, 48000])
def test_a_probability_comes_at_every_rate(
    scorer: Any, engine_says: str, engine_language: str, rate_hz: int
) -> None:
    """At the rates of telephone and browser."""
    _p(scorer, _said(engine_says, engine_language, rate_hz))


def test_nothing_makes_it_raise(scorer: Any, engine_says: str, engine_language: str) -> None:
    """No audio, silence, noise, clipping, no words, other languages and signs."""
    for evidence in _odd(_said(engine_says, engine_language)):
        _p(scorer, evidence)


def test_the_same_evidence_has_the_same_probability(
    scorer: Any, engine_says: str, engine_language: str
) -> None:
    """All calls share it: nothing is kept of a call, and evidence is not changed."""
    usual = _said(engine_says, engine_language)
    before = usual.audio.copy()
    first = _p(scorer, usual)
    for evidence in _odd(usual):
        _p(scorer, evidence)
    assert _p(scorer, usual) == pytest.approx(first, abs=1e-6)
    assert np.array_equal(usual.audio, before), "the audio is the session's"


def test_threads_may_ask_at_once(scorer: Any, engine_says: str, engine_language: str) -> None:
    """It runs in threads, one for each call that pauses."""
    one, other = _said(engine_says, engine_language), _said(f"{engine_says} and then", engine_language)
    expected = [_p(scorer, one), _p(scorer, other)]
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(scorer.p_eot, [one, other] * 20))
    assert made == pytest.approx(expected * 20, abs=1e-6)


def test_it_takes_less_than_it_is_waited_for(scorer: Any, engine_says: str, engine_language: str) -> None:
    """After `DEADLINE_S` the built-in scorer answers. CPU time of its thread counts, the median of nine."""
    usual = _said(engine_says, engine_language)
    _p(scorer, usual)
    took = []
    for _ in range(9):
        began = time.thread_time()
        _p(scorer, usual)
        took.append(time.thread_time() - began)
    assert median(took) < DEADLINE_S
