"""What a recogniser must do (`pipeline.speech.SpeechToText`).

Run by its author: `pytest --pyargs mediaserver.testing.stt --engine my:Engine --engine-options '{...}'`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mediaserver.testing.fixtures import spoken, test_unknown_options_are_refused  # noqa: F401
from pipeline.audio import Pcm
from pipeline.speech import Expected, Hypothesis, Listening
from pipeline.text.fold import plain_words

pytest_plugins = ("mediaserver.testing.fixtures",)
InEngine = Callable[..., Any]


def _push(listening: Listening, samples: Pcm, rate_hz: int) -> None:
    step = rate_hz // 50
    for start in range(0, len(samples) - step + 1, step):
        listening.push(samples[start : start + step])


def _expected(says: str) -> Expected:
    return Expected(phrases=(says, "no thank you"), kinds=("yes_no",))


def _check(heard: Hypothesis) -> None:
    assert isinstance(heard, Hypothesis)
    assert heard.text == plain_words(heard.text), "text is lower case without punctuation"
    assert 0.0 <= heard.confidence <= 1.0
    for word in heard.words:
        assert word.start_ms <= word.end_ms


@pytest.mark.parametrize("rate_hz", [8000, 16000, 48000])
def test_speech_becomes_words(
    in_engine: InEngine, engine_says: str, engine_language: str, rate_hz: int
) -> None:
    """At the rates of telephone and browser."""

    async def use(engine: Any) -> Hypothesis:
        listening = engine.listen(rate_hz=rate_hz, language=engine_language, expected=_expected(engine_says))
        _push(listening, await spoken(engine_says, engine_language, rate_hz), rate_hz)
        _push(listening, np.zeros(rate_hz // 4, np.int16), rate_hz)
        assert isinstance(listening.partial(), str)
        heard = await listening.result()
        listening.close()
        return heard  # type: ignore[no-any-return]

    heard = in_engine(use)
    _check(heard)
    assert heard.text == plain_words(engine_says)


def test_silence_is_no_answer(in_engine: InEngine, engine_says: str, engine_language: str) -> None:
    """Silence after a question has no words, and is no failure."""

    async def use(engine: Any) -> Hypothesis:
        listening = engine.listen(rate_hz=8000, language=engine_language, expected=_expected(engine_says))
        _push(listening, np.zeros(8000, np.int16), 8000)
        heard = await listening.result()
        listening.close()
        return heard  # type: ignore[no-any-return]

    heard = in_engine(use)
    _check(heard)
    assert heard.text == ""


def test_a_result_may_be_asked_for_again_after_more_sound(
    in_engine: InEngine, engine_says: str, engine_language: str
) -> None:
    """A pause was not the end of the turn."""

    async def use(engine: Any) -> tuple[Hypothesis, Hypothesis]:
        listening = engine.listen(rate_hz=8000, language=engine_language, expected=_expected(engine_says))
        sound = await spoken(engine_says, engine_language, 8000)
        _push(listening, sound[: len(sound) // 3], 8000)
        first = await listening.result()
        _push(listening, sound[len(sound) // 3 :], 8000)
        _push(listening, np.zeros(2000, np.int16), 8000)
        second = await listening.result()
        listening.close()
        return first, second

    first, second = in_engine(use)
    _check(first)
    _check(second)
    assert second.text, "the whole utterance is heard, not only what came after the first result"


def test_a_result_may_be_cancelled_and_asked_for_again(
    in_engine: InEngine, engine_says: str, engine_language: str
) -> None:
    """The caller goes on speaking while the words are asked for."""

    async def use(engine: Any) -> Hypothesis:
        listening = engine.listen(rate_hz=8000, language=engine_language, expected=_expected(engine_says))
        _push(listening, await spoken(engine_says, engine_language, 8000), 8000)
        asking = asyncio.create_task(listening.result())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        _push(listening, np.zeros(2000, np.int16), 8000)
        heard = await listening.result()
        listening.close()
        return heard  # type: ignore[no-any-return]

    assert in_engine(use).text == plain_words(engine_says)


def test_utterances_of_two_calls_do_not_mix(
    in_engine: InEngine, engine_says: str, engine_language: str
) -> None:
    """One engine hears all calls of the process."""

    async def use(engine: Any) -> list[Hypothesis]:
        sound = await spoken(engine_says, engine_language, 8000)
        both = [
            engine.listen(rate_hz=8000, language=engine_language, expected=_expected(engine_says))
            for _ in range(2)
        ]
        for start in range(0, len(sound) - 159, 160):
            both[0].push(sound[start : start + 160])
            both[1].push(np.zeros(160, np.int16))
        _push(both[0], np.zeros(2000, np.int16), 8000)
        heard = await asyncio.gather(*(each.result() for each in both))
        for each in both:
            each.close()
        return list(heard)

    speech, silence = in_engine(use)
    assert (speech.text, silence.text) == (plain_words(engine_says), "")


def test_a_closed_utterance_takes_what_still_comes(in_engine: InEngine, engine_language: str) -> None:
    """`close` may be called twice, and a frame may be on its way."""

    async def use(engine: Any) -> None:
        listening = engine.listen(rate_hz=8000, language=engine_language, expected=None)
        _push(listening, np.zeros(1600, np.int16), 8000)
        listening.close()
        listening.push(np.zeros(160, np.int16))
        assert isinstance(listening.partial(), str)
        listening.close()

    in_engine(use)
