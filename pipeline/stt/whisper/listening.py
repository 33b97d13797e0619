"""The recognition of one utterance by a Whisper model: a growing buffer, decoded as a whole on request; the
beginning of a long utterance is decoded once, while the caller speaks on."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from pipeline.audio import Pcm
from pipeline.engines.aio import is_cancelled
from pipeline.errors import EngineBusy, EngineError
from pipeline.speech import Expected, Hypothesis
from pipeline.stt.whisper.batching import Agreement
from pipeline.stt.whisper.pieces import joined, quietest

PIECE_S: Final = 16
"""Longest audio of a decode: half of Whisper's window, with no more words than `max_new_tokens` holds, also
in Arabic. A longer utterance is cut at its quietest place after `EARLIEST_S`."""

EARLIEST_S: Final = 8

LOOK_MS: Final = 100
"""Time after which a decode for which there was no thread is tried again."""


class Decoding(Protocol):
    """The methods of the engine that an utterance uses."""

    def submit(
        self, samples: Pcm, rate_hz: int, language: str, expected: Expected | None
    ) -> Future[Hypothesis]:
        """Queues one decode of int16 samples at `rate_hz`. Raises `EngineError` when the engine is not
        started, `EngineBusy` when all threads are late."""

    def submit_spare(self, samples: Pcm, rate_hz: int, language: str) -> Future[Hypothesis]:
        """Queues one interim decode. Raises `EngineError` when the engine is not started."""

    def spare_pause_s(self) -> float | None:
        """Seconds after an utterance's last interim decode at which the next may follow; None: not now."""


@dataclass(frozen=True, slots=True)
class UtteranceFormat:
    """The line of an utterance: its sample rate, its language and the answers expected."""

    rate_hz: int
    language: str
    expected: Expected | None


@dataclass(frozen=True, slots=True)
class _Head:
    """The beginning of a long utterance: its decode, and the words that interim decodes agreed on."""

    job: Future[Hypothesis]
    agreed: tuple[str, ...]

    @property
    def words(self) -> list[str] | None:
        """The decoded words, None until the decode has succeeded."""
        if not self.job.done() or self.job.cancelled() or self.job.exception() is not None:
            return None
        return self.job.result().text.split()


