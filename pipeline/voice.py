"""The agent's voice: text in, audio into the playout, whatever the engines behind it do.

An engine that fails or stalls is asked once more if that may help, then the next one is; each goes on where
the last broke off, at the word. Long texts are cut into sentences, and the next is synthesised while one is
heard: only a little ahead, since an interruption throws away what was made."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import numpy as np

from pipeline.errors import EngineError, EngineResting
from pipeline.playout import MAX_QUEUED_S, Playout
from pipeline.resample import Resampler
from pipeline.settings import SessionSettings
from pipeline.speakable import speakable
from pipeline.speech import SpeechChunk, SpokenWord, TextToSpeech
from pipeline.utterance import Utterance

log = logging.getLogger(__name__)

AHEAD_S: Final = 4.0
"""The next sentence is asked for when this much is left to hear: more than a stall and a retry take."""

CLOSE_LIMIT_S: Final = 1.0  # an engine that does not let itself be stopped must not keep the call alive

_SHORTEST: Final = 24  # characters; shorter sentences are joined: each request has a fixed cost
_SENTENCE_END: Final = re.compile(r"(?<=[.!?…؟。])\s+")
_ABBREVIATION: Final = re.compile(
    r"(?:^|\s)(?:dr|mr|mrs|ms|prof|st|no|vs|etc|e\.g|i\.e|[a-z])\.$", re.IGNORECASE
)

_T = TypeVar("_T")


def sentences(text: str) -> list[str]:
    """`text` in pieces that can be synthesised one by one, without those that have nothing to be said in
    them."""
    pieces: list[str] = []
    for part in _SENTENCE_END.split(" ".join(text.split())):
        if pieces and (len(pieces[-1]) < _SHORTEST or _ABBREVIATION.search(pieces[-1])):
            pieces[-1] += " " + part
        else:
            pieces.append(part)
    return [piece for piece in pieces if any(character.isalnum() for character in piece)]


@asynccontextmanager
async def closing(stream: AsyncIterator[_T]) -> AsyncIterator[AsyncIterator[_T]]:
    """Closes `stream` on the way out if it can be closed, and does not wait for ever for that."""
    try:
        yield stream
    finally:
        aclose: Any = getattr(stream, "aclose", None)
        if aclose is not None:
            try:
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await aclose()
            except TimeoutError:
                log.warning("engine did not stop when told to")


class Voice:
    """Speaks into one playout with the first of `engines` that can. `on_fault` hears of every failure."""

    def __init__(
        self,
        playout: Playout,
        engines: Sequence[TextToSpeech],
        settings: SessionSettings,
        on_fault: Callable[[str, str], None],
    ) -> None:
        self.first_chunk_s: float | None = None
        """What all engines that were asked took for the first sound since somebody set this to None; None
        until there is one."""
        self._asked = 0.0
        self.language = settings.language
        self._playout = playout
        self._engines = tuple(engines)
        self._settings = settings
        self._on_fault = on_fault
        self._resting: set[str] = set()
        self._resamplers: dict[int, Resampler] = {}

    async def say(self, text: str, *, interruptible: bool) -> None:
        """Says `text`, its figures in words, and returns when all of it is in the playout. Raises
        `EngineError` when no engine can say it; what they could say is then still heard."""
        pieces = sentences(speakable(text, self.language))
        if not pieces:
            return
        await self._playout.room(AHEAD_S)
        if self.first_chunk_s is None:
            self._asked = asyncio.get_running_loop().time()
        utterance = self._playout.begin(interruptible=interruptible)
        try:
            for sentence in pieces:
                await self._playout.room(AHEAD_S)
                await self._say_sentence(utterance, sentence)
        except EngineError:
            self._playout.end()
            raise
        self._playout.end()

    async def _say_sentence(self, utterance: Utterance, sentence: str) -> None:
        rest = sentence
        for engine in self._attempts():
            try:
                await self._speak(engine, rest, utterance)
            except EngineError as error:
                self._note(error)
                self._last_retryable = error.retryable
                rest = utterance.break_piece()
            else:
                return
            if not rest:
                return  # it failed after its last word
        raise EngineError("no voice could say the sentence", retryable=False)

    def _note(self, error: EngineError) -> None:
        """A voice that is left alone was not even asked: the record says so once, not at every sentence."""
        if not isinstance(error, EngineResting):
            self._on_fault("tts", str(error))
        elif str(error) not in self._resting:
            self._resting.add(str(error))
            self._on_fault("tts", str(error))

    def _attempts(self) -> Iterator[TextToSpeech]:
        """The first engine, the first once more if its failure may pass, then the others."""
        for engine in self._engines:
            self._last_retryable = False
            yield engine
            if self._last_retryable:
                yield engine

    async def _speak(self, engine: TextToSpeech, text: str, utterance: Utterance) -> None:
        resampler = self._resampler(engine.rate_hz)
        utterance.begin_piece(text)
        first = True
        async with closing(engine.speak(text, language=self.language)) as chunks:
            while (chunk := await self._next(chunks)) is not None:
                if first:
                    first = False
                    if self.first_chunk_s is None:
                        self.first_chunk_s = asyncio.get_running_loop().time() - self._asked
                self._playout.write(resampler(chunk.samples), self._placed(chunk, resampler))
                await self._playout.room(MAX_QUEUED_S)
        if first:
            raise EngineError("the voice said nothing", retryable=True)
        if resampler.delay_samples:
            self._playout.write(resampler(np.zeros(resampler.from_hz // 100, np.int16)))
        utterance.end_piece()

    async def _next(self, chunks: AsyncIterator[SpeechChunk]) -> SpeechChunk | None:
        try:
            async with asyncio.timeout(self._settings.tts_stall_ms / 1000):
                return await anext(chunks, None)
        except TimeoutError:
            raise EngineError("the voice stalled", retryable=True) from None

    def _resampler(self, from_hz: int) -> Resampler:
        resampler = self._resamplers.get(from_hz)
        if resampler is None:
            resampler = self._resamplers[from_hz] = Resampler(from_hz, self._playout.rate_hz)
        resampler.reset()
        return resampler

    @staticmethod
    def _placed(chunk: SpeechChunk, resampler: Resampler) -> Sequence[SpokenWord]:
        """The chunk's words in samples of the leg."""
        ratio = resampler.to_hz / resampler.from_hz
        late = resampler.delay_samples
        return [
            SpokenWord(word.text, late + round(word.start * ratio), late + round(word.end * ratio))
            for word in chunk.words
        ]
