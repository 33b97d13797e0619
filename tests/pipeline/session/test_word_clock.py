"""The words of an utterance as they begin to be heard, on a line that sends by itself."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bench.support.stepped_stream import SteppedStream
from bench.support.virtual_clock import VirtualLoop
from pipeline.media.playout import Heard, Playout
from pipeline.session.word_clock import WordClock
from pipeline.speech import SpokenWord
from tests.support.speech.media import plan

RATE_HZ = 8000
WORDS = 20
WORD = 3 * RATE_HZ // 10


class Counted(Playout):
    """A playout that counts how often its place is looked at."""

    __slots__ = ("looks",)

    def __init__(self) -> None:
        super().__init__(RATE_HZ)
        self.looks = 0

    def heard(self) -> Heard | None:
        self.looks += 1
        return super().heard()


async def say(told: list[str], *, stopped_after_s: float = 6.0) -> int:
    """Says words of 300 ms each; returns how often the clock looked before it was closed."""
    loop = asyncio.get_running_loop()
    line, playout = SteppedStream(plan(), rate_hz=RATE_HZ, now=loop.time()), Counted()
    clock = WordClock(playout, lambda text, now: told.append(text))
    playout.line_tap = lambda frames, left: clock.played()
    playout.connect(line.outgoing)
    line.on_sent = lambda at: playout.left()
    playout.begin().begin_piece(" ".join(f"word{number}" for number in range(WORDS)))
    words = [SpokenWord(f"word{each}", each * WORD, (each + 1) * WORD) for each in range(WORDS)]
    playout.write(np.full(WORDS * WORD, 1000, np.int16), words)
    playout.end()
    for _ in range(round(stopped_after_s * 50)):
        line.due(loop.time())
        await asyncio.sleep(0.02)
    playout.line_tap = None
    clock.close()
    looks = playout.looks
    await asyncio.sleep(1.0)
    assert playout.looks == looks
    return looks


@pytest.fixture
def runner() -> asyncio.Runner:
    return asyncio.Runner(loop_factory=VirtualLoop)


def test_the_clock_looks_once_for_each_word(runner: asyncio.Runner) -> None:
    told: list[str] = []
    with runner:
        looks = runner.run(say(told))
    assert len(told) == WORDS
    assert looks < 4 * WORDS


def test_nothing_is_told_once_the_clock_is_closed(runner: asyncio.Runner) -> None:
    told: list[str] = []
    with runner:
        runner.run(say(told, stopped_after_s=1.0))
    assert len(told) == 4
