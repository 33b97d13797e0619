"""Does the next source on a line begin with a clean sheet?"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench.support.stepped_stream import SteppedStream
from pipeline.audio import Pcm
from pipeline.leg import AudioSource, LegListener
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from pipeline.media.playout import Playout
from pipeline.plane import said
from pipeline.plane.atomic import AT_WORK, FREE
from sip.rtp.pulled import Pulled
from sip.rtp.said import Said
from tests.support.speech.media import RecordingListener, plan


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


def talking(frames: int) -> tuple[SteppedStream, Playout]:
    """A line with so many frames of an utterance that goes on."""
    line, playout = SteppedStream(plan(), rate_hz=8000, now=0.0), Playout(8000)
    playout.connect(line.outgoing)
    playout.begin()
    playout.write(np.full(160 * frames, 8031, np.int16))
    return line, playout


@pytest.mark.parametrize("told", [Playout.left, Playout.hold, Playout.clear])
def test_frames_that_left_while_the_loop_stood_still_have_their_own_times(
    told: Callable[[Playout], object],
) -> None:
    line, playout = talking(5)
    times: list[float] = []
    playout.line_tap = lambda frames, told: times.extend(sent_ns / 1e9 for sent_ns, _ in told)
    for number in range(5):
        line.due(0.02 * number)
    told(playout)
    assert times == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08])


def test_a_frame_has_departed_when_it_is_there_at_its_gain_and_not_when_it_is_taken() -> None:
    line, _ = talking(2)
    assert said.claim(line.line["word"]) == 0  # as far as the plane's thread has got
    assert line.outgoing.waiting == 1
    assert line.outgoing.departed()[1] == []


def test_what_is_cleared_while_a_frame_is_on_its_way_is_known_once_that_has_left() -> None:
    line, playout = talking(3)
    heard: list[Pcm] = []
    playout.line_tap = lambda frames, told: heard.extend(frames.copy())
    row = line.line
    row["owner"] = AT_WORK

    def sends() -> None:
        time.sleep(0.05)
        taken = said.claim(row["word"])
        row["said"][160 * taken : 160 * (taken + 1)] = 4000
        row["departed"] = taken + 1
        row["owner"] = FREE

    plane = threading.Thread(target=sends)
    plane.start()
    playout.clear()
    plane.join()
    assert [frame[0] for frame in heard] == [4000]
    assert line.outgoing.waiting == 0


def test_a_word_is_not_interrupted_where_what_follows_it_is_retracted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plane's tick may come at any moment of it."""
    line, playout = talking(10)
    packets: list[bytes] = line.due(0.0)
    playout.left()
    withdraw = said.withdraw

    def withdraw_and_tick(word: Any, frames: int) -> int:
        back = withdraw(word, frames)
        packets.extend(line.due(0.02))
        return back

    monkeypatch.setattr(said, "withdraw", withdraw_and_tick)
    assert playout.retract(160 * 4) == 160 * 4
    assert len(packets) == 2
    assert packets[1][12:] == packets[0][12:]
    playout.left()
    assert playout.queued_samples == 160 * 4


def test_what_a_voice_says_without_a_pause_is_known_to_the_last_frame() -> None:
    """Nobody asks what was heard: the line tells in time."""
    line, playout = SteppedStream(plan(), rate_hz=8000, now=0.0), Playout(8000)
    heard: list[Pcm] = []
    playout.line_tap = lambda frames, told: heard.extend(frames.copy())
    playout.connect(line.outgoing)
    line.on_sent = lambda at: playout.left()
    playout.begin()
    said_so_far = np.arange(300, dtype=np.int16).repeat(160)
    playout.write(said_so_far[: 160 * 20])
    for number in range(300):
        if number % 10 == 0:
            playout.write(said_so_far[160 * (number + 20) : 160 * (number + 30)])
        line.due(0.02 * number)
    playout.left()
    assert [int(frame[0]) for frame in heard] == list(range(300))


def test_who_wants_to_be_told_of_frames_that_have_left_is_told_in_the_next_tick() -> None:
    line, told = SteppedStream(plan(), rate_hz=8000, now=0.0), list[float]()
    line.on_sent = told.append
    line.outgoing.tell_after(20, more=False)
    line.outgoing.say([np.full(160, 8031, np.int16)] * 3)
    for number in range(3):
        line.due(0.02 * number)
    assert told == []
    line.outgoing.tell_after(2, more=False)  # as where the plane was faster
    line.due(0.06)
    line.due(0.08)
    assert told == [0.06]


class Line:
    """A leg whose frames leave by themselves."""

    held = False

    def __init__(self) -> None:
        self.rate_hz = 8000
        self.stream = SteppedStream(plan(), rate_hz=8000, now=0.0)
        self._said = Said(self.stream.outgoing, asyncio.get_running_loop())
        self.stream.on_sent = lambda at: self._said.left()

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        self._said.source = source

    async def hang_up(self) -> None: ...

    async def send_dtmf(self, digits: str) -> None: ...


async def test_an_agent_that_was_muted_while_it_spoke_is_heard_to_its_end() -> None:
    loop = asyncio.get_running_loop()
    line, playout, bridge = Line(), Playout(8000), Bridge(Pacer(loop), rate_hz=8000)
    bridge.add(line)
    bridge.attach(RecordingListener(), playout)
    playout.begin()
    playout.write(np.full(160 * 20, 8031, np.int16))
    playout.end()
    for number in range(60):
        line.stream.due(0.02 * number)
        if number in (5, 9):
            bridge.mute_source(number == 5)
    assert playout.queued_samples == 0
    assert playout.current is None
