"""What a voice must do (`pipeline.speech.TextToSpeech`).

Run by its author: `pytest --pyargs mediaserver.testing.tts --engine my:Voice --engine-options '{...}'`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pipeline.audio.levels import is_audible
from pipeline.engines.guard import longest_s
from pipeline.speech import SpeechChunk

pytest_plugins = ("mediaserver.testing.fixtures",)
InEngine = Callable[..., Any]
TEXT = "One two three four five."


async def _said(engine: Any, text: str, language: str) -> list[SpeechChunk]:
    return [chunk async for chunk in engine.speak(text, language=language)]


def test_unknown_options_are_refused(
    make_engine: Callable[..., Any], engine_options: Mapping[str, Any]
) -> None:
    """A misspelt key must not pass in silence: `from_settings` raises ValueError (`SettingsRefused`)."""
    with pytest.raises(ValueError, match="no_such_option"):
        make_engine({**engine_options, "no_such_option": 1})


def test_a_text_becomes_audible_chunks(in_engine: InEngine, engine_language: str) -> None:
    """int16 mono at `rate_hz`, no longer than the text can take."""

    async def use(engine: Any) -> None:
        assert 8000 <= engine.rate_hz <= 48000
        chunks = await _said(engine, TEXT, engine_language)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        assert {(chunk.samples.dtype, chunk.samples.ndim) for chunk in chunks} == {(np.dtype(np.int16), 1)}
        assert is_audible(samples)
        assert len(samples) / engine.rate_hz < longest_s(TEXT)
        place = 0
        for word in (word for chunk in chunks for word in chunk.words):
            assert place <= word.start <= word.end <= len(samples), "words come in order, within the sound"
            place = word.start

    in_engine(use)


def test_a_voice_that_was_interrupted_speaks_again(in_engine: InEngine, engine_language: str) -> None:
    """The caller barges in: the iterator is closed after its first chunk."""

    async def use(engine: Any) -> None:
        stream = engine.speak(TEXT * 5, language=engine_language)
        async for chunk in stream:
            assert len(chunk.samples)
            break
        await stream.aclose()
        assert await _said(engine, TEXT, engine_language)

    in_engine(use)


def test_two_calls_speak_at_once(in_engine: InEngine, engine_language: str) -> None:
    """One voice speaks for all calls of the process."""

    async def use(engine: Any) -> None:
        texts = ("One.", "One two three four five six seven.")
        short, long = await asyncio.gather(*(_said(engine, text, engine_language) for text in texts))
        assert sum(len(chunk.samples) for chunk in short) < sum(len(chunk.samples) for chunk in long)

    in_engine(use)
