"""Decodes of several calls at once, and what is stable of a text that grows."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.micro_whisper.corpus import PHRASES
from mediaserver.demo.micro_whisper import MODEL_DIR
from pipeline.audio import Pcm
from pipeline.engines.breaker import BreakerState
from pipeline.engines.guard import Guard
from pipeline.errors import EngineBusy
from pipeline.latency import WAIT_BOUNDS_S
from pipeline.speech import Hypothesis
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.stt.whisper.batching import Agreement, Decode, DecodeQueue, Urgency
from pipeline.stt.whisper.wire import Decoded
from pipeline.tts.espeak import Espeak
from tests.support.speech.engines import LINE_HZ, espeak, over_the_line

LIMIT_S = 30
LONG = "i want to cancel my appointment"


def utterance(mark: int, language: str = "en") -> Decode:
    return Decode(np.array([mark], np.int16), LINE_HZ, language)


class Slow:
    """A decoder that waits to be let go before its first pass, and says what it was given."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.passes: list[list[int]] = []

    def __call__(self, decodes: Sequence[Decode]) -> list[Hypothesis]:
        self.passes.append([int(each.samples[0]) for each in decodes])
        assert self.go.wait(LIMIT_S)
        if self.passes[-1] == [13]:
            raise ValueError("thirteen")
        return [Hypothesis(str(each.samples[0])) for each in decodes]


def test_what_waits_for_a_thread_is_decoded_together_by_language() -> None:
    slow = Slow()
    queue = DecodeQueue(slow, threads=1, batch=3)
    first = queue.put(utterance(0))
    while not slow.passes:
        pass
    rest = [queue.put(utterance(mark, "ar" if mark == 2 else "en")) for mark in range(1, 7)]
    rest[4].cancel()
    slow.go.set()
    assert first.result(LIMIT_S).text == "0"
    assert [each.result(LIMIT_S).text for each in rest if not each.cancelled()] == ["1", "2", "3", "4", "6"]
    assert slow.passes == [[0], [1, 3, 4], [2], [6]]
    queue.close()


def test_who_waits_longest_for_a_result_is_next_and_nobody_waits_behind_partial_words() -> None:
    slow = Slow()
    queue = DecodeQueue(slow, threads=1, batch=1)
    queue.put(utterance(0))
    while not slow.passes:
        pass
    rest = [
        queue.put(replace(utterance(mark), urgency=urgency, waiting_since=since, outcome=Future()))
        for mark, urgency, since in (
            (1, Urgency.PARTIAL, 1.0),
            (2, Urgency.RESULT, 9.0),
            (3, Urgency.RESULT, 5.0),
            (4, Urgency.PARTIAL, 0.0),
            (5, Urgency.RESULT, 7.0),
        )
    ]
    slow.go.set()
    assert [each.result(LIMIT_S).text for each in rest] == ["1", "2", "3", "4", "5"]
    assert slow.passes == [[0], [3], [5], [2], [4], [1]]
    queue.close()


def of_a_file(mark: int) -> Decode:
    return replace(utterance(mark), urgency=Urgency.FILE, waiting_since=0.0, outcome=Future())


def test_files_go_behind_results_and_partial_words() -> None:
    slow = Slow()
    queue = DecodeQueue(slow, threads=1, batch=4)
    queue.put(utterance(0))
    while not slow.passes:
        pass
    rest = [queue.put(of_a_file(1)), queue.put(of_a_file(2))]
    rest.append(queue.put(replace(utterance(3), urgency=Urgency.PARTIAL, outcome=Future())))
    rest.append(queue.put(utterance(4)))
    slow.go.set()
    assert [each.result(LIMIT_S).text for each in rest] == ["1", "2", "3", "4"]
    assert slow.passes == [[0], [4, 3], [1, 2]]  # never in one pass with a caller's
    queue.close()


@pytest.mark.parametrize(("threads", "at_once"), [(1, 1), (2, 1), (3, 1), (5, 3)])
def test_files_leave_free_threads_to_callers(threads: int, at_once: int) -> None:
    slow = Slow()
    queue = DecodeQueue(slow, threads=threads, batch=1)
    files = [queue.put(of_a_file(mark)) for mark in range(20, 20 + 2 * threads)]
    while len(slow.passes) < at_once:
        pass
    callers = [queue.put(utterance(mark)) for mark in range(threads - at_once)]
    while len(slow.passes) < threads:
        pass
    assert [mark < 10 for (mark,) in slow.passes] == [False] * at_once + [True] * len(callers)
    slow.go.set()
    assert [each.result(LIMIT_S).text for each in (*files, *callers)]
    queue.close()


