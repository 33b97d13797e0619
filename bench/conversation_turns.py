"""The end of a turn alone, as the public end-of-turn benchmarks measure it: silences within turns and at
their ends, a scorer, three knobs. What share of the pauses is taken for an end, at which mean delay?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np

from bench.conversation_scenarios import FILLED, HALVES, TURNS, Dice
from bench.conversation_sounds import RATE_HZ, Phrasebook, Sound
from pipeline.endpointing import EndOfTurn, TurnEvidence
from pipeline.turn_judge import TurnJudge

ASKED: Final = "Good morning, how may I help you?"
SILENCE_MS: Final = 200
"""When the scorer is asked."""

PAUSES_S: Final = (0.3, 1.2)
BUDGETS_MS: Final = (300, 600)
_ACTION_MS: Final = (200, 250, 300, 350, 400, 500, 600)
_TIMEOUT_MS: Final = (400, 600, 800, 1000, 1300, 1600, 2000)
_THRESHOLDS: Final = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, slots=True)
class Silence:
    """`gap_ms`: until the caller went on; None: they were done."""

    p: float
    gap_ms: float | None


def measure(book: Phrasebook, count: int) -> dict[str, Any]:
    """Cut-offs at each mean delay, and the fixed silence's beside it; `count` pauses and as many ends."""
    silences = asyncio.run(_score(book, count))
    points = [(*_at(policy, silences), policy) for policy in _policies()]
    found: dict[str, Any] = {"pauses": count, "ends": count}
    for budget in BUDGETS_MS:
        fitting = [point for point in points if point[0] <= budget]
        delay, cut, policy = min(fitting, key=lambda point: (point[1], point[0]))
        fixed = _at(EndOfTurn(action_delay_ms=budget, timeout_ms=budget), silences)
        found[f"at_{budget}_ms"] = {
            "cut_off": round(cut, 4),
            "mean_delay_ms": round(delay, 1),
            "knobs": [policy.threshold, policy.action_delay_ms, policy.timeout_ms],
            "fixed_silence": round(fixed[1], 4),
        }
    found["curve"] = [(round(delay), round(cut, 4)) for delay, cut, _ in _frontier(points)]
    return found


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


async def _score(book: Phrasebook, count: int) -> list[Silence]:
    judge = TurnJudge()
    found: list[Silence] = []
    for seed in range(count):
        dice = Dice(book, "ends", seed)
        found.append(Silence(await judge.p_eot(_evidence(dice.one(TURNS))), None))
        first, _ = dice.pair((*HALVES, *FILLED))
        found.append(Silence(await judge.p_eot(_evidence(first)), dice.between(*PAUSES_S) * 1000))
    return found


def _evidence(sound: Sound) -> TurnEvidence:
    silence = np.zeros(SILENCE_MS * RATE_HZ // 1000, np.int16)
    return TurnEvidence(
        audio=np.concatenate((np.zeros(RATE_HZ, np.int16), sound.samples, silence)),
        rate_hz=RATE_HZ,
        words=" ".join(word.text for word in sound.words),
        asked=ASKED,
        silence_ms=SILENCE_MS,
        voiced_ms=round(sound.seconds * 1000),
    )
