"""Synthesises a text as a stream of a file: audio is encoded and sent while the rest is still text."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Final

import numpy as np

from mediaserver.errors import InvalidRequest, SpeechFailed
from mediaserver.speech.encoders import Format
from pipeline.audio import Pcm, silence
from pipeline.audio.levels import Audibility
from pipeline.audio.resample import Resampler
from pipeline.engines.aio import closing, refuse
from pipeline.engines.guard import GuardedVoice
from pipeline.errors import EngineCircuitOpen, EngineError, EngineMissing, EngineSilent, passes
from pipeline.speech import SpeechChunk

log = logging.getLogger(__name__)

SILENT_S: Final = 3.0
"""By how many seconds silence may outgrow sound: twice the limit of a call, since nobody waits on a line and
a paragraph may end in a long pause."""


async def spoken(
    voices: Sequence[GuardedVoice],
    text: str,
    *,
    language: str,
    form: Format,
    chunk_ms: int,
    threads: Executor,
) -> AsyncGenerator[bytes, None]:
    """Yields the file of `text`; each piece after the first is of `chunk_ms` of audio, or what the codec
    makes of it. The first usable one of `voices` speaks. Raises `InvalidRequest` (a language that the voice
    does not speak) and `SpeechFailed`, both normally before the first piece."""
    loop = asyncio.get_running_loop()
    rate_hz = voices[0].rate_hz
    encoder = await loop.run_in_executor(threads, form.make, rate_hz)
    samples = max(1, rate_hz * chunk_ms // 1000)
    async with aclosing(_pieces(voices, text, language=language, samples=samples)) as pieces:
        async for piece in pieces:
            encoded = await loop.run_in_executor(threads, encoder.encode, piece)
            if encoded:
                yield encoded
    rest = await loop.run_in_executor(threads, encoder.finish)
    if rest:
        yield rest


async def _pieces(
    voices: Sequence[GuardedVoice], text: str, *, language: str, samples: int
) -> AsyncGenerator[Pcm, None]:
    """Yields the speech in arrays of `samples`, the last one shorter. Text without letters that has no sound
    (an emoji) yields a frame of silence, which every format can hold."""
    held: list[Pcm] = []
    count, said = 0, 0
    async with aclosing(_chunks(voices, text, language)) as chunks:
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
        yield silence(voices[0].rate_hz)


async def _chunks(
    voices: Sequence[GuardedVoice], text: str, language: str
) -> AsyncGenerator[SpeechChunk, None]:
    """Yields the speech of the first voice that can speak the text. After its first sound no other voice is
    tried: a file has one voice. Yields nothing where every voice is sound and none makes a sound."""
    failures: list[EngineError] = []
    for voice in _attempts(voices, failures):
        begun = False
        try:
            async with aclosing(_sound(voice, text, language, voices[0].rate_hz)) as chunks:
                async for chunk in chunks:
                    begun = True
                    yield chunk
            return
        except EngineError as error:
            if begun:
                raise SpeechFailed("Speech synthesis failed") from error
            failures.append(error)
            log.warning("voice of files failed", extra={"engine": voice.name, "reason": str(error)})
    raise _refusal(failures)


async def _sound(
    voice: GuardedVoice, text: str, language: str, rate_hz: int
) -> AsyncGenerator[SpeechChunk, None]:
    """What one voice says, at `rate_hz`, from where it can be heard. What has no letters may have no sound,
    and that is no fault of the voice: its guard does not hear of it."""
    has_words = any(letter.isalnum() for letter in text)
    resampler = Resampler(voice.rate_hz, rate_hz) if voice.rate_hz != rate_hz else None
    sound, kept = Audibility(rate_hz), list[Pcm]()
    made = (voice.speak if has_words else voice.unguarded)(text, language=language)
    async with closing(made) as speech:
        async for chunk in speech:
            kept.append(chunk.samples if resampler is None else resampler(chunk.samples))
            sound.add(kept[-1])
            if sound.heard or not has_words:
                for samples in kept:
                    yield SpeechChunk(samples)
                kept.clear()
            if has_words and sound.silence_s > SILENT_S:
                await refuse(speech, EngineSilent())
    if has_words and not sound.heard:
        raise EngineError("the voice said nothing", retryable=not kept)
    if resampler is not None and sound.heard:
        yield SpeechChunk(resampler(silence(voice.rate_hz)))  # the samples held back


def _attempts(voices: Sequence[GuardedVoice], failures: Sequence[EngineError]) -> Iterator[GuardedVoice]:
    """Each voice, once more where its failure may pass and has cost no wait."""
    for voice in voices:
        before = len(failures)
        yield voice
        if len(failures) > before and passes(failures[-1]):
            yield voice


def _refusal(failures: Sequence[EngineError]) -> SpeechFailed | InvalidRequest:
    """What the client is told when no voice could say it: whose fault it is."""
    for error in failures:
        if error.retryable or isinstance(error, EngineCircuitOpen | EngineSilent):
            return SpeechFailed("Speech synthesis failed")
    if isinstance(failures[0], EngineMissing):
        return InvalidRequest(f"This voice cannot say it: {failures[0]}")
    return InvalidRequest("The voice cannot say this text in this language")
