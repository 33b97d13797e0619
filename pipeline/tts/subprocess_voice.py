"""A voice in a process of its own, as an engine: text goes there in pieces, whole words with their times
come back."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.errors import EngineError, EngineMissing, LocalError
from pipeline.speech import SpeechChunk
from pipeline.tts.espeak_text import SpeechCutter
from pipeline.tts.subprocess_client import VoiceProcess, VoiceProgram


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text: `request` asks the process for it. `spoken`: what it is given for `written`, word
    for word; empty where that is the same."""

    written: str
    request: Mapping[str, Any]
    spoken: str = ""


class ProcessVoice(ABC):
    """A voice. Voices of equal programs share the process."""

    def __init__(self, program: VoiceProgram) -> None:
        self._program = program
        self._process: VoiceProcess | None = None

    async def start(self) -> None:
        """Starts or shares the process, and tries the voice. Raises `EngineMissing`."""
        if self._process is not None:
            return
        self._process = await VoiceProcess.acquire(self._program)
        async with AsyncExitStack() as failed:
            # Also where whoever waited has given up: nobody else knows of the process.
            failed.push_async_callback(self.close)
            try:
                async for _ in self.speak("One.", language=self._trial_language):
                    pass
            except EngineError as error:
                raise EngineMissing(f"does not speak: {error}") from error
            failed.pop_all()

    def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises piece by piece: the next is asked for when the last chunk of this one was taken.
        Raises `EngineError`: retryable when the process died, `EngineRefused` for a language that the voice
        does not speak."""
        return self.speak_ahead(text, language=language, ahead_s=0.0)

    async def speak_ahead(
        self, text: str, *, language: str, ahead_s: float
    ) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises like `speak`, for a listener who still has `ahead_s` seconds of audio queued
        (`pipeline.speech.SharedVoice`)."""
        if self._process is None:
            raise LocalError(f"{self._program.name} speaks after start() only")
        offset, heard_at = 0, time.monotonic() + ahead_s
        for piece in self._pieces(text, language):
            cutter = SpeechCutter(piece.written, offset=offset, spoken=piece.spoken)
            request = {**piece.request, "due": heard_at + offset / self._process.rate_hz}
            async with aclosing(_chunks(self._process, request, cutter)) as chunks:
                async for chunk in chunks:
                    offset += len(chunk.samples)
                    yield chunk

    async def close(self) -> None:
        """Releases the process, which ends with its last voice."""
        process, self._process = self._process, None
        if process is not None:
            await process.release()

    @property
    def pid(self) -> int | None:
        """Of its process, while that runs."""
        return self._process.pid if self._process is not None else None

    @property
    @abstractmethod
    def rate_hz(self) -> int:
        """The rate of every chunk."""

    @property
    def _trial_language(self) -> str:
        """What the voice is tried in when it starts."""
        return "en"

    @abstractmethod
    def _pieces(self, text: str, language: str) -> Iterator[Piece]:
        """`text` in pieces. Raises `EngineRefused`."""


async def _chunks(
    process: VoiceProcess, request: Mapping[str, Any], cutter: SpeechCutter
) -> AsyncGenerator[SpeechChunk, None]:
    """What `process` makes of `request`, cut at the words by `cutter`. Raises what `VoiceProcess.speak`
    does."""
    async with aclosing(process.speak(request)) as payloads:
        async for raw, events in payloads:
            chunk = cutter.push(np.frombuffer(raw, "<i2").astype(np.int16, copy=False), events)
            if chunk is not None:
                yield chunk
    rest = cutter.finish()
    if rest is not None:
        yield rest