def test_partial_words_come_while_files_wait() -> None:
    slow = Slow()
    queue = DecodeQueue(slow, threads=3, batch=1)
    files = [queue.put(of_a_file(mark)) for mark in range(4)]
    while not slow.passes:
        pass
    assert queue.pause_s(0.3) is not None
    slow.go.set()
    assert [each.result(LIMIT_S).text for each in files] == ["0", "1", "2", "3"]
    queue.close()


def test_waits_are_counted_of_those_whom_somebody_waits_for() -> None:
    slow = Slow()
    slow.go.set()
    queue = DecodeQueue(slow, threads=1, batch=1)
    now = time.monotonic()
    for urgency, since in ((Urgency.RESULT, now - 0.5), (Urgency.RESULT, now - 60), (Urgency.PARTIAL, 0.0)):
        decode = replace(utterance(1), urgency=urgency, waiting_since=since, outcome=Future())
        queue.put(decode).result(LIMIT_S)
    waits = queue.waits()
    assert sum(waits.counts) == 2
    assert waits.counts[-1] == 1
    assert sum(waits.counts[: WAIT_BOUNDS_S.index(0.4) + 1]) == 0
    assert waits.sum_s > 60
    queue.close()


def test_a_failure_is_told_to_whoever_waits_and_stops_nobody_else() -> None:
    slow = Slow()
    slow.go.set()
    queue = DecodeQueue(slow, threads=2, batch=1)
    with pytest.raises(ValueError, match="thirteen"):
        queue.put(utterance(13)).result(LIMIT_S)
    assert queue.put(utterance(1)).result(LIMIT_S).text == "1"
    queue.close()


async def test_long_passes_keep_callers_away_where_all_threads_are_at_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow, engine = Slow(), FasterWhisper.from_settings({"model": str(MODEL_DIR), "threads": 2})
    queue = DecodeQueue(slow, threads=2, batch=1)
    monkeypatch.setattr(engine, "_queue", queue)
    monkeypatch.setattr(engine, "_late_s", 0.0)
    guard = Guard("stt", "faster-whisper")
    for number in (1, 2):
        engine.submit(np.zeros(1, np.int16), LINE_HZ, "en", None)
        while len(slow.passes) < number:
            pass
    with pytest.raises(EngineBusy) as busy:
        engine.submit(np.zeros(1, np.int16), LINE_HZ, "en", None)
    guard.failed(busy.value)
    assert guard.health.state is BreakerState.CLOSED
    slow.go.set()
    queue.close()


def test_the_youngest_pass_says_how_long_no_thread_comes_to_an_end() -> None:
    slow = Slow()
    queue = DecodeQueue(slow, threads=2, batch=1)
    held = []
    for number in (1, 2):
        queue.put(utterance(number))
        while len(slow.passes) < number:
            pass
        held.append(queue.stuck_s(time.monotonic() + 60))
    youngest = time.monotonic() + 60 - max(queue._begun.values())
    assert held[0] == 0
    assert held[1] <= youngest
    slow.go.set()
    queue.close()


@pytest.mark.parametrize("mark", [1, 13])
def test_who_has_a_result_finds_the_thread_free(mark: int) -> None:
    """Whatever the pass has taken: the next utterance of the same call is not refused for it."""
    slow, stuck_s = Slow(), list[float]()
    queue = DecodeQueue(slow, threads=1, batch=1)
    outcome = queue.put(utterance(mark))
    while not slow.passes:
        pass
    outcome.add_done_callback(lambda _: stuck_s.append(queue.stuck_s(time.monotonic() + 60)))
    slow.go.set()
    queue.close()
    assert stuck_s == [0.0]


def test_closing_cancels_what_waits() -> None:
    slow = Slow()
    queue = DecodeQueue(slow, threads=1, batch=1)
    running = queue.put(utterance(1))
    while not slow.passes:
        pass
    waiting = queue.put(utterance(2))
    threading.Timer(0.05, slow.go.set).start()
    queue.close()
    assert running.result(LIMIT_S).text == "1"
    assert waiting.cancelled()


