"""What a voice must do (`pipeline.speech.TextToSpeech`).

Run by its author: `pytest --pyargs mediaserver.testing.tts --engine my:Voice --engine-options '{...}'`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np

from mediaserver.testing.fixtures import test_unknown_options_are_refused  # noqa: F401
from pipeline.audio.levels import is_audible
from pipeline.engines.aio import closing
from pipeline.engines.guard import longest_s
from pipeline.speech import SpeechChunk, VoicePerCall, incremental

pytest_plugins = ("mediaserver.testing.fixtures",)
InEngine = Callable[..., Any]
TEXT = "One two three four five."


async def _said(engine: Any, text: str, language: str) -> list[SpeechChunk]:
    return [chunk async for chunk in engine.speak(text, language=language)]


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


def test_an_answer_in_pieces_is_spoken_while_it_is_written(in_engine: InEngine, engine_language: str) -> None:
    """Of voices with `speak_pieces`: the first piece is heard before the last is written."""

    async def use(engine: Any) -> None:
        own = (
            engine.for_call("call", language=engine_language) if isinstance(engine, VoicePerCall) else engine
        )
        voice, heard = incremental(own), asyncio.Event()
        if voice is None:
            return

        async def pieces() -> AsyncIterator[str]:
            yield TEXT
            await asyncio.wait_for(heard.wait(), 10)
            yield "Then six seven."

        chunks = []
        async with closing(voice.speak_pieces(pieces(), language=engine_language)) as made:
            async for chunk in made:
                chunks.append(chunk)
                if is_audible(chunk.samples):
                    heard.set()
        if own is not engine:
            await own.close()
        whole = np.concatenate([chunk.samples for chunk in chunks])
        assert len(whole) / engine.rate_hz < longest_s(TEXT * 2)
        place = 0
        for word in (word for chunk in chunks for word in chunk.words):
            assert place <= word.start <= word.end <= len(whole), "times count from the answer's first sample"
            place = word.start

    in_engine(use)
