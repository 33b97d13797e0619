"""Text-to-speech and speech-to-text of the API: limits, engines, and transcription jobs that are done
once."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass

from mediaserver.admission.rate_limits import Places
from mediaserver.engine_pool.choice import EngineChoice
from mediaserver.engine_pool.pool import Engines
from mediaserver.errors import Conflict, InvalidRequest, SpeechFailed, Unavailable
from mediaserver.settings.server import SpeechSettings
from mediaserver.speech.decoder import Limits, Reader
from mediaserver.speech.decoder_process import BACKGROUND, RATE_HZ
from mediaserver.speech.encoders import FORMATS
from mediaserver.speech.synthesise import spoken
from mediaserver.speech.transcribe import Transcription, transcribed
from mediaserver.store.store import Store
from mediaserver.store.transcriptions import FinishedJob
from pipeline.errors import EngineMissing

log = logging.getLogger(__name__)

MIN_AUDIO_MS = 10.0
CHUNK_MS = (10, 10_000)
"""The least and the greatest `chunk_size`."""

ENCODERS = 2
"""Threads that compress: FFmpeg releases the interpreter's lock, so two threads use two cores and leave the
loop alone."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whoever asks for speech: a company, or a client address without a key."""

    name: str
    has_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRequest:
    """A text to synthesise. `language` "": the server's; `chunk_ms`: audio per piece."""

    text: str
    format: str
    chunk_ms: int
    language: str = ""


