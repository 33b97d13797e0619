"""Base class of engines whose voice runs in a helper process: sends text in pieces, gets chunks with word
times."""

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
    """A part of a text. `written`: its words for the transcript; `request`: the request to the process;
    `spoken`: the engine's text for `written`, with the same number of words; "": the same text."""

    written: str
    request: Mapping[str, Any]
    spoken: str = ""


class ProcessVoice(ABC):
    """A voice in a helper process (`pipeline.speech.TextToSpeech`); voices of equal programs share the
    process."""

    def __init__(self, program: VoiceProgram) -> None:
        self._program = program
        self._process: VoiceProcess | None = None

    async def start(self) -> None:
        """Starts or shares the process, and tries the voice. Raises `EngineMissing`."""
        if self._process is not None:
            return
        self._process = await VoiceProcess.acquire(self._program)
        async with AsyncExitStack() as failed:
            # Closes also after a cancellation, since only this object knows the process.
            failed.push_async_callback(self.close)
            try:
                async for _ in self.speak("One.", language=self._trial_language):
                    pass
            except EngineError as error:
                raise EngineMissing(f"does not speak: {error}") from error
            failed.pop_all()

    def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises piece by piece; requests the next piece once the last chunk of a piece was taken.
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
        """The id of the helper process, None while it does not run."""
        return self._process.pid if self._process is not None else None

    @property
    @abstractmethod
    def rate_hz(self) -> int:
        """The sample rate of every chunk, in Hz."""

    @property
    def _trial_language(self) -> str:
        """The language of the trial request in `start`."""
        return "en"

    @abstractmethod
    def _pieces(self, text: str, language: str) -> Iterator[Piece]:
        """Splits `text` into pieces. Raises `EngineRefused`."""


async def _chunks(
    process: VoiceProcess, request: Mapping[str, Any], cutter: SpeechCutter
) -> AsyncGenerator[SpeechChunk, None]:
    """Synthesises `request` in `process`, in chunks that `cutter` ends at words. Raises as
    `VoiceProcess.speak`."""
    async with aclosing(process.speak(request)) as payloads:
        async for raw, events in payloads:
            chunk = cutter.push(np.frombuffer(raw, "<i2").astype(np.int16, copy=False), events)
            if chunk is not None:
                yield chunk
    rest = cutter.finish()
    if rest is not None:
        yield rest
