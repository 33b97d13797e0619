"""Does the next source on a line begin with a clean sheet?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from bench.support.stepped_stream import SteppedStream
from pipeline.audio import Pcm
from pipeline.media.playout import Playout
from sip.rtp.pulled import Pulled
from tests.support.speech.media import plan


class Clip:
    """A source that always has a frame, and counts those that were sent."""

    def __init__(self) -> None:
        self.count = 0

    def read(self) -> Pcm | None:
        return np.ones(160, np.int16)

    def sent(self, now: float) -> None:
        self.count += 1

    def on_ready(self, wake: Callable[[], None] | None) -> None: ...


@pytest.mark.parametrize("left", [0, 1, 2])
async def test_what_left_of_a_clip_is_not_the_agents(left: int) -> None:
    line = SteppedStream(plan(), rate_hz=8000, now=0.0)
    clip, playout = Clip(), Playout(8000)
    pulled = Pulled(clip, line.outgoing, asyncio.get_running_loop())
    for number in range(left):
        line.due(0.001 + 0.02 * number)  # a frame leaves, and nobody has told of it yet
    pulled.close()
    assert clip.count == left
    playout.connect(line.outgoing)
    playout.left()
    playout.begin()
    playout.write(np.zeros(1600, np.int16))
    playout.left()
    assert playout.queued_samples == 1600
    assert line.outgoing.waiting == 10
