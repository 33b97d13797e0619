"""Synthesises the agent's text into the playout, with retries and fallback engines.

An engine that fails or stalls is asked once more if the failure is retryable, then the next engine is asked;
the last engine is asked again until `tts_stall_ms` is over. Each attempt goes on at the word at which the one
before broke off. A text is split into sentences, and one sentence is synthesised while the one before is
heard: at most `AHEAD_S` ahead, since an interruption discards that audio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

import numpy as np

from pipeline.agent import OwnSpeech
from pipeline.audio import Pcm
from pipeline.audio.levels import Audibility
from pipeline.audio.resample import Resampler
from pipeline.engines.aio import closing, refuse
from pipeline.errors import (
    EngineCircuitOpen,
    EngineEndless,
    EngineError,
    EngineSilent,
    EngineTimeout,
    LanguageRefused,
    contained,
    passes,
)
from pipeline.media.playout import MAX_QUEUED_S, Playout
from pipeline.media.utterance import Utterance
from pipeline.session.own_speech import play
from pipeline.session.pronunciation import Pronunciation, Respelled
from pipeline.session.written_answer import WrittenAnswer
from pipeline.settings import SessionSettings
from pipeline.speech import SpeechChunk, SpokenWord, TextToSpeech, incremental, speaking
from pipeline.text.normalise import verbalize
from pipeline.text.sentences import sentences

AHEAD_S: Final = 4.0
"""The next sentence is synthesised when this many seconds of audio are left in the playout: more than a stall
and a retry take."""


_RETRY_PAUSE_S: Final = 0.1  # before the third request to the last engine; doubled before each next one

_SHORTEST: Final = 24  # characters; shorter sentences are joined, since each request has a fixed cost


class Synthesis:
    """Speaks into one playout with the first of `engines` that succeeds. `on_fault` is called with role and
    reason of every failure, except a `LanguageRefused` after which another engine is asked."""

    def __init__(
        self,
        playout: Playout,
        engines: Sequence[TextToSpeech],
        settings: SessionSettings,
        on_fault: Callable[[str, str], None],
    ) -> None:
        self.first_chunk_s: float | None = None
        """Seconds from the first request since `Reply.run` set this field to None until audible sound, all
        engines and retries included; None until then."""
        self.on_caught_up: Callable[[], None] | None = None
        """Called when sound of all text so far has come, of an answer that is said while it is written."""
        self._asked = 0.0
        self._answer: WrittenAnswer | None = None
        self.language = settings.language
        self._playout = playout
        self._engines = tuple(engines)
        self._settings = settings
        self._on_fault = on_fault
        self._pronunciation = Pronunciation(settings.pronunciation)
        self._failed: EngineError | None = None
        self._resting: set[str] = set()
        self._sound = Audibility(playout.rate_hz)
        self._made_from = self._made_to = 0
        self._resamplers: dict[int, Resampler] = {}

    async def say(self, text: str, *, interruptible: bool) -> None:
        """Synthesises `text`, with numbers and symbols as words, and returns when all of the audio is in the
        playout; with an incremental voice, when the voice has the text. Raises `EngineError` when no engine
        can say a sentence; audio made before stays in the playout."""
        verbalized = sentences(verbalize(text, self.language), shortest=_SHORTEST)
        pieces = [piece for piece in verbalized if any(character.isalnum() for character in piece)]
        if not pieces:
            return
        if incremental(self._engines[0]) is not None:
            await self._write(pieces, interruptible)
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

    async def play(self, speech: OwnSpeech) -> None:
        """Writes what the agent says itself to the playout, after the audio of all text so far. Raises
        `EngineError` like `say`."""
        await self.finish()
        await self._playout.room(AHEAD_S)
        if self.first_chunk_s is None:
            self._asked = asyncio.get_running_loop().time()
        await play(speech, self._playout, self._resampler(speech.rate_hz), self._sounded)

    # An answer that is said while it is written -------------------------------------------------------------

    async def finish(self) -> None:
        """Returns when the audio of all text so far is in the playout. Raises `EngineError` like `say`."""
        answer, self._answer = self._answer, None
        if answer is not None and answer.task is not None:
            answer.end()
            await answer.task

    def abandon(self) -> None:
        """Stops the voice; nothing more of the answer under way is written to the playout."""
        answer, self._answer = self._answer, None
        if answer is not None and answer.task is not None:
            answer.task.cancel()

    @property
    def is_behind(self) -> bool:
        """Whether there is text of which no audio has come."""
        return self._answer is not None and self._answer.is_behind

    async def _write(self, pieces: Sequence[str], interruptible: bool) -> None:
        answer = self._answer
        if answer is None or answer.is_closed or answer.utterance.interruptible != interruptible:
            await self.finish()
            answer = self._begin_answer(pieces[0], interruptible)
            pieces = pieces[1:]
        for piece in pieces:
            await self._playout.room(AHEAD_S)
            await answer.room()
            if answer.is_closed:
                await self._write([piece], interruptible)
            else:
                answer.add(piece)

    def _begin_answer(self, first: str, interruptible: bool) -> WrittenAnswer:
        if self.first_chunk_s is None:
            self._asked = asyncio.get_running_loop().time()
        utterance = self._playout.begin(interruptible=interruptible)
        answer = self._answer = WrittenAnswer(utterance, stall_s=self._settings.tts_stall_ms / 1000)
        answer.add(first)
        answer.task = asyncio.create_task(self._say_answer(answer), name="answer being said")
        answer.task.add_done_callback(_told)
        return answer

    async def _say_answer(self, answer: WrittenAnswer) -> None:
        try:
            while answer.waits:
                await self._say_waiting(answer)
        except EngineError:
            self._playout.end()
            raise
        finally:
            answer.close()
        self._playout.end()

    async def _say_waiting(self, answer: WrittenAnswer) -> None:
        """Says what waits of an answer: all that comes where the voice takes it so, else the next piece."""
        for pause_s, engine in self._attempts():
            await asyncio.sleep(pause_s)
            answer.begins_anew()
            text = ""
            try:
                if incremental(engine) is not None:
                    await self._speak_written(engine, answer)
                else:
                    text = answer.take()
                    await self._playout.room(AHEAD_S)
                    await self._speak(engine, text, answer.utterance)
            except EngineError as error:
                self._fell_out(engine, error)
                answer.give_back(self._break(answer.utterance, error))
            else:
                return
            if not answer.waits:
                return
        raise EngineError("no voice could say the answer", retryable=False)

    async def _speak_written(self, engine: TextToSpeech, answer: WrittenAnswer) -> None:
        voice, utterance, rate_hz = incremental(engine), answer.utterance, self._playout.rate_hz
        assert voice is not None
        utterance.begin_piece("")
        respelled = self._pronunciation.respelled("")

        async def pieces() -> AsyncIterator[str]:
            async for piece in answer.pieces(lambda: self._playout.queued_samples / rate_hz):
                utterance.extend_piece(piece)
                said = self._pronunciation.respelled(piece)
                respelled.extend(said)
                yield said.text

        with contained("the voice"):
            stream = voice.speak_pieces(pieces(), language=self.language)
        await self._take(stream, engine.rate_hz, utterance, respelled, answer)

    # One text -----------------------------------------------------------------------------------------------

    async def _say_sentence(self, utterance: Utterance, sentence: str) -> None:
        rest = sentence
        for pause_s, engine in self._attempts():
            await asyncio.sleep(pause_s)
            try:
                await self._speak(engine, rest, utterance)
            except EngineError as error:
                self._fell_out(engine, error)
                rest = self._break(utterance, error)
            else:
                return
            if not rest:
                return  # the engine failed after the last word
        raise EngineError("no voice could say the sentence", retryable=False)

    def _fell_out(self, engine: TextToSpeech, error: EngineError) -> None:
        if not isinstance(error, LanguageRefused) or engine is self._engines[-1]:
            self._note(error)
        self._failed = error

    def _note(self, error: EngineError) -> None:
        """Records a fault; one of an open circuit breaker once only, since every sentence meets it."""
        if not isinstance(error, EngineCircuitOpen):
            self._on_fault("tts", str(error))
        elif str(error) not in self._resting:
            self._resting.add(str(error))
            self._on_fault("tts", str(error))

    def _attempts(self) -> Iterator[tuple[float, TextToSpeech]]:
        """The engines in order, each twice where the first failure is retryable, with the pause before each
        request in seconds. The last engine, which has no fallback, is repeated until `tts_stall_ms` is over,
        unless it timed out or was busy."""
        for engine in self._engines:
            self._failed = None
            yield 0.0, engine
            if self._failed is not None and self._failed.retryable:
                yield 0.0, engine
        pause_s, now = _RETRY_PAUSE_S, asyncio.get_running_loop().time
        until = now() + self._settings.tts_stall_ms / 1000
        while self._failed is not None and passes(self._failed) and now() + pause_s < until:
            yield pause_s, engine
            pause_s *= 2

    async def _speak(self, engine: TextToSpeech, text: str, utterance: Utterance) -> None:
        utterance.begin_piece(text)
        respelled = self._pronunciation.respelled(text)
        with contained("the voice"):
            ahead_s = self._playout.queued_samples / self._playout.rate_hz
            stream = speaking(engine, respelled.text, language=self.language, ahead_s=ahead_s)
        await self._take(stream, engine.rate_hz, utterance, respelled)

    async def _take(
        self,
        stream: AsyncIterator[SpeechChunk],
        rate_hz: int,
        utterance: Utterance,
        respelled: Respelled,
        answer: WrittenAnswer | None = None,
    ) -> None:
        """Writes what a voice makes to the playout. `answer`: where its text is still being written."""
        self._made_from = utterance.samples
        sound = self._sound = Audibility(self._playout.rate_hz)
        kept: list[tuple[Pcm, Sequence[SpokenWord]]] = []  # silence before the first audible chunk
        with contained("the voice"):
            resampler = self._resampler(rate_hz)
        async with closing(stream) as chunks:
            while (chunk := await self._next(chunks, sound, answer)) is not None:
                with contained("the voice"):
                    words = _placed(respelled.words(chunk.words), resampler)
                    kept.append((resampler(chunk.samples), words))
                sound.add(kept[-1][0])
                if sound.heard:
                    self._put(utterance, kept)
                    self._heard_of(answer)
                if sound.silence_s * 1000 > self._settings.tts_stall_ms:
                    await refuse(chunks, EngineSilent())
                await self._playout.room(MAX_QUEUED_S)
        if not sound.heard:
            raise EngineError("the voice said nothing", retryable=not kept)
        if resampler.delay_samples:
            self._playout.write(resampler(np.zeros(resampler.from_hz // 100, np.int16)))
        utterance.end_piece(sound.quiet_samples)

    def _heard_of(self, answer: WrittenAnswer | None) -> None:
        if answer is not None and answer.is_behind:
            answer.sounds()
            if not answer.is_behind and self.on_caught_up is not None:
                self.on_caught_up()

    def _put(self, utterance: Utterance, made: list[tuple[Pcm, Sequence[SpokenWord]]]) -> None:
        self._sounded()
        for samples, words in made:
            self._playout.write(samples, words)
        made.clear()
        self._made_to = utterance.samples

    def _sounded(self) -> None:
        if self.first_chunk_s is None:
            self.first_chunk_s = asyncio.get_running_loop().time() - self._asked

    def _break(self, utterance: Utterance, error: EngineError) -> str:
        """Ends the piece and returns its words that were not said. Trailing silence, and all unheard audio of
        a voice that made more than its text can take, is removed from the playout."""
        ours = self._sound.heard and utterance.samples == self._made_to  # no filler came after it
        if ours and isinstance(error, EngineEndless):
            self._playout.retract(self._made_to - self._made_from)
            return utterance.break_piece()
        quiet = self._sound.quiet_samples if ours else 0
        return utterance.break_piece(quiet - self._playout.retract(quiet))

    async def _next(
        self, chunks: AsyncIterator[SpeechChunk], sound: Audibility, answer: WrittenAnswer | None
    ) -> SpeechChunk | None:
        loop, queued_s = asyncio.get_running_loop(), self._playout.queued_samples / self._playout.rate_hz
        asked = loop.time()
        limit = asyncio.timeout(self._settings.tts_stall_ms / 1000) if answer is None else answer.patience()
        try:
            async with limit:
                with contained("the voice"):
                    return await anext(chunks, None)
        except TimeoutError:
            raise EngineTimeout("the voice stalled") from None
        finally:
            if answer is None:
                sound.waited(max(0.0, loop.time() - asked - queued_s))
            else:
                answer.waited()

    def _resampler(self, from_hz: int) -> Resampler:
        resampler = self._resamplers.get(from_hz)
        if resampler is None:
            resampler = self._resamplers[from_hz] = Resampler(from_hz, self._playout.rate_hz)
        resampler.reset()
        return resampler


def _placed(words: Sequence[SpokenWord], resampler: Resampler) -> Sequence[SpokenWord]:
    """The words of a chunk with times in samples at the playout's rate."""
    ratio = resampler.to_hz / resampler.from_hz
    late = resampler.delay_samples
    return [
        SpokenWord(word.text, late + round(word.start * ratio), late + round(word.end * ratio))
        for word in words
    ]


def _told(task: asyncio.Task[None]) -> None:
    """Takes a failure that nobody waits for; whoever waits is told of it."""
    if not task.cancelled():
        task.exception()
