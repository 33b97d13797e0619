"""What is heard of what is said, to the sample."""

from __future__ import annotations

import asyncio
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audio import Pcm
from pipeline.errors import LocalError
from pipeline.media.playout import Heard, Playout
from pipeline.media.utterance import Utterance
from pipeline.speech import SpokenWord

RATE_HZ = 8000
FRAME = 160


class Listener:
    def __init__(self) -> None:
        self.happened: list[tuple[str, float]] = []
        self.filled = 0

    def playout_filled(self) -> None:
        self.filled += 1

    def utterance_started(self, utterance: Utterance, now: float) -> None:
        self.happened.append(("started", now))

    def utterance_finished(self, utterance: Utterance, now: float) -> None:
        self.happened.append(("finished", now))

    def playout_ran_out(self, now: float) -> None:
        self.happened.append(("ran out", now))


def ramp(samples: int, start: int = 1) -> Pcm:
    return np.arange(start, start + samples).astype(np.int16)


def pull(playout: Playout, frames: int, now: float = 0.0) -> list[Pcm]:
    heard = []
    for index in range(frames):
        frame = playout.read()
        if frame is not None:
            heard.append(frame.copy())
            playout.sent(now + index * 0.02)
    return heard


@given(st.lists(st.integers(0, 700), min_size=1, max_size=12))
def test_any_pieces_come_out_as_whole_frames_and_nothing_is_lost(sizes: list[int]) -> None:
    playout = Playout(RATE_HZ)
    playout.begin()
    total = sum(sizes)
    everything = ramp(total)
    position = 0
    for size in sizes:
        playout.write(everything[position : position + size])
        position += size
    playout.end()
    heard = pull(playout, total // FRAME + 2)
    assert all(frame.shape == (FRAME,) for frame in heard)
    joined = np.concatenate(heard) if heard else np.zeros(0, np.int16)
    assert (joined[:total] == everything).all()
    assert not joined[total:].any()
    assert joined.size - total < FRAME


def test_it_says_when_an_utterance_starts_ends_and_nothing_is_left() -> None:
    listener = Listener()
    playout = Playout(RATE_HZ, listener)
    for _ in range(2):
        playout.begin()
        playout.write(ramp(2 * FRAME))
        playout.end()
    pull(playout, 6)
    assert listener.happened == [
        ("started", 0.0), ("finished", 0.02), ("started", 0.04), ("finished", 0.06), ("ran out", 0.06)
    ]  # fmt: skip
    assert listener.filled == 1


def test_running_out_in_the_middle_is_not_the_end() -> None:
    listener = Listener()
    playout = Playout(RATE_HZ, listener)
    playout.begin()
    playout.write(ramp(FRAME))
    pull(playout, 3)
    assert listener.happened == [("started", 0.0), ("ran out", 0.0)]
    playout.write(ramp(FRAME))
    playout.end()
    pull(playout, 1, now=1.0)
    assert listener.happened[2:] == [("finished", 1.0), ("ran out", 1.0)]
    assert listener.filled == 2


def test_an_end_that_comes_after_the_last_frame_still_ends_it() -> None:
    listener = Listener()
    playout = Playout(RATE_HZ, listener)
    playout.begin()
    playout.write(ramp(FRAME))
    pull(playout, 2)
    playout.end()
    assert ("finished", 0.0) in listener.happened
    assert playout.current is None


def test_an_utterance_without_sound_is_nothing() -> None:
    listener = Listener()
    playout = Playout(RATE_HZ, listener)
    playout.begin()
    playout.end()
    assert playout.current is None
    assert listener.happened == []
    playout.begin()
    playout.write(ramp(FRAME))
    playout.end()
    assert len(pull(playout, 3)) == 1


def test_clear_counts_what_was_heard_to_the_sample() -> None:
    playout = Playout(RATE_HZ)
    utterance = playout.begin()
    playout.write(ramp(1000))
    playout.end()
    pull(playout, 3)
    heard = playout.clear()
    assert heard == Heard(utterance, 3 * FRAME)
    assert playout.read() is None
    assert playout.queued_samples == 0


def test_clear_before_anything_was_heard() -> None:
    playout = Playout(RATE_HZ)
    playout.begin()
    playout.write(ramp(1000))
    assert playout.clear() is None
    assert playout.clear() is None


def test_clear_drops_what_waits_behind() -> None:
    listener = Listener()
    playout = Playout(RATE_HZ, listener)
    first = playout.begin()
    playout.write(ramp(1000))
    playout.end()
    playout.begin()
    playout.write(ramp(1000))
    pull(playout, 1)
    heard = playout.clear()
    assert heard is not None
    assert heard.utterance is first
    second = playout.begin()
    playout.write(ramp(FRAME, start=7))
    playout.end()
    assert pull(playout, 2)[0][0] == 7
    assert second.started_at is not None


def test_the_words_heard() -> None:
    playout = Playout(RATE_HZ)
    utterance = playout.begin()
    utterance.begin_piece("One, two, three.")
    words = [
        SpokenWord(word, index * 400, (index + 1) * 400) for index, word in enumerate(("one", "two", "three"))
    ]
    playout.write(ramp(1200), words)
    utterance.end_piece()
    playout.end()
    pull(playout, 4)  # 640 of 1200 samples: one and a half words and a little
    heard = playout.clear()
    assert heard is not None
    assert heard.text == "One, two,"


def test_words_without_times_are_not_spread_over_the_silence_at_the_end() -> None:
    playout = Playout(RATE_HZ)
    utterance = playout.begin()
    utterance.begin_piece("one two six")
    playout.write(ramp(1600))
    utterance.end_piece(quiet=400)
    assert [word.start for word in utterance.words()] == [0, 400, 800]


def test_a_second_sentence_counts_from_its_own_start() -> None:
    playout = Playout(RATE_HZ)
    utterance = playout.begin()
    for text in ("first", "second"):
        utterance.begin_piece(text)
        playout.write(ramp(800), [SpokenWord(text, 0, 800)])
        utterance.end_piece()
    assert [(word.text, word.start) for word in utterance.words()] == [("first", 0), ("second", 800)]
    assert [word.text for word in utterance.heard(1100)] == ["first"]


def test_something_said_between_shifts_the_words_after_it() -> None:
    playout = Playout(RATE_HZ)
    utterance = playout.begin()
    utterance.begin_piece("one two")
    playout.write(ramp(400), [SpokenWord("one", 0, 400)])
    playout.interject("wait", ramp(1000))
    playout.write(ramp(400), [SpokenWord("two", 400, 800)])
    utterance.end_piece()
    playout.end()
    assert [(word.text, word.start) for word in utterance.words()] == [
        ("one", 0),
        ("wait", 400),
        ("two", 1400),
    ]


def test_the_leg_is_woken_once_when_sound_comes_after_silence() -> None:
    woken: list[int] = []
    playout = Playout(RATE_HZ)
    playout.on_ready(lambda: woken.append(1))
    assert playout.read() is None
    playout.begin()
    playout.write(ramp(100))
    assert woken == []  # not a whole frame yet
    playout.write(ramp(400))
    playout.write(ramp(400))
    assert woken == [1]
    pull(playout, 10)
    playout.write(ramp(400))
    assert woken == [1, 1]


def test_samples_are_copied() -> None:
    playout = Playout(RATE_HZ)
    playout.begin()
    samples = ramp(FRAME)
    playout.write(samples)
    samples[:] = 0
    frame = playout.read()
    assert frame is not None
    assert frame[0] == 1


def test_writing_without_an_utterance_is_a_bug() -> None:
    playout = Playout(RATE_HZ)
    with pytest.raises(LocalError):
        playout.write(ramp(1))
    with pytest.raises(LocalError):
        playout.end()
    playout.begin()
    with pytest.raises(LocalError):
        playout.begin()


def test_the_recording_gets_every_frame_that_left() -> None:
    taken: list[tuple[int, float]] = []
    playout = Playout(RATE_HZ)
    playout.tap = lambda frame, now: taken.append((int(frame[0]), now))
    playout.begin()
    playout.write(ramp(3 * FRAME))
    pull(playout, 2, now=5.0)
    assert taken == [(1, 5.0), (1 + FRAME, 5.02)]


async def test_a_writer_waits_for_room() -> None:
    playout = Playout(RATE_HZ)
    playout.begin()
    playout.write(ramp(10 * FRAME))
    waiting = asyncio.create_task(playout.room(0.1))
    pull(playout, 4)
    await asyncio.sleep(0)
    assert not waiting.done()
    pull(playout, 1)
    await asyncio.wait_for(waiting, 30)


async def test_room_is_given_by_clear() -> None:
    playout = Playout(RATE_HZ)
    playout.begin()
    playout.write(ramp(100 * FRAME))
    waiting = asyncio.create_task(playout.room(0.1))
    await asyncio.sleep(0)
    playout.clear()
    await asyncio.wait_for(waiting, 30)


def test_what_was_said_to_its_end_is_no_memory() -> None:
    """Half a minute at once, as a voice may give it: a megabyte less a half."""
    playout, sentence = Playout(RATE_HZ), ramp(30 * RATE_HZ)
    tracemalloc.start()
    try:
        playout.begin()
        playout.write(sentence)
        playout.end()
        assert tracemalloc.get_traced_memory()[0] > sentence.nbytes
        pull(playout, 30 * 50)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
