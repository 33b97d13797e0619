"""Measures end-of-turn detection alone, as public benchmarks do: silences within turns and at their ends, a
scorer, three parameters. Which share of the pauses is taken for an end, at which mean delay?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import numpy as np

from bench.conversation.pauses import (
    ARABIC_VOICES,
    OTHER_PROGRAM,
    OTHER_VOICES,
    TUNING_VOICES,
    Moment,
    Place,
    Voice,
    evidence,
    moments,
    read,
    speak,
)
from bench.conversation.scenarios import FILLED, HALVES, Dice
from bench.conversation.sounds import VOICES, Phrasebook
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.policy import PAUSES, EndOfTurn
from pipeline.endpointing.scorer import BuiltInDetector
from pipeline.endpointing.sentence_model import sentence_ends

ALL: Final = 100
ASKED: Final = "Good morning, how may I help you?"
PAUSES_S: Final = (0.3, 1.2)
BUDGETS_MS: Final = (300, 600)
_ACTION_MS: Final = (200, 250, 300, 350, 400, 500, 600)
_TIMEOUT_MS: Final = (400, 600, 800, 1000, 1300, 1600, 2000, 2500, 3000)
_THRESHOLDS: Final = (0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence with its score. `gap_ms`: length of a pause; None at the end of a turn. `place`: kind of a
    pause."""

    p: float
    gap_ms: float | None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Set:
    """Turns of a file, spoken in some voices."""

    name: str
    file: str
    voices: tuple[Voice, ...]
    language: str = "en"


SETS: Final = (
    Set("sentences and voices not tuned on", "held_out_en.txt", OTHER_VOICES),
    Set("the same, flite's voices", "held_out_en.txt", OTHER_PROGRAM),
    Set("turns by another hand", "another_hand_en.txt", OTHER_VOICES),
    Set("the same, flite's voices", "another_hand_en.txt", OTHER_PROGRAM),
    Set("whole sentences before every pause", "full_stops_en.txt", OTHER_VOICES),
    Set("Arabic", "held_out_ar.txt", ARABIC_VOICES, "ar"),
    Set("sentences and voices tuned on", "tuned_on_en.txt", TUNING_VOICES[:4]),
)
"""The targets apply to the first set."""


def measure(book: Phrasebook, count: int) -> list[dict[str, Any]]:
    """Returns the cut-offs of each set at each mean delay, with those of a fixed silence; last those of
    `count` turns and halves of the bench's own callers. With a count below `ALL` only the first set, in one
    voice."""
    found = []
    for each in SETS if count >= ALL else SETS[:1]:
        voices = [voice for voice in each.voices if voice.is_there][: None if count >= ALL else 1]
        if voices:
            found.append({"name": each.name, "voices": len(voices), **cut_offs(_of_set(each, voices))})
    own = asyncio.run(_score(_own(book, count)))
    found.append({"name": "the bench's own callers, tuned on", "voices": len(VOICES), **cut_offs(own)})
    return found


def _of_set(each: Set, voices: Sequence[Voice]) -> list[Silence]:
    turns = read(each.file)
    spoken = [moments(turns, speak(turns, [voice], each.language), each.language) for voice in voices]
    return asyncio.run(_score([moment for some in spoken for moment in some]))


def cut_offs(silences: Sequence[Silence]) -> dict[str, Any]:
    """Returns the share of pauses that are cut off at each mean delay, with those of a fixed silence."""
    real = _with_real_lengths(silences)
    points, real_points = (
        [(*_at(policy, each), policy) for policy in _policies()] for each in (silences, real)
    )
    pauses = [each for each in silences if each.gap_ms is not None]
    found: dict[str, Any] = {"pauses": len(pauses), "ends": len(silences) - len(pauses)}
    for budget in BUDGETS_MS:
        delay, cut, policy = _best(points, budget)
        fixed = EndOfTurn(action_delay_ms=budget, timeout_ms=budget)
        found[f"at_{budget}_ms"] = {
            "cut_off": round(cut, 4),
            "mean_delay_ms": round(delay, 1),
            "knobs": [policy.threshold, policy.action_delay_ms, policy.timeout_ms],
            "fixed_silence": round(_at(fixed, silences)[1], 4),
            "inside_cut_off": _share(policy, pauses, Place.INSIDE),
            "real_lengths": round(_best(real_points, budget)[1], 4),
            "real_lengths_fixed_silence": round(_at(fixed, real)[1], 4),
        }
    found["defaults"] = [round(each, 4) for each in _at(EndOfTurn(), silences)]
    found["curve"] = [(round(delay), round(cut, 4)) for delay, cut, _ in _frontier(points)]
    return found


def _best(points: Sequence[tuple[float, float, EndOfTurn]], budget: int) -> tuple[float, float, EndOfTurn]:
    fitting = [point for point in points if point[0] <= budget]
    return min(fitting, key=lambda point: (point[1], point[0]))


def _share(policy: EndOfTurn, pauses: Sequence[Silence], place: Place) -> float | None:
    cut = [policy.delay_ms(each.p) < (each.gap_ms or 0.0) for each in pauses if each.place is place]
    return round(float(np.mean(cut)), 4) if cut else None


def _with_real_lengths(silences: Sequence[Silence]) -> list[Silence]:
    """Returns the pauses with the lengths of people's pauses: the n-th gets the n-th of evenly spaced
    quantiles."""
    lengths, shares = zip(*PAUSES, strict=True)
    order = np.random.default_rng(1).permutation(sum(each.gap_ms is not None for each in silences))
    even = iter((order + 0.5) / len(order))
    return [
        each
        if each.gap_ms is None
        else replace(each, gap_ms=float(np.interp(-np.log(next(even)), -np.log(shares), lengths)))
        for each in silences
    ]


def _policies() -> list[EndOfTurn]:
    return [
        EndOfTurn(threshold=threshold, action_delay_ms=action, timeout_ms=timeout)
        for threshold, action, timeout in product(_THRESHOLDS, _ACTION_MS, _TIMEOUT_MS)
        if action <= timeout
    ]


def _at(policy: EndOfTurn, silences: Sequence[Silence]) -> tuple[float, float]:
    delays = [(policy.delay_ms(each.p), each.gap_ms) for each in silences]
    ends = [delay for delay, gap in delays if gap is None]
    cuts = [delay < gap for delay, gap in delays if gap is not None]
    return float(np.mean(ends)), float(np.mean(cuts))


def _frontier(points: Sequence[tuple[float, float, EndOfTurn]]) -> list[tuple[float, float, EndOfTurn]]:
    ordered = sorted(points, key=lambda point: point[:2])
    best = [ordered[0]]
    for point in ordered:
        if point[1] < best[-1][1]:
            best.append(point)
    return best


def _own(book: Phrasebook, count: int) -> list[Moment]:
    found: list[Moment] = []
    for seed in range(count):
        dice = Dice(book, "ends", seed)
        found.append(Moment(evidence(*dice.turn()), None))
        first, _ = dice.pair((*HALVES, *FILLED))
        found.append(Moment(evidence(first, ASKED), Place.INSIDE))
    return found


async def _score(found: Sequence[Moment]) -> list[Silence]:
    """Scores each silence; lengths of pauses are random."""
    judge = EndOfTurnDetector(built_in=BuiltInDetector(sentence_ends()))
    lengths_ms = np.random.default_rng(0).uniform(*PAUSES_S, len(found)) * 1000
    return [
        Silence(await judge.p_eot(each.evidence), None if each.place is None else float(gap_ms), each.place)
        for each, gap_ms in zip(found, lengths_ms, strict=True)
    ]
