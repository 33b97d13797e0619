"""Engines in order: nothing of what was said is lost, and a dead engine costs one wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import numpy as np
import pytest

from pipeline.agent import AgentAct, HangUp, Say
from pipeline.audio import Pcm
from pipeline.engines.breaker import BreakerState
from pipeline.engines.guard import Guard, GuardedVoice
from pipeline.errors import (
    EngineBusy,
    EngineCircuitOpen,
    EngineError,
    EngineMissing,
    EngineRefused,
    EngineTimeout,
)
from pipeline.speech import Expected, Hypothesis, SpeechChunk
from pipeline.stt.fallback import FallbackRecognizer, GuardedRecognizer, of_call
from pipeline.transcript import Role
from tests.support.speech.conversation import (
    FakeAgent,
    FakeStt,
    FakeTts,
    converse,
    play,
    texts,
    voice,
)

pytestmark = pytest.mark.virtual_clock

RATE_HZ = 8000
FRAME = RATE_HZ // 50


class FakeRecognizer:
    """A recogniser and its only utterance: it understands how many frames it got. `mood`: "well", "fails",
    "hangs", "refuses" (to open), "busy"."""

    def __init__(self, mood: str = "well", *, during: Any = None) -> None:
        self.mood = mood
        self.during = during
        self.recovers = False
        self.open = 0
        self.asked = 0
        self.got: list[Pcm] = []

    def close(self) -> None:
        self.open -= 1

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> FakeRecognizer:
        if self.mood == "refuses":
            raise EngineMissing("English only")
        self.open += 1
        self.got = []
        return self

    def push(self, samples: Pcm) -> None:
        self.got.append(samples.copy())
        if self.during is not None:
            during, self.during = self.during, None
            during()

    def partial(self) -> str:
        return "" if self.mood == "hangs" else f"{len(self.got)} frames"

    async def result(self) -> Hypothesis:
        self.asked += 1
        if self.mood == "hangs":
            await asyncio.sleep(3600)
        if self.mood == "fails":
            self.mood = "well" if self.recovers else "fails"
            raise EngineError("recogniser down", retryable=True)
        if self.mood == "busy":
            raise EngineBusy("too much to do", retry_after_s=90)
        return Hypothesis(str(sum(map(len, self.got)) // FRAME), 0.9)


def fallback_of(*engines: FakeRecognizer, deadline_s: float | None = 0.7) -> FallbackRecognizer:
    return FallbackRecognizer(
        [
            GuardedRecognizer(cast(Any, engine), Guard("stt", f"ear {place}", deadline_s=deadline_s))
            for place, engine in enumerate(engines)
        ]
    )


def frames(count: int) -> list[Pcm]:
    return [np.full(FRAME, index, np.int16) for index in range(count)]


async def heard(fallback: Any, count: int = 60) -> str:
    """What is understood of an utterance of so many frames."""
    listening = fallback.listen(rate_hz=RATE_HZ, language="en", expected=None)
    for frame in frames(count):
        listening.push(frame)
    try:
        return str((await listening.result()).text)
    finally:
        listening.close()


# Ears -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mood", ["fails", "hangs", "refuses", "busy"])
async def test_the_next_engine_hears_all_of_it(mood: str) -> None:
    first, second = FakeRecognizer(mood), FakeRecognizer()
    loop = asyncio.get_running_loop()
    began = loop.time()
    text, took_s = await heard(fallback_of(first, second)), loop.time() - began
    assert text == "60"
    assert [int(frame[0]) for frame in second.got] == list(range(60))
    assert took_s <= (0.71 if mood == "hangs" else 0.01)
    assert (first.open, second.open) == (0, 0)


async def test_an_engine_that_failed_is_not_asked_again_for_a_while() -> None:
    first, second = FakeRecognizer("hangs"), FakeRecognizer()
    loop, fallback, took = asyncio.get_running_loop(), fallback_of(first, second), []
    for _ in range(5):
        began = loop.time()
        assert await heard(fallback) == "60"
        took.append(round(loop.time() - began, 2))
    await asyncio.sleep(5)
    first.mood = "well"
    assert await heard(fallback) == "60"
    assert await heard(fallback) == "60"
    assert took == [0.7, 0, 0, 0, 0]
    assert first.asked == 3


async def test_a_text_that_the_engine_cannot_serve_is_not_held_against_it() -> None:
    guard = Guard("stt", "one")
    for _ in range(10):
        assert guard.admits()
        guard.failed(EngineRefused("too short"))
    assert (guard.health.requests, guard.health.errors) == (10, 0)


async def test_what_is_said_while_the_next_one_catches_up_is_heard_too() -> None:
    first, second = FakeRecognizer("fails"), FakeRecognizer()
    fallback = fallback_of(first, second)
    listening = fallback.listen(rate_hz=RATE_HZ, language="en", expected=None)
    for frame in frames(100):
        listening.push(frame)

    def go_on() -> None:
        for frame in frames(40):
            listening.push(frame)

    second.during = go_on
    text = (await listening.result()).text
    listening.push(frames(1)[0])
    assert listening.partial() == "141 frames"
    listening.close()
    assert text == "140"


async def test_a_listener_who_goes_away_while_the_next_one_catches_up_loses_nothing() -> None:
    first, second = FakeRecognizer("fails"), FakeRecognizer()
    listening = fallback_of(first, second).listen(rate_hz=RATE_HZ, language="en", expected=None)
    for frame in frames(100):
        listening.push(frame)
    asking = asyncio.create_task(listening.result())
    second.during = asking.cancel
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert second.open == 0
    for frame in frames(20):
        listening.push(frame)
    assert (await listening.result()).text == "120"
    listening.close()
    assert (first.open, second.open) == (0, 0)


async def test_an_utterance_closed_while_the_next_one_catches_up_leaves_nothing_open() -> None:
    first, second = FakeRecognizer("fails"), FakeRecognizer()
    listening = fallback_of(first, second).listen(rate_hz=RATE_HZ, language="en", expected=None)
    for frame in frames(100):
        listening.push(frame)
    second.during = listening.close
    with pytest.raises(EngineError, match="closed"):
        await listening.result()
    assert (first.open, second.open) == (0, 0)


async def test_the_last_engine_is_asked_whatever_happened() -> None:
    only = FakeRecognizer("fails")
    fallback = fallback_of(only)
    for _ in range(10):
        with pytest.raises(EngineError, match="recogniser down"):
            await heard(fallback)
    only.mood = "well"
    assert await heard(fallback) == "60"
    assert only.asked == 21  # twice each: its failure might have passed


async def test_a_failure_of_the_last_engine_that_passes_costs_nothing() -> None:
    only = FakeRecognizer("fails")
    faults: list[str] = []
    fallback, _ = of_call(fallback_of(only), faults.append, call_id="c", language="en")
    listening = fallback.listen(rate_hz=RATE_HZ, language="en", expected=None)
    listening.push(frames(1)[0])
    asking = asyncio.create_task(listening.result())
    only.recovers = True
    assert (await asking).text == "1"
    assert faults == ["ear 0: recogniser down"]


async def test_a_slow_engine_in_this_machine_is_waited_for() -> None:
    slow, other = FakeRecognizer("hangs"), FakeRecognizer()
    fallback = fallback_of(slow, other, deadline_s=None)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(heard(fallback), 30)
    assert fallback.recognizers[0].guard.health.state is BreakerState.CLOSED
    assert other.asked == 0


def test_a_long_utterance_is_heard_again_from_its_last_minute() -> None:
    first, second = FakeRecognizer("fails"), FakeRecognizer()
    assert play(lambda: heard(fallback_of(first, second), 50 * 90)) == str(50 * 61 - 50 + 50)


async def test_failures_that_were_got_over_are_told_once() -> None:
    first, second = FakeRecognizer("fails"), FakeRecognizer()
    faults: list[str] = []
    fallback, _ = of_call(fallback_of(first, second), faults.append, call_id="c", language="en")
    for _ in range(6):
        assert await heard(fallback) == "60"
    assert faults == ["ear 0: recogniser down", "ear 0: left alone after it failed"]


# Voices -----------------------------------------------------------------------------------------------------


async def spoken(tts: GuardedVoice) -> int:
    return sum([chunk.samples.size async for chunk in tts.speak("one two", language="en")])


async def test_a_voice_is_left_alone_after_a_missed_deadline() -> None:
    guard = Guard("tts", "voice", deadline_s=1.0)
    tts = FakeTts(delay_s=3600)
    guarded = GuardedVoice(tts, guard, last=False)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(spoken(guarded), 1.5)
    for _ in range(3):
        with pytest.raises(EngineCircuitOpen):
            await spoken(guarded)
    assert len(tts.asked) == 1
    assert guard.health.errors == 1
    tts.delay_s = 0
    assert await spoken(GuardedVoice(tts, guard, last=True)) > 0
    assert await spoken(guarded) > 0


async def test_a_caller_who_interrupts_says_nothing_about_the_voice() -> None:
    guard = Guard("tts", "voice", deadline_s=1.0)
    for _ in range(5):
        stream = GuardedVoice(FakeTts(), guard, last=False).speak("one two", language="en")
        await anext(stream)
        await asyncio.sleep(30)  # it is heard
        await stream.aclose()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(spoken(GuardedVoice(FakeTts(delay_s=9), guard, last=False)), 0.2)
    assert (guard.health.errors, guard.health.state) == (0, BreakerState.CLOSED)


@pytest.mark.parametrize("silent", [True, False])
def test_a_voice_that_says_nothing_has_failed(silent: bool) -> None:
    class Plain(FakeTts):
        def speak(self, text: str, *, language: str) -> Any:
            chunks = [] if silent else [SpeechChunk(np.ones(160, np.int16))]

            class Chunks:
                def __aiter__(self) -> AsyncIterator[SpeechChunk]:
                    return self

                async def __anext__(self) -> SpeechChunk:
                    if not chunks:
                        raise StopAsyncIteration
                    return chunks.pop()

            return Chunks()

    guard = Guard("tts", "voice")
    assert play(lambda: spoken(GuardedVoice(Plain(), guard, last=True))) == (0 if silent else 160)
    assert guard.health.errors == silent


# Back again -------------------------------------------------------------------------------------------------


async def test_no_caller_tries_an_engine_that_is_not_there() -> None:
    """After every pause the engine is looked at beside the calls; the first caller comes when it is back."""
    looks: list[float] = []
    dead, other = FakeRecognizer("hangs"), FakeRecognizer()
    loop = asyncio.get_running_loop()

    async def check() -> str:
        looks.append(loop.time())
        await asyncio.sleep(1.0)
        return "" if dead.mood == "well" else "it does not answer"

    guard = Guard("stt", "dead", deadline_s=0.7, check=check)
    fallback = FallbackRecognizer(
        [
            GuardedRecognizer(cast(Any, dead), guard),
            GuardedRecognizer(cast(Any, other), Guard("stt", "other")),
        ]
    )
    waits = []
    for turn in range(120):
        if turn == 100:
            dead.mood = "well"
        began = loop.time()
        assert await heard(fallback) == "60"
        waits.append(loop.time() - began)
        await asyncio.sleep(2.0)
    assert [wait for wait in waits if wait > 0.01] == [pytest.approx(0.7)]
    assert guard.health.state is BreakerState.CLOSED
    await guard.close()
    assert 5 <= len(looks) <= 9
    assert 10 <= dead.asked <= 21


async def test_a_check_under_way_ends_with_the_guard() -> None:
    async def check() -> str:
        await asyncio.sleep(3600)
        return ""

    guard = Guard("tts", "dead", check=check)
    guard.failed(EngineTimeout("late"))
    await asyncio.sleep(6)
    assert not guard.admits()
    await asyncio.sleep(0)
    await guard.close()
    assert len(asyncio.all_tasks()) == 1


# In a conversation ------------------------------------------------------------------------------------------


def test_a_call_whose_recogniser_hangs_goes_on_with_the_next() -> None:
    dead, alive = FakeRecognizer("hangs"), FakeStt("yes", "on monday", "at ten")
    acts: list[list[AgentAct]] = [[Say(f"question {n}")] for n in range(3)]
    agent = FakeAgent(*acts, [Say("goodbye"), HangUp()])
    fallback = FallbackRecognizer(
        [
            GuardedRecognizer(cast(Any, dead), Guard("stt", "dead", deadline_s=0.7)),
            GuardedRecognizer(alive, Guard("stt", "alive")),
        ]
    )
    result, _ = converse(agent, stt=fallback, says=[(at, voice(0.8)) for at in (3.0, 8.0, 13.0)])
    said = texts(result, Role.CALLER)
    assert said == ["yes", "on monday", "at ten"]
    assert dead.asked == 2  # and again after its pause, when the third answer was given
    assert [fault.message for fault in result.faults] == [
        "dead: no answer within 0.7 s",
        "dead: left alone after it failed",
    ]


@pytest.mark.parametrize("how", ["stalls", "fails"])
def test_a_call_whose_voice_dies_in_a_sentence_loses_no_word(how: str) -> None:
    first, second = FakeTts(), FakeTts()
    (first.stall_at if how == "stalls" else first.fail_at).update({0: 3})
    first.retryable = False
    text = "one two three four five six. seven eight nine ten eleven twelve thirteen"
    last = "goodbye now and thank you"
    agent = FakeAgent([Say(text), Say(last), HangUp()])
    guard = Guard("tts", "first", deadline_s=1.0)
    last_voice = GuardedVoice(second, Guard("tts", "second"), last=True)
    result, _ = converse(agent, tts=GuardedVoice(first, guard, last=False), fallback_tts=[last_voice])
    said = " ".join(entry.text for entry in result.transcript if entry.role is Role.AGENT)
    assert said == f"{text} {last}"
    words = " ".join(second.asked).split()
    if how == "stalls":  # once: after that nobody waits for it
        assert len(first.asked) == 1
        assert words == f"{text} {last}".split()[3:]
    else:
        assert words[:3] == ["four", "five", "six."]
    assert len(result.faults) == (2 if how == "stalls" else 1)


def test_what_nobody_can_have_said_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    stt = FakeStt("word " * 100_000)
    chain = FallbackRecognizer([GuardedRecognizer(stt, Guard("stt", "chatty"))])
    agent = FakeAgent([Say("Well?")], [Say("thank you"), HangUp()])
    result, _ = converse(agent, stt=chain, says=[(3.0, voice(0.8))], call_id="call-1")
    (said,) = [entry for entry in result.transcript if entry.role is Role.CALLER]
    assert 3900 < len(said.text) <= 4000
    assert said.text.split()[-1] == "word"
    assert len(said.words) == len(said.text.split())
    (cut,) = [each for each in caplog.records if each.message == "recogniser said too much, cut"]
    assert cut.__dict__["call_id"] == "call-1"
