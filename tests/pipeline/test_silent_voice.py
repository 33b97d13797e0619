"""What counts is what the caller hears: a voice that makes silence is not speaking, however many frames it
sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pipeline.agent import HangUp, Say
from pipeline.audio import Pcm
from pipeline.audio.levels import AUDIBLE, is_audible
from pipeline.engines.breaker import BreakerState
from pipeline.engines.guard import Guard, GuardedVoice, longest_s
from pipeline.result import EndReason, SessionResult
from pipeline.session.prompts import Phrases
from pipeline.settings import SessionSettings
from pipeline.speech import SpeechChunk
from pipeline.text.prompts import Phrase
from tests.support.speech.conversation import (
    FakeAgent,
    FakeLeg,
    FakeTts,
    agent_texts,
    converse,
    play,
)

RATE_HZ = 16000
TEXT = "one two three four five six seven eight"


def tone(seconds: float) -> Pcm:
    """Below what `FakeTts` says, so that a test can hear who speaks."""
    return np.full(round(RATE_HZ * seconds), 500, np.int16)


def zeros(seconds: float) -> Pcm:
    return np.zeros(round(RATE_HZ * seconds), np.int16)


class Odd(FakeTts):
    """Sends what it is told to: sound, and seconds to wait. Has no word times."""

    def __init__(self, *made: Pcm | float) -> None:
        super().__init__(has_words=False)
        self.made = made

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        self.asked.append(text)
        for each in self.made:
            if isinstance(each, float):
                await asyncio.sleep(each)
            else:
                yield SpeechChunk(each)


def on_a_leg(*voices: Any, says: Sequence[str] = (TEXT,), **call: Any) -> tuple[SessionResult, FakeLeg]:
    first, *others = voices
    return converse(FakeAgent([*map(Say, says), HangUp()]), tts=first, fallback_tts=others, **call)


def longest_silence_s(leg: FakeLeg) -> float:
    """Of what reached the wire, from the answer on."""
    heard = [leg.started_at] + [at for at, frame in leg.frames if is_audible(frame)]
    return max(after - before for before, after in pairwise(heard))


def said(result: SessionResult) -> str:
    return " ".join(agent_texts(result))


SILENT = {
    "ten seconds at once": [zeros(10)],
    "zeros as they would be spoken": [each for _ in range(500) for each in (zeros(0.02), 0.02)],
    "half a second and done": [zeros(0.5)],
    "dither": [np.tile(np.array([2, -3], np.int16), RATE_HZ * 2)],
}


@pytest.mark.parametrize("made", SILENT.values(), ids=SILENT)
def test_a_voice_that_makes_silence_is_replaced(made: list[Any]) -> None:
    second = FakeTts()
    result, leg = on_a_leg(Odd(*made), second)
    assert second.asked == [TEXT]
    assert [fault.role for fault in result.faults] == ["tts"]
    assert said(result) == TEXT
    assert longest_silence_s(leg) <= 2.1
    assert result.reason is EndReason.AGENT


def test_a_voice_that_falls_silent_is_replaced_at_the_first_unheard_word() -> None:
    second = FakeTts()
    result, leg = on_a_leg(Odd(tone(1.0), zeros(10)), second)
    rest = " ".join(second.asked)
    assert TEXT.endswith(rest)
    assert 3 <= len(rest.split()) <= 7
    assert said(result) == TEXT
    assert longest_silence_s(leg) <= 0.1  # nobody waits for the silence that was made
    assert [fault.message for fault in result.faults] == ["the voice is silent"]


def test_a_voice_that_drips_is_replaced() -> None:
    second = FakeTts()
    result, leg = on_a_leg(Odd(*[each for _ in range(60) for each in (tone(0.1), 0.9)]), second)
    assert second.asked
    assert TEXT.endswith(" ".join(second.asked))
    assert said(result) == TEXT
    assert [fault.message for fault in result.faults] == ["the voice is silent"]
    assert leg.frames[-1][0] - leg.started_at < 8.0


def test_a_silent_voice_is_left_alone_after_a_while() -> None:
    guard, second = Guard("tts", "first"), FakeTts()
    result, _ = on_a_leg(GuardedVoice(Odd(zeros(10)), guard, last=False), second, says=[TEXT] * 5)
    assert guard.health.state is BreakerState.OPEN
    assert guard.health.requests == 3
    assert said(result) == " ".join([TEXT] * 5)


def test_where_every_voice_is_silent_the_caller_hears_the_apology() -> None:
    result, leg = on_a_leg(Odd(zeros(10)), Odd(zeros(10)), settings=SessionSettings(max_failures=0))
    assert result.reason is EndReason.ENGINE_ERROR
    assert any(is_audible(frame) for _, frame in leg.frames)
    assert TEXT not in said(result)


NATURAL = {
    "pauses of a second": [tone(1.2), zeros(1.0), tone(1.2), zeros(1.0), tone(1.0)],
    "a slow beginning": [zeros(0.8), tone(2.0)],
    "a slow server": [each for _ in range(12) for each in (tone(0.3), 0.4)],
    "a long end": [tone(2.0), zeros(1.2)],
}


@pytest.mark.parametrize("made", NATURAL.values(), ids=NATURAL)
def test_pauses_within_speech_are_no_fault(made: list[Any]) -> None:
    second = FakeTts()
    result, _ = on_a_leg(Odd(*made), second)
    assert result.faults == ()
    assert second.asked == []


def test_silence_within_what_is_played_has_its_cause() -> None:
    """It was made at once with the sound after it, so that it could not be known for a stall."""
    result, _ = on_a_leg(Odd(np.concatenate([tone(1.0), zeros(2.5), tone(2.0)])))
    (silence,) = result.silences
    assert silence.cause == "tts_silent"
    assert 2400 <= silence.ms <= 2600


class Endless(FakeTts):
    """Says the words and does not stop; `waits_s` after each second of sound."""

    def __init__(self, waits_s: float = 0.0) -> None:
        super().__init__()
        self.waits_s = waits_s
        self.made_s = 0.0

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        self.asked.append(text)
        while True:
            self.made_s += 1.0
            yield SpeechChunk(tone(1.0))
            await asyncio.sleep(self.waits_s)


@pytest.mark.parametrize("waits_s", [0.0, 1.0])
def test_a_voice_without_end_is_replaced(waits_s: float) -> None:
    """One that makes it faster than it is heard keeps the caller for a second at most."""
    endless, guard, second = Endless(waits_s), Guard("tts", "endless"), FakeTts()
    result, leg = on_a_leg(GuardedVoice(endless, guard, last=False), second)
    assert [fault.message for fault in result.faults] == ["endless does not stop"]
    assert guard.health.errors == 1
    assert said(result) == TEXT
    assert second.asked == ([TEXT] if not waits_s else [])
    assert leg.frames[-1][0] - leg.started_at < longest_s(TEXT) * bool(waits_s) + 5.0
    assert result.reason is EndReason.AGENT


def test_phrases_are_not_prepared_without_end() -> None:
    endless, guard = Endless(), Guard("tts", "endless")
    voices: list[Any] = [GuardedVoice(endless, guard, last=False), FakeTts()]
    phrases = play(lambda: Phrases.prepare(voices, SessionSettings()))
    assert phrases.at(Phrase.GOODBYE, RATE_HZ).samples.size < 5 * RATE_HZ
    assert guard.health.errors == 3
    assert endless.made_s < 150  # of three phrases


def test_phrases_are_not_prepared_as_silence() -> None:
    phrases = play(lambda: Phrases.prepare([Odd(zeros(2)), FakeTts()], SessionSettings()))
    assert is_audible(phrases.at(Phrase.APOLOGY, RATE_HZ).samples)


def test_the_quietest_voice_is_still_one() -> None:
    assert is_audible(np.array([0, -AUDIBLE - 1], np.int16))
    assert not is_audible(np.array([AUDIBLE, -AUDIBLE], np.int16))
    assert not is_audible(np.array([], np.int16))