def test_words_are_stable_when_two_decodes_agree_on_them() -> None:
    agreement, stable = Agreement(), []
    for words in ("i want to", "i want two tickets", "i want two tickets for monday", "we"):
        agreement.add(words.split())
        stable.append(" ".join(agreement.stable))
    assert stable == ["", "i want", "i want two tickets", "i want two tickets"]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=8))
def test_what_was_stable_stays(decodes: list[list[str]]) -> None:
    agreement = Agreement()
    before: tuple[str, ...] = ()
    for words in decodes:
        agreement.add(words)
        assert agreement.stable[: len(before)] == before
        before = agreement.stable


# The real thing ---------------------------------------------------------------------------------------------


async def said(*texts: str) -> list[Pcm]:
    speaker = Espeak.from_settings({"voice": "en-us"})
    await speaker.start()
    try:
        return [over_the_line(await espeak(speaker, text), speaker.rate_hz) for text in texts]
    finally:
        await speaker.close()


@pytest.fixture(scope="module")
def phrases() -> list[Pcm]:
    return asyncio.run(said(*PHRASES[:6]))


@pytest.fixture
async def engine() -> AsyncIterator[FasterWhisper]:
    settings = {
        "model": str(MODEL_DIR),
        "encoder_window_s": 1,
        "threads": 2,
        "batch": 8,
        "partial_every_s": 0.25,
    }
    engine = FasterWhisper.from_settings(settings)
    await engine.start()
    yield engine
    await engine.close()


async def test_utterances_decoded_together_are_understood_as_each_alone(
    engine: FasterWhisper, phrases: list[Pcm]
) -> None:
    decodes = [Decode(each, LINE_HZ, "en") for each in phrases]
    together = await asyncio.to_thread(engine._decode, [*decodes, Decode(phrases[0][:100], LINE_HZ, "en")])
    assert [each.text for each in together] == [*PHRASES[:6], ""]
    alone = [(await asyncio.to_thread(engine._decode, [each]))[0] for each in decodes]
    for one, other in zip(together, alone, strict=False):
        assert one.confidence == pytest.approx(other.confidence, abs=0.1)


async def test_the_first_words_of_a_long_utterance_are_known_before_its_end(
    engine: FasterWhisper,
) -> None:
    (long,), step = await said(LONG), LINE_HZ // 4
    listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
    assert listening.partial() == ""
    async with asyncio.timeout(LIMIT_S):
        for start in range(0, len(long), step):
            listening.push(long[start : start + step])
            while listening._partial is not None and not listening._partial.done():
                await asyncio.sleep(0.01)
        stable = listening.partial()
        whole = (await listening.result()).text
    assert whole == LONG
    assert len(stable.split()) >= 3
    assert whole.startswith(stable)
    listening.close()


async def test_partials_do_without_a_thread_that_others_wait_for(phrases: list[Pcm]) -> None:
    engine = FasterWhisper.from_settings({"model": str(MODEL_DIR), "encoder_window_s": 1, "threads": 1})
    await engine.start()
    listening = engine.listen(rate_hz=LINE_HZ, language="en", expected=None)
    listening.push(np.concatenate(phrases[:3]))
    assert listening._partial is None
    listening.close()
    await engine.close()


async def test_each_call_has_its_language(engine: FasterWhisper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a multilingual model, which is too large to be here, only the language that it is asked for is
    looked at."""
    asked: list[str] = []

    def decoded(audios: Sequence[Any], *, language: str, **options: Any) -> list[Decoded]:
        asked.append(language)
        return [Decoded(" مرحبا. ", avg_logprob=-0.1, no_speech_prob=0.0)]

    multilingual = SimpleNamespace(multilingual=True, decoded=decoded, close=lambda: None)
    monkeypatch.setattr(engine, "_model", multilingual)
    monkeypatch.setattr(engine, "settings", engine.settings.model_copy(update={"partial_every_s": 0}))
    second = np.ones(LINE_HZ, np.int16)
    for language in ("ar", "en-GB", "ar-SA"):
        listening = engine.listen(rate_hz=LINE_HZ, language=language, expected=None)
        listening.push(second[:4000])
        assert (await listening.result()).text == "مرحبا"
        listening.close()
    assert asked == ["ar", "en", "ar"]
