"""Measures how long short whole turns wait for their end: `python -m bench short-turns`.

The turns are those of the held-out files and the last sentences of their longer turns, each spoken alone. The
delay is that of the judge's probability with the default knobs, in ms of silence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import click
import numpy as np

from bench import report
from bench.conversation.end_of_turn import ASKED
from bench.conversation.pauses import OTHER_PROGRAM, OTHER_VOICES, Place, Turn, evidence, read, speak
from pipeline.endpointing.cues import is_whole
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.policy import EndOfTurn
from pipeline.endpointing.scorer import BuiltInDetector
from pipeline.endpointing.sentence_model import sentence_ends
from pipeline.text.word_lists import plain, word_lists

FILES: Final = ("held_out_en.txt", "another_hand_en.txt")
WORDS: Final = 10
LATE_MS: Final = 800


def short_turns() -> list[Turn]:
    """Returns turns of at most `WORDS` words in which nobody pauses."""
    found = []
    for turn in (turn for name in FILES for turn in read(name)):
        last = tuple(turn.sentences()[-1].split())
        is_alone = not turn.pauses
        if len(last) <= WORDS and (is_alone or turn.pauses[-1][1] is Place.SENTENCE):
            found.append(Turn(turn.asked if is_alone else ASKED, last, ()))
    return found


def summary(delays_ms: Sequence[int]) -> dict[str, Any]:
    """Returns the figures of the delays of some turns."""
    p50, p90, p95 = np.percentile(delays_ms, [50, 90, 95]).round().tolist()
    late = float(np.mean(np.array(delays_ms) > LATE_MS))
    return {"turns": len(delays_ms), "p50_ms": p50, "p90_ms": p90, "p95_ms": p95, "late": round(late, 3)}


async def measure() -> dict[str, Any]:
    """Returns the figures by voice: of all turns, and of whole requests, questions and choices."""
    judge, policy = EndOfTurnDetector(built_in=BuiltInDetector(sentence_ends())), EndOfTurn()
    turns, lists = short_turns(), word_lists("en")
    delays: dict[str, list[int]] = {"all": [], "requests, questions, choices": []}
    for voice in (*OTHER_VOICES, *OTHER_PROGRAM):
        if not voice.is_there:
            continue
        spoken = await asyncio.to_thread(speak, turns, [voice])
        for turn, sound in zip(turns, spoken, strict=True):
            delay_ms = policy.delay_ms(await judge.p_eot(evidence(sound, turn.asked)))
            words = plain(turn.text)
            kinds = ["all", voice.name]
            if words in lists.orders or is_whole(words.split(), turn.asked, lists):
                kinds.append("requests, questions, choices")
            for kind in kinds:
                delays.setdefault(kind, []).append(delay_ms)
    return {kind: summary(each) for kind, each in delays.items() if each}


@click.command()
def main() -> None:
    """Short whole turns: the silence that ends them, by voice; results/short_turns.json."""
    found = asyncio.run(measure())
    columns = ("voice", "turns", "p50, ms", "p95, ms", f"over {LATE_MS} ms")
    rows = [(kind, of["turns"], of["p50_ms"], of["p95_ms"], of["late"]) for kind, of in found.items()]
    report.show("short whole turns", columns, rows)
    report.save("short_turns", found)