class WhisperListening:
    """One utterance (`pipeline.speech.Listening`): a growing buffer at the line's rate, decoded as a whole on
    request. `partial_every`: samples between two interim decodes; 0: none."""

    __slots__ = (
        "_agreement",
        "_closed",
        "_cut_due",
        "_due",
        "_engine",
        "_every",
        "_format",
        "_heads",
        "_listened_at",
        "_one",
        "_orphan",
        "_partial",
        "_pcm",
        "_pushed",
    )  # fmt: skip

    def __init__(self, engine: Decoding, format_: UtteranceFormat, *, partial_every: int) -> None:
        self._engine = engine
        self._format = format_
        self._pcm = bytearray()
        self._pushed = 0
        self._every = partial_every
        self._due = 2 * partial_every  # earlier than this no word is over
        self._cut_due = 0
        self._listened_at = 0
        self._partial: Future[Hypothesis] | None = None
        self._agreement = Agreement()
        self._heads: list[_Head] = []
        self._one = asyncio.Lock()
        self._orphan: asyncio.Future[Hypothesis] | None = None
        self._closed = False

    def push(self, samples: Pcm) -> None:
        """Copies the samples (int16 at the line's rate) into the buffer, and starts a partial decode when one
        is due."""
        self._pcm += samples.tobytes()
        self._pushed += len(samples)
        if self._pushed >= self._cut_due and not self._closed:
            self._cut()
        if self._every and self._pushed >= self._due:
            self._listen_in()

    def partial(self) -> str:
        """The words on which two interim decodes in a row agreed; "" before the second."""
        words: list[str] = []
        for head in self._heads:
            known = head.words
            if known is None:
                return " ".join([*words, *head.agreed])
            words += known
        return " ".join([*words, *self._agreement.stable])

    @property
    def _is_long(self) -> bool:
        return len(self._pcm) > 2 * PIECE_S * self._format.rate_hz

    def _cut(self) -> None:
        """Cuts off and decodes beginnings until the rest is short enough or there is no thread."""
        try:
            while self._is_long:
                self._behead()
        except EngineBusy:  # the audio is kept, and the cut is tried again
            self._cut_due = self._pushed + self._format.rate_hz * LOOK_MS // 1000

    def _behead(self) -> None:
        """Cuts off and decodes the beginning. Raises `EngineBusy`, before the cut."""
        samples = np.frombuffer(bytes(self._pcm), np.int16)
        cut = quietest(samples, self._format.rate_hz, earliest_s=EARLIEST_S, latest_s=PIECE_S)
        try:
            job = self._decode(samples[:cut])
        except EngineBusy:
            raise
        except (EngineError, RuntimeError):  # the engine is closing: no result comes of it either
            job = Future()
            job.set_exception(EngineError("faster-whisper was closed", retryable=False))
        self._heads.append(_Head(job, self._agreement.stable))
        self._agreement = Agreement()
        del self._pcm[: 2 * cut]

    def _listen_in(self) -> None:
        """Starts an interim decode, unless one is under way or results wait for a thread."""
        self._due = self._pushed + self._format.rate_hz * LOOK_MS // 1000
        if self._closed or (self._partial is not None and not self._partial.done()):
            return
        pause_s = self._engine.spare_pause_s()
        if pause_s is None or self._pushed - self._listened_at < pause_s * self._format.rate_hz:
            return
        self._due, self._listened_at = self._pushed + self._every, self._pushed
        samples = np.frombuffer(bytes(self._pcm), np.int16)
        try:
            self._partial = self._engine.submit_spare(samples, self._format.rate_hz, self._format.language)
        except (EngineError, RuntimeError):  # the engine is closing
            return
        self._partial.add_done_callback(functools.partial(_overheard, self._agreement))

    async def result(self) -> Hypothesis:
        """Decodes all audio so far. Calls of this method wait for each other: one decode of an utterance runs
        at a time, and a cancelled one goes on, since a thread cannot be stopped. Raises `EngineError`."""
        async with self._one:
            if self._orphan is not None and not self._orphan.done():
                await asyncio.wait({self._orphan})
            if self._closed:
                raise EngineError("this utterance was closed", retryable=False)
            while self._is_long:
                self._behead()
            before = [await self._decoded(head.job) for head in self._heads]
            samples = np.frombuffer(bytes(self._pcm), np.int16)
            job = self._decode(samples)
            future = asyncio.wrap_future(job)
            try:
                return joined([*before, await asyncio.shield(future)])
            except asyncio.CancelledError:
                if job.cancelled() and not is_cancelled():  # by `FasterWhisper.close`, while queued
                    raise EngineError("faster-whisper was closed", retryable=False) from None
                future.add_done_callback(_forget)
                job.cancel()
                self._orphan = future
                raise

    def _decode(self, samples: Pcm) -> Future[Hypothesis]:
        format_ = self._format
        return self._engine.submit(samples, format_.rate_hz, format_.language, format_.expected)

    async def _decoded(self, job: Future[Hypothesis]) -> Hypothesis:
        future = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if job.cancelled() and not is_cancelled():
                raise EngineError("this utterance was closed", retryable=False) from None
            future.add_done_callback(_forget)
            raise

    def close(self) -> None:
        """Frees the audio; a decode under way is dropped when it ends."""
        self._closed = True
        self._pcm = bytearray()
        for job in (self._partial, *(head.job for head in self._heads)):
            if job is not None:
                job.cancel()


def _overheard(agreement: Agreement, decode: Future[Hypothesis]) -> None:
    """Adds an interim decode to `agreement`; runs in the decoding thread. An empty text changes nothing."""
    if not decode.cancelled() and decode.exception() is None and decode.result().text:
        agreement.add(decode.result().text.split())


def _forget(future: asyncio.Future[Hypothesis]) -> None:
    """Retrieves the exception of a decode without a waiter, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()
