"""Speech to text by pocketsphinx, which needs no download. English only.

The recogniser decodes with a grammar made of the expected answers (`pipeline.stt.sphinx.jsgf`), frame by
frame during speech, which gives the interim words. If there may be an answer, the result decodes the whole
utterance again and verifies it (`pipeline.stt.sphinx.verified`). A question without expected answers goes to
free dictation in another process (`pipeline.stt.sphinx.dictation`), which is slow and mostly wrong on a
telephone line. Confidence of an answer to a grammar is the probability that it was said
(`pipeline.stt.sphinx.evidence`), that of free dictation the mean word posterior, not calibrated.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pocketsphinx
from pydantic import Field

from pipeline.audio import Pcm
from pipeline.audio.resample import Resampler
from pipeline.engines.tables import EngineTable, read_table
from pipeline.errors import EngineError, EngineMissing, kind_of
from pipeline.speech import Expected, Hypothesis
from pipeline.stt.sphinx.decoder import RATE_HZ, DecoderPool, Dictionary, SphinxDecoder
from pipeline.stt.sphinx.dictation import FreeDictation
from pipeline.stt.sphinx.jsgf import Grammar, grammar, kind_words, unknown_words
from pipeline.stt.sphinx.verified import Verified

_LOG = logging.getLogger(__name__)

NARROW_HZ = 8000
UTTERANCE_S = 30
"""Longest audio of an utterance, in seconds; audio after it is dropped."""

_GRAMMARS = 1024  # a bound for an agent that invents its questions; a script has few

_FREE_CONFIDENCE = 0.3


class SphinxSettings(EngineTable):
    """`decoders`: made at start (4 MB each); `max_decoders`: utterances decoded while they are spoken; those
    beyond it are decoded at their end. `min_confidence`: answers below it are doubtful, and below
    `doubtful_confidence` not understood; free dictation, whose confidence means less, is never doubtful and
    needs 0.3, or `min_confidence` where that is lower."""

    decoders: int = Field(default=2, ge=1, le=256)
    max_decoders: int = Field(default=64, ge=1, le=1024)
    min_confidence: float = Field(default=0.5, ge=0, le=1)
    doubtful_confidence: float = Field(default=0.01, ge=0, le=1)

    def judged(self, heard: Hypothesis) -> Hypothesis:
        """An answer to a grammar, marked where it is doubtful, and without words where it is less."""
        if heard.confidence < min(self.doubtful_confidence, self.min_confidence):
            return Hypothesis("", heard.confidence)
        return replace(heard, doubtful=heard.confidence < self.min_confidence)


class PocketSphinx:
    """A recogniser for all calls of the process."""

    def __init__(self, settings: SphinxSettings | None = None) -> None:
        self.settings = settings or SphinxSettings()
        self._pool: DecoderPool | None = None
        self._grammars: dict[Expected, Grammar | None] = {}
        self._again: Mapping[bool, Verified] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pocketsphinx")
        self.free = FreeDictation()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> PocketSphinx:
        """Keys: those of `SphinxSettings`. Raises `SettingsRefused`."""
        return cls(read_table("pocketsphinx", SphinxSettings, settings))

    async def start(self) -> None:
        """Reads the dictionary and makes the first decoders. Raises `EngineMissing`."""
        if self._pool is None:
            loop = asyncio.get_running_loop()
            self._pool, self._again = await loop.run_in_executor(self._thread, _make, self.settings)

    def prepare(self, expectations: Iterable[Expected]) -> tuple[str, ...]:
        """Makes the grammars of a script's questions beforehand; gives the phrases that cannot be recognised,
        since the dictionary lacks a word."""
        grammars = [self._grammar(expected) for expected in expectations]
        return tuple(phrase for made in grammars if made is not None for phrase in made.dropped)

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> SphinxListening:
        """Begins the recognition of one utterance. `result` refuses languages other than English."""
        return SphinxListening(self, self._grammar(expected), rate_hz=rate_hz, language=language)

    async def close(self) -> None:
        """Ends the thread and the process."""
        self._pool, self._again = None, {}
        await self.free.close()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    @property
    def pool(self) -> DecoderPool:
        """The decoders. Raises `EngineError` when the engine is not started."""
        if self._pool is None:
            raise EngineError("pocketsphinx is not running", retryable=False)
        return self._pool

    async def decode(self, samples: bytes, made: Grammar, *, narrow: bool) -> Hypothesis:
        """Decodes a whole utterance (int16 at 16 kHz) beside the event loop. Raises `EngineError`."""
        again = self._again.get(narrow)
        if again is None:
            raise EngineError("pocketsphinx is not running", retryable=False)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, again.hear, samples, made)
        except (RuntimeError, KeyError, OSError) as error:
            raise EngineError(f"pocketsphinx failed ({kind_of(error)})", retryable=True) from error

    def _grammar(self, expected: Expected | None) -> Grammar | None:
        if expected is None:
            return None
        if expected not in self._grammars:
            if len(self._grammars) >= _GRAMMARS:
                self._grammars.clear()
            made = grammar(expected, dictionary().knows)
            self._grammars[expected] = made
            if made is not None and made.dropped:
                _LOG.warning("phrases that cannot be heard are dropped", extra={"phrases": made.dropped})
        return self._grammars[expected]


class _State(enum.Enum):
    LIVE = "live"  # a decoder decodes the audio frame by frame
    HEARD = "heard"  # the result is known, and no audio came after it
    KEPT = "kept"  # audio is only kept, and decoded when the result is asked for
    CLOSED = "closed"


class SphinxListening:
    """One utterance (`pipeline.speech.Listening`). All audio is kept as well: a result ends the decoder's
    utterance, and an utterance that goes on after a pause is decoded again from its start."""

    __slots__ = (
        "_decoder",
        "_engine",
        "_grammar",
        "_heard",
        "_kept",
        "_language",
        "_narrow",
        "_pool",
        "_resample",
        "_state",
    )

    def __init__(self, engine: PocketSphinx, made: Grammar | None, *, rate_hz: int, language: str) -> None:
        self._engine = engine
        self._grammar = made
        self._language = language
        self._resample = Resampler(rate_hz, RATE_HZ)
        self._kept = bytearray()
        self._heard = Hypothesis("")
        self._pool = engine.pool
        self._narrow = rate_hz <= NARROW_HZ
        self._decoder = _begun(self._pool, made, narrow=self._narrow)
        self._state = _State.LIVE if self._decoder is not None else _State.KEPT
        if made is None and language.lower().startswith("en"):
            engine.free.warm()

    def push(self, samples: Pcm) -> None:
        """Takes more audio, int16 at the line's rate. With a grammar it is decoded at once, in about 0.1 ms
        for 20 ms."""
        if self._state is _State.CLOSED or len(self._kept) >= UTTERANCE_S * RATE_HZ * 2:
            return
        raw = self._resample(samples).tobytes()
        self._kept += raw
        if self._state is _State.LIVE and self._decoder is not None:
            try:
                self._decoder.feed(raw)
            except RuntimeError:
                self._drop()
                self._state = _State.KEPT
        elif self._state is _State.HEARD:
            self._state = _State.KEPT

    def partial(self) -> str:
        """The interim words by the grammar; "" for free dictation."""
        return self._decoder.partial() if self._decoder is not None else ""

    async def result(self) -> Hypothesis:
        """Gives the hypothesis for all audio so far. Raises `EngineError`."""
        if self._state is _State.CLOSED:
            raise EngineError("this utterance was closed", retryable=False)
        check_language(self._language)
        if self._state is _State.LIVE and self._decoder is not None:
            self._heard = Hypothesis("")
            self._state = _State.KEPT if self._end(self._decoder) else _State.HEARD
        if self._state is _State.KEPT:
            kept = bytes(self._kept)
            made = self._grammar
            heard = await self._decode(kept, made)
            if len(kept) < len(self._kept):
                return self._accepted(heard)
            self._heard = self._accepted(heard)
            self._state = _State.HEARD
        return self._heard

    def close(self) -> None:
        """Gives the decoder back and frees the audio."""
        if self._decoder is not None:
            self._release(self._decoder)
        self._state = _State.CLOSED
        self._kept = bytearray()

    def _end(self, decoder: SphinxDecoder) -> bool:
        """Releases the decoder; gives whether its utterance may have an answer."""
        if not self._release(decoder):
            return True
        return self._grammar is not None and decoder.may_hold(bytes(self._kept), self._grammar)

    def _release(self, decoder: SphinxDecoder) -> bool:
        """Ends the decoder's utterance and gives the decoder back; False: the decoder failed and was
        dropped."""
        self._decoder = None
        try:
            decoder.end()
        except RuntimeError:
            self._pool.discard()
            return False
        self._pool.give_back(decoder)
        return True

    def _drop(self) -> None:
        self._decoder = None
        self._pool.discard()

    async def _decode(self, kept: bytes, made: Grammar | None) -> Hypothesis:
        if made is None:
            return await self._engine.free.decode(kept)
        return await self._engine.decode(kept, made, narrow=self._narrow)

    def _accepted(self, heard: Hypothesis) -> Hypothesis:
        settings = self._engine.settings
        if self._grammar is not None:
            return settings.judged(heard)
        sure = heard.confidence >= min(settings.min_confidence, _FREE_CONFIDENCE)
        return heard if sure else Hypothesis("", heard.confidence)


def _begun(pool: DecoderPool, made: Grammar | None, *, narrow: bool) -> SphinxDecoder | None:
    """Takes a decoder and begins an utterance with `made`; None for free dictation or without a free
    decoder."""
    decoder = pool.take(made, narrow=narrow) if made is not None else None
    if made is not None and decoder is not None:
        decoder.begin(made)
    return decoder


def check_language(language: str) -> None:
    """Checks that pocketsphinx has a model of `language`. Raises `EngineMissing`."""
    if language.lower().split("-")[0] != "en":
        raise EngineMissing(
            f"pocketsphinx understands English only, the agent speaks {language!r}: "
            "configure faster-whisper with a multilingual model"
        )


def unheard(phrases: Iterable[str]) -> list[str]:
    """Gives the words of `phrases` without a pronunciation; an answer with such a word is never
    recognised."""
    return unknown_words(phrases, dictionary().knows)


@cache
def dictionary() -> Dictionary:
    """Loads the dictionary of the installed model. Raises `EngineMissing`."""
    path = Path(pocketsphinx.get_model_path("en-us/cmudict-en-us.dict"))
    if not path.is_file():
        raise EngineMissing(f"installed without its English model: no {path.name}")
    return Dictionary(path)


def _make(settings: SphinxSettings) -> tuple[DecoderPool, Mapping[bool, Verified]]:
    words = dictionary()
    for word in kind_words():
        words.pronunciations(word)
    try:
        pool = DecoderPool(words, most=settings.max_decoders)
        pool.grow(settings.decoders, narrow=True)
        return pool, {narrow: Verified(words, narrow=narrow) for narrow in (True, False)}
    except (RuntimeError, ValueError, OSError) as error:
        raise EngineMissing(f"does not start: {error}") from error