@dataclass(frozen=True, slots=True)
class SpokenFile:
    """A file that is being synthesised; `pieces` yields its octets."""

    content_type: str
    rate_hz: int
    pieces: AsyncGenerator[bytes, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file to transcribe: an open descriptor, which stays the caller's, and its SHA-256."""

    file: int
    sha256: str


class SpeechService:
    """Text-to-speech and speech-to-text of one node. `voices` and `recognizers` are used in order, the next
    when one fails. `store` returns the store once it is open."""

    def __init__(
        self,
        settings: SpeechSettings,
        *,
        engines: Engines,
        voices: Sequence[EngineChoice],
        recognizers: Sequence[EngineChoice],
        store: Callable[[], Store],
    ) -> None:
        self.settings = settings
        self._engines = engines
        self._voices = voices
        self._recognizers = recognizers
        self._store = store
        self._reader = Reader()
        self._encoders = ThreadPoolExecutor(
            ENCODERS, thread_name_prefix="speech encoder", initializer=_step_back
        )
        self._places = {True: Places(settings.at_once), False: Places(settings.keyless_at_once)}
        self._jobs: dict[tuple[str, str], tuple[str, asyncio.Task[Transcription]]] = {}

    async def start(self) -> None:
        """Starts the process that reads audio files; one that does not start is tried again with the first
        file."""
        try:
            await self._reader.start()
        except SpeechFailed as error:
            log.error("reader of audio files missing", extra={"reason": str(error)})

    async def close(self) -> None:
        """Cancels the jobs in progress and ends the process and threads."""
        tasks = [task for _, task in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._reader.close()
        await asyncio.to_thread(self._encoders.shutdown)

    # Text to speech -----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def speak(self, speaker: Speaker, request: SpeechRequest) -> AsyncIterator[SpokenFile]:
        """Synthesises a file; synthesis ends with the block.

        Raises `InvalidRequest`, `TooMany`, `Unavailable`; iterating over the pieces raises `InvalidRequest`
        (before the first) and `SpeechFailed`."""
        form = FORMATS.get(request.format)
        if form is None:
            raise InvalidRequest(f"format must be one of {', '.join(FORMATS)}")
        if not CHUNK_MS[0] <= request.chunk_ms <= CHUNK_MS[1]:
            raise InvalidRequest(f"chunk_size must be {CHUNK_MS[0]} to {CHUNK_MS[1]} milliseconds of audio")
        self._check_text(speaker, request.text)
        with _available():
            voices = self._engines.voices(self._voices)
        with self._places[speaker.has_key].taken(speaker.name):
            pieces = spoken(
                voices,
                request.text,
                language=request.language or self.settings.language,
                form=form,
                chunk_ms=request.chunk_ms,
                threads=self._encoders,
            )
            async with aclosing(pieces):
                yield SpokenFile(form.content_type, form.sent_hz(voices[0].rate_hz), pieces)

    def _check_text(self, speaker: Speaker, text: str) -> None:
        if not text.strip():
            raise InvalidRequest("text must not be empty")
        settings = self.settings
        most = settings.text_characters if speaker.has_key else settings.keyless_text_characters
        if len(text) > most:
            more = "" if speaker.has_key else " without an API key"
            raise InvalidRequest(f"text must have at most {most} characters{more}")

    # Speech to text -----------------------------------------------------------------------------------------

    async def transcribe(
        self, company_id: str, upload: Upload, *, job_id: str = "", language: str = ""
    ) -> Transcription:
        """Transcribes the upload. With a `job_id` the same file is transcribed once in a day, also when it is
        sent again meanwhile, or to another node afterwards.

        Raises `InvalidRequest`, `TooLarge`, `TooMany`, `Conflict` (a job of that id had another file),
        `Unavailable`, `SpeechFailed`."""
        with self._places[True].taken(company_id):
            if not job_id:
                return await self._understood(upload.file, language)
            done = await self._store().transcription(company_id, job_id)
            if done is not None:
                _check_same(done.file_sha256, upload.sha256)
                return Transcription(done.transcription, done.confidence)
            return await self._joined(company_id, upload, job_id=job_id, language=language)

    async def _joined(self, company_id: str, upload: Upload, *, job_id: str, language: str) -> Transcription:
        """Returns the outcome of the job, which goes on when the client that began it disconnects."""
        key = (company_id, job_id)
        if key in self._jobs:
            sha256, task = self._jobs[key]
            _check_same(sha256, upload.sha256)
        else:
            copy = os.dup(upload.file)
            work = self._finished(company_id, Upload(file=copy, sha256=upload.sha256), job_id, language)
            task = asyncio.create_task(work, name="transcription")
            self._jobs[key] = (upload.sha256, task)
            task.add_done_callback(lambda done: self._job_over(key, copy, done))
        return await asyncio.shield(task)

    async def _finished(self, company_id: str, upload: Upload, job_id: str, language: str) -> Transcription:
        outcome = await self._understood(upload.file, language)
        job = FinishedJob(upload.sha256, outcome.text, outcome.confidence)
        await self._store().keep_transcription(company_id, job_id, job)
        return outcome

    def _job_over(self, key: tuple[str, str], copy: int, task: asyncio.Task[Transcription]) -> None:
        os.close(copy)
        del self._jobs[key]
        if not task.cancelled():
            task.exception()  # every waiting client gets the exception; there may be none

    async def _understood(self, file: int, language: str) -> Transcription:
        with _available():
            recognizers = self._engines.recognizers(self._recognizers)
        audio = await self._reader.read(file, Limits.for_audio(self.settings.audio_s))
        if audio.duration_ms < MIN_AUDIO_MS:
            raise InvalidRequest(f"Audio must be at least {MIN_AUDIO_MS:g} milliseconds long")
        return await transcribed(
            recognizers, audio.samples, rate_hz=RATE_HZ, language=language or self.settings.language
        )


@contextmanager
def _available() -> Iterator[None]:
    try:
        yield
    except EngineMissing as missing:
        raise Unavailable("Speech is not available on this server", retry_after_s=10) from missing


def _step_back() -> None:
    """Lowers the priority of this thread, so that calls come before files: on Linux each thread has a
    priority of its own."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND)


def _check_same(sha256: str, other: str) -> None:
    if sha256 != other:
        raise Conflict(
            "This job_id was used with another file in the last 24 hours: send that file again, or this one "
            "with another job_id"
        )
