"""Text to a stream of a file: what is spoken is encoded and sent while the rest is still text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from contextlib import aclosing
from typing import cast

import numpy as np

from mediaserver.errors import SpeechFailed
from mediaserver.refusals import InvalidRequest
from mediaserver.speech.formats import Format
from pipeline.audio import Pcm, silence
from pipeline.errors import EngineError, EngineMissing
from pipeline.speech import SpeechChunk, TextToSpeech


async def spoken(
    voice: TextToSpeech, text: str, *, language: str, form: Format, chunk_ms: int, threads: Executor
) -> AsyncGenerator[bytes, None]:
    """The file of `text`, piece by piece; each piece after the first is of `chunk_ms` of audio or what the
    codec makes of it. Raises `InvalidRequest` (a language that the voice has not) and `SpeechFailed`; both
    normally before the first piece."""
    loop = asyncio.get_running_loop()
    encoder = await loop.run_in_executor(threads, form.make, voice.rate_hz)
    samples = max(1, voice.rate_hz * chunk_ms // 1000)
    async with aclosing(_pieces(voice, text, language=language, samples=samples)) as pieces:
        async for piece in pieces:
            encoded = await loop.run_in_executor(threads, encoder.encode, piece)
            if encoded:
                yield encoded
    rest = await loop.run_in_executor(threads, encoder.finish)
    if rest:
        yield rest


async def _pieces(
    voice: TextToSpeech, text: str, *, language: str, samples: int
) -> AsyncGenerator[Pcm, None]:
    """What the voice says in arrays of `samples`, the last one shorter. Text without a sound (an emoji) is a
    frame of silence, which every format can hold."""
    held: list[Pcm] = []
    count, said = 0, 0
    async with aclosing(_chunks(voice, text, language)) as chunks:
        async for chunk in chunks:
            held.append(chunk.samples)
            count += len(chunk.samples)
            said += len(chunk.samples)
            if count >= samples:
                whole = np.concatenate(held)
                cut = count - count % samples
                for start in range(0, cut, samples):
                    yield whole[start : start + samples]
                held, count = [whole[cut:]], count - cut
    if count:
        yield np.concatenate(held)
    elif not said:
        yield silence(voice.rate_hz)


async def _chunks(voice: TextToSpeech, text: str, language: str) -> AsyncGenerator[SpeechChunk, None]:
    speech = cast("AsyncGenerator[SpeechChunk, None]", voice.speak(text, language=language))
    try:
        async with aclosing(speech):
            async for chunk in speech:
                yield chunk
    except EngineMissing as error:
        raise InvalidRequest(f"This voice cannot say it: {error}") from error
    except EngineError as error:
        if not error.retryable:
            raise InvalidRequest("The voice cannot say this text in this language") from error
        raise SpeechFailed("Speech synthesis failed") from error
