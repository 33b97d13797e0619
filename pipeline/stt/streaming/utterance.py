"""One utterance on a call's socket: its audio, and the words that came back."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from pipeline.audio import Pcm
from pipeline.audio.resample import Resampler
from pipeline.errors import EngineError, EngineTimeout
from pipeline.speech import LONGEST_TEXT, HeardWord, Hypothesis
from pipeline.stt.streaming.service import Read, ServiceSettings
from pipeline.text.fold import plain_words

LONGEST_S: Final = 60
"""Audio kept for another try, the last of the utterance."""

_TAIL_MS: Final = 10  # zeros that push the last samples out of the resampler


class Line(Protocol):
    """The socket of a call, as an utterance uses it."""

    def wake(self) -> None:
        """Notes that there is more to be sent."""

    def leave(self, utterance: StreamingListening) -> None:
        """Takes no more notice of an utterance."""


class StreamingListening:
    """One utterance (`pipeline.speech.Listening`). `result` asks the service for the words of all audio so
    far, and may be cancelled and asked again."""

    def __init__(self, line: Line, service: ServiceSettings, *, rate_hz: int) -> None:
        self._line = line
        self._service = service
        self._rate_hz = rate_hz
        self._pcm = bytearray()
        self._dropped = 0  # bytes before `_pcm`
        self._sent = 0  # bytes
        self._chunk = 2 * rate_hz * service.chunk_ms // 1000
        self._changed = asyncio.Event()
        self._failure: EngineError | None = None
        self.closed = False
        self._resample: Resampler | None = None
        self._wanted = -1  # bytes whose words are asked for
        self._known = -1  # bytes whose words are complete
        self._begin_ms = 0
        self.restart(0)

    def restart(self, begin_ms: int) -> None:
        """Begins again on another socket, from the first sample that is kept; `begin_ms`: audio that the
        socket has had before."""
        self._sent = self._dropped
        self._begin_ms = begin_ms
        same = self._rate_hz == self._service.rate_hz
        self._resample = None if same else Resampler(self._rate_hz, self._service.rate_hz)
        self._final: list[str] = []
        self._words: list[HeardWord] = []
        self._ratings: list[tuple[float, int]] = []
        self._partial = ""
        self.heard_from = False  # whether the service has said anything

    # The session's side -------------------------------------------------------------------------------------

    def push(self, samples: Pcm) -> None:
        """Keeps a copy of the samples, which are sent in pieces of `chunk_ms`."""
        self._pcm += samples.tobytes()
        if self._end - self._sent >= self._chunk:
            self._line.wake()
        if len(self._pcm) > 2 * self._rate_hz * (LONGEST_S + 1):
            del self._pcm[: 2 * self._rate_hz]
            self._dropped += 2 * self._rate_hz
            self._sent = max(self._sent, self._dropped)

    def partial(self) -> str:
        """The words so far, of which the last may change."""
        return plain_words(" ".join((*self._final, self._partial)))

    async def result(self) -> Hypothesis:
        """The words of all audio so far. Raises `EngineError`."""
        end = self._end
        if self._known < end:
            self._wanted = max(self._wanted, end)
            self._line.wake()
            await self._complete(end)
        return self._hypothesis()

    def close(self) -> None:
        """Frees the audio; what the service says of it from here on is dropped."""
        if not self.closed:
            self.closed = True
            self._line.leave(self)
            self._pcm = bytearray()
            self._changed.set()

    async def _complete(self, end: int) -> None:
        """Waits for the words of the first `end` bytes. After `finalise_s` the words so far count, where the
        service has said anything."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while self._known < end:
            if self.closed:
                raise EngineError("this utterance was closed", retryable=False)
            if self._failure is not None:
                raise self._failure
            limit_s = self._service.finalise_s if self.heard_from else self._service.timeout_s
            self._changed.clear()
            try:
                async with asyncio.timeout_at(began + limit_s):
                    await self._changed.wait()
            except TimeoutError:
                if not self.heard_from:
                    raise EngineTimeout("the recogniser did not answer in time") from None
                return

    def _hypothesis(self) -> Hypothesis:
        text = self.partial()
        count = sum(words for _, words in self._ratings)
        rated = sum(rating * words for rating, words in self._ratings) / count if count else 0.8
        if not text or rated < self._service.min_confidence:
            return Hypothesis("", confidence=rated if text else 0.0)
        words = tuple(self._words) if len(self._words) == len(text.split()) else ()
        return Hypothesis(text, rated, words)

    # The socket's side --------------------------------------------------------------------------------------

    @property
    def _end(self) -> int:
        return self._dropped + len(self._pcm)

    def unsent(self) -> bytes:
        """Takes the audio that is due to be sent, int16 at the service's rate: whole pieces, or all where
        its words are asked for."""
        due = self._end - self._sent
        if due <= 0 or (due < self._chunk and self._wanted <= self._sent):
            return b""
        at = self._sent - self._dropped
        samples = np.frombuffer(bytes(self._pcm[at : at + due]), np.int16)
        self._sent += due
        if self._resample is None:
            return samples.tobytes()
        made = self._resample(samples)
        if self._wanted >= self._sent:
            tail = self._resample(np.zeros(self._rate_hz * _TAIL_MS // 1000, np.int16))
            made = np.concatenate((made, tail))
        return made.tobytes()

    @property
    def to_finalise(self) -> int:
        """The bytes sent whose words are asked for and not yet known; -1 for none."""
        return self._sent if self._wanted > self._known and self._sent >= self._wanted else -1

    @property
    def is_unfinished(self) -> bool:
        """Whether audio was sent whose words are not complete."""
        return self._sent > max(self._known, self._dropped)

    def hears(self, read: Read) -> None:
        """Takes a message about this utterance."""
        self.heard_from = True
        if read.final is not None:
            text = plain_words(read.final)
            self._partial = ""
            if text and sum(map(len, self._final)) < LONGEST_TEXT:
                count = len(text.split())
                self._final.append(text)
                self._ratings.append((read.confidence, count))
                self._words += [self._timed(word) for word in read.words if len(read.words) == count]
        if read.partial is not None:
            said = f"{self._partial}{read.partial}" if read.adds else read.partial
            self._partial = said[: 2 * LONGEST_TEXT]

    def _timed(self, word: HeardWord) -> HeardWord:
        start_ms, end_ms = (max(0, at - self._begin_ms) for at in (word.start_ms, word.end_ms))
        return replace(word, start_ms=start_ms, end_ms=end_ms)

    def finalised(self, bytes_sent: int) -> None:
        """Notes that the words of the first `bytes_sent` are complete."""
        self.heard_from = True
        self._known = max(self._known, bytes_sent)
        self._changed.set()

    def fail(self, failure: EngineError) -> None:
        """Ends the utterance with a failure."""
        self._failure = failure
        self._changed.set()
