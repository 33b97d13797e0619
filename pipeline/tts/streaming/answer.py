"""One answer of the agent at a streaming voice: the text that goes in piece by piece, the sound and the words
that come out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import numpy as np

from pipeline.audio import Pcm
from pipeline.audio.kernels import ulaw_decode
from pipeline.engines.guard import longest_s
from pipeline.errors import EngineEndless, EngineError, EngineTimeout, contained
from pipeline.net.socket_service import Message, filled_in
from pipeline.speech import SpeechChunk, SpokenWord
from pipeline.tts.openai import SoundCutter
from pipeline.tts.streaming.service import VoiceRead, VoiceSettings
from pipeline.tts.streaming.words import WordPlacer

MOST_QUEUED_S: Final = 30.0
"""Sound of a call that is taken from the socket and not yet asked for, in seconds; after it the socket is not
read."""

MOST_OF_A_FILE_S: Final = 300.0
"""The same outside of calls, where a slow reader would lose a socket that is not read for long."""

_NOTHING: Final = np.zeros(0, np.int16)


class Answer:
    """One answer. `places`: what is filled in in its messages, its `context` among them; `most_queued_s`:
    most sound that is taken and not yet asked for."""

    def __init__(
        self, service: VoiceSettings, places: dict[str, Any], *, most_queued_s: float = MOST_QUEUED_S
    ) -> None:
        self.context = str(places["context"])
        self._service = service
        self._places = places
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[Message] = deque()
        self._is_sent = False  # whether the service has a part of it
        self._finished = False  # no more text comes
        self._over = False  # the service has said all of it
        self._closed = False
        self._failure: EngineError | None = None
        self._text = ""
        self._pieces: deque[int] = deque()  # words of each piece that is not done
        self._piece_at = 0  # samples before the piece under way
        self._words = WordPlacer(service.rate_hz)
        self._sound = SoundCutter(service.rate_hz) if service.encoding == "pcm_s16le" else _MuLaw()
        self._octets = 0
        self._made: deque[SpeechChunk] = deque()
        self._queued = 0  # samples in `_made`
        self._most_queued = most_queued_s * service.rate_hz
        self._asked_at = self._heard_at = 0.0  # loop times of the latest text and sound
        self._changed, self._drained = asyncio.Event(), asyncio.Event()

    # The session's side -------------------------------------------------------------------------------------

    async def feed(self, pieces: AsyncIterator[str], wake: Any) -> None:
        """Adds `pieces` as they come. `wake`: called when there is more to be sent."""
        try:
            with contained("the text of an answer"):
                async for piece in pieces:
                    self.add(piece)
                    wake()
                self.finish()
                wake()
        except EngineError as failure:
            self.fail(failure)

    def add(self, text: str) -> None:
        """Adds a piece of the text."""
        if self._over:
            self.fail(EngineError("the service ended the answer before its text", retryable=True))
            return
        service = self._service
        if not self._text:
            self._queue(*service.open)
        self._text += f"{text} "
        self._words.add(text)
        self._pieces.append(len(text.split()))
        self._queue(service.text, text=f"{text} ")
        if service.flush:
            self._queue(service.flush)
        self._asked_at = self._loop.time()
        self._changed.set()

    def finish(self) -> None:
        """Notes that no more text comes."""
        self._finished = True
        if self._text:
            self._queue(*self._service.finish)
        self._over = self._over or not self._text
        self._asked_at = self._loop.time()
        self._look()
        self._changed.set()

    async def chunks(self) -> AsyncGenerator[SpeechChunk, None]:
        """The sound as it comes, with the words whose sound is complete. Raises `EngineError`."""
        while True:
            while self._made:
                chunk = self._made.popleft()
                self._queued -= chunk.samples.size
                self._drained.set()
                yield chunk
            if self._failure is not None:
                last = self._cut_short()
                if last:
                    yield SpeechChunk(_NOTHING, last)
                raise self._failure
            if self._over and self._finished:
                yield SpeechChunk(self._sound.finish() if self._octets else _NOTHING, self._words.rest())
                return
            await self._wait()

    def close(self) -> None:
        """Drops the sound that waits, and what still comes of it."""
        self._closed = True
        self._made.clear()
        self._queued = 0
        self._drained.set()
        self._changed.set()

    async def _wait(self) -> None:
        """Waits for a change; only so long for sound that is due."""
        waiting_since = self._loop.time()
        self._changed.clear()
        while not self._changed.is_set():
            due = self._due(waiting_since)
            try:
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
            except TimeoutError:
                if self._due(waiting_since) == due:
                    raise EngineTimeout("the voice did not speak in time") from None

    def _due(self, waiting_since: float) -> float | None:
        """When sound is due; None while the text that was given has been said, as far as is known."""
        if not self._text or self._over:
            return None
        if not self._octets:
            return self._asked_at + self._service.timeout_s
        told = bool(self._service.piece_done)
        is_owed = bool(self._pieces) if told else self._heard_at < self._asked_at
        if not is_owed and not self._finished:
            return None
        return max(self._heard_at, self._asked_at, waiting_since) + self._service.stall_s

    # The socket's side --------------------------------------------------------------------------------------

    @property
    def is_sent(self) -> bool:
        """Whether the service has a part of it."""
        return self._is_sent

    @property
    def is_under_way(self) -> bool:
        """Whether the service has a part of it, and has not said all of it."""
        return self._is_sent and not self._over

    def due(self) -> Message | None:
        """Takes the message that is to be sent next; None for none."""
        if not self._unsent or self._closed:
            return None
        self._is_sent = True
        return self._unsent.popleft()

    def take(self, said: VoiceRead) -> None:
        """Takes a message about this answer."""
        if self._over or self._closed or self._failure is not None:
            return
        if said.error:
            self.fail(EngineError(f"the voice failed ({said.error})", retryable=True))
            return
        before = self._words.samples
        try:
            samples = self._heard(said.sound) if said.sound else _NOTHING
        except EngineError as failure:
            self.fail(failure)
            return
        self._place(said, before)
        words = self._words.taken()
        if said.piece_done:
            words += self._piece_done()
        self._give(samples, words)
        self._over = said.done
        self._look()

    async def room(self) -> None:
        """Waits while too much sound is queued."""
        while self._queued > self._most_queued and not self._closed:
            self._drained.clear()
            await self._drained.wait()

    def fail(self, failure: EngineError) -> None:
        """Ends the answer with a failure."""
        self._failure = self._failure or failure
        self._changed.set()

    def _queue(self, *messages: Message, **more: str) -> None:
        self._unsent.extend(filled_in(message, **self._places, **more) for message in messages)

    def _heard(self, sound: bytes) -> Pcm:
        self._octets += len(sound)
        self._words.samples = self._octets // self._sound.octets
        if self._words.samples > self._service.rate_hz * longest_s(self._text):
            raise EngineEndless("the voice does not stop")
        self._heard_at = self._loop.time()
        return self._sound.push(sound)

    def _place(self, said: VoiceRead, before: int) -> None:
        """Places the words of a message; `before`: samples before its sound."""
        since = {"answer": 0, "piece": self._piece_at, "message": before}[self._service.words.since]
        per_ms = self._service.rate_hz / 1000
        for word in said.words:
            begin, end = (since + round(at * per_ms) for at in (word.start_ms, word.end_ms))
            self._words.tell(word.text, begin, end)

    def _piece_done(self) -> tuple[SpokenWord, ...]:
        words = self._pieces.popleft() if self._pieces else 0
        begin, self._piece_at = self._piece_at, self._words.samples
        return () if self._service.words.text else self._words.spread(words, begin, complete=True)

    def _cut_short(self) -> tuple[SpokenWord, ...]:
        """The words whose sound came before the failure."""
        if self._service.words.text or not self._service.piece_done or not self._words.unplaced:
            return ()
        return self._words.spread(self._words.unplaced, self._piece_at, complete=False)

    def _give(self, samples: Pcm, words: tuple[SpokenWord, ...]) -> None:
        if samples.size or words:
            self._made.append(SpeechChunk(samples, words))
            self._queued += samples.size
            self._changed.set()

    def _look(self) -> None:
        """Whether all was said, for services that tell of pieces only."""
        if self._finished and not self._service.done and not self._pieces:
            self._over = True
        if self._over:
            self._changed.set()


class _MuLaw:
    """Converts G.711 µ-law to int16."""

    octets = 1

    def push(self, piece: bytes) -> Pcm:
        """Takes a piece; returns its samples."""
        samples = np.empty(len(piece), np.int16)
        ulaw_decode(np.frombuffer(piece, np.uint8), samples)
        return samples

    def finish(self) -> Pcm:
        """Ends the stream, of which nothing is kept."""
        return _NOTHING
