"""Speech to text by Whisper models on CTranslate2 (faster-whisper), from a local directory.

Each request decodes the whole utterance: at the first pause, and again if the caller goes on. During speech
the utterance is also decoded every 0.3 s if all threads are idle, less often otherwise; the words on which
two such decodes agree are the interim text. Decodes run in threads, those of several calls together where
`batch` allows it, with at most one result and one interim decode per utterance at a time. A long
utterance is decoded in pieces. The model runs in a helper process (`pipeline.stt.whisper.decoder`).
`pipeline.stt.whisper.rules` decides which texts are accepted and which are decoded again. Confidence is the
geometric mean of the token probabilities; values of different models are not comparable.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, Field

from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.engines.local_weights import WHISPER, whole_files
from pipeline.engines.tables import EngineTable, read_table
from pipeline.errors import EngineBusy, EngineError, EngineMissing, contained
from pipeline.latency import DecoderWaits
from pipeline.speech import Expected, Hypothesis
from pipeline.stt.whisper.batching import Decode, DecodeQueue, Urgency
from pipeline.stt.whisper.decoder import DecoderProgram, WhisperDecoder
from pipeline.stt.whisper.listening import UtteranceFormat, WhisperListening
from pipeline.stt.whisper.rules import (
    another_window_s,
    believed,
    confirmed,
    is_loop,
    is_row,
    most_tokens,
    row_window_s,
    voiced_s,
)
from pipeline.stt.whisper.weights import check_model
from pipeline.stt.whisper.wire import Decoded
from pipeline.text.fold import plain_words

MODEL_RATE_HZ = 16000
WINDOW_S: Final = 12
"""The default window: a third of the CPU time of the 30 s that Whisper was trained with, for a word error
rate 1 to 2 points higher."""

COMPUTE_TYPE: Final = "int8"
"""The default on a CPU: 60 % of the time of float32 without more errors."""

LONGEST_WINDOW_S: Final = 30
PARTIAL_S: Final = 0.3

_SHORTEST_S = 0.1

LATE_S: Final = 1.0
LATE_TIMES: Final = 10
"""When all threads have been decoding for `LATE_S` and for `LATE_TIMES` times the first decode's time,
`submit` refuses more decodes, so that calls ask their next recogniser at once."""

_NEVER_LATE_S: Final = 3600.0  # until the time of the first decode is known


def model_path(model: str) -> str:
    """Gives the path of a configured model: `model` itself, or for `package:NAME/DIRECTORY` the directory in
    the installed package."""
    name, _, inside = model.removeprefix("package:").partition("/")
    if not model.startswith("package:") or find_spec(name) is None:
        return model
    return str(files(name).joinpath(inside))


class WhisperSettings(EngineTable):
    """The options of faster-whisper. `model`: directory of a CTranslate2 model; "": the weights of the extra
    `local`. `threads`: decodes at a time. `encoder_window_s`: length to which an utterance is padded; a
    longer one gets a longer window. `min_confidence`: texts below are taken for not understood, digits alone
    below half of it. `batch`: most utterances of several calls in one pass, for a GPU. `partial_every_s`:
    shortest time between interim decodes, which need a second thread; 0: none. `hotwords`: gives the expected
    phrases to the model as a hint (not for the demo's model)."""

    model: Annotated[str, AfterValidator(model_path)] = Field(default="", validate_default=True)
    threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1, le=64)
    encoder_window_s: int = Field(default=WINDOW_S, ge=1, le=LONGEST_WINDOW_S)
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    compute_type: str = COMPUTE_TYPE
    max_new_tokens: int = Field(default=96, ge=1, le=224)
    min_confidence: float = Field(default=0.4, ge=0, le=1)
    hotwords: bool = False
    batch: int = Field(default=1, ge=1, le=64)
    partial_every_s: float = Field(default=PARTIAL_S, ge=0, le=30)


class FasterWhisper:
    """A recogniser with a Whisper model (`pipeline.speech.SpeechToText`), for all calls of the process."""

    def __init__(self, settings: WhisperSettings) -> None:
        self.settings = settings
        self._model: WhisperDecoder | None = None
        self._queue: DecodeQueue | None = None
        self._late_s = _NEVER_LATE_S

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> FasterWhisper:
        """Keys: those of `WhisperSettings`. Raises `SettingsRefused`."""
        on_gpu = {} if settings.get("device", "cpu") == "cpu" else {"compute_type": "default", "batch": 16}
        return cls(read_table("faster-whisper", WhisperSettings, {**on_gpu, **settings}))

    async def start(self) -> None:
        """Loads the model and decodes once. Raises `EngineMissing` naming what is absent."""
        if self._model is not None:
            return
        if self.settings.model:
            check_model(Path(self.settings.model))
        queue = self._queue = DecodeQueue(
            self._decode, threads=self.settings.threads, batch=self.settings.batch
        )
        async with AsyncExitStack() as failed:
            # Also where whoever waited has given up: nobody else knows of the process.
            failed.push_async_callback(self.close)
            model = self._model = WhisperDecoder(await asyncio.to_thread(_program, self.settings))
            await asyncio.wrap_future(queue.run(model.start))
            began = time.monotonic()
            await self.decode(np.zeros(MODEL_RATE_HZ, np.int16), MODEL_RATE_HZ, "en", None)
            took_s = time.monotonic() - began
            self._late_s = max(LATE_S, LATE_TIMES * took_s)
            model.took(took_s)
            failed.pop_all()

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> WhisperListening:
        """Starts listening to one utterance."""
        every = round(self.settings.partial_every_s * rate_hz)
        return WhisperListening(self, UtteranceFormat(rate_hz, language, expected), partial_every=every)

    async def close(self) -> None:
        """Waits for decodes under way, then ends the process."""
        queue, self._queue = self._queue, None
        model, self._model = self._model, None
        loop = asyncio.get_running_loop()
        if queue is not None:
            await loop.run_in_executor(None, queue.close)
        if model is not None:
            await loop.run_in_executor(None, model.close)

    def for_files(self) -> _FileRecognizer:
        """Gives the same recogniser for files, which are decoded after all decodes for calls."""
        return _FileRecognizer(self)

    def submit(
        self,
        samples: Pcm,
        rate_hz: int,
        language: str,
        expected: Expected | None,
        *,
        urgency: Urgency = Urgency.RESULT,
    ) -> Future[Hypothesis]:
        """Queues one decode of int16 samples at `rate_hz`. Raises `EngineError` when the engine is not
        started, `EngineBusy` when all threads are late."""
        if self._queue is None:
            raise EngineError("faster-whisper is not running", retryable=False)
        if self._queue.stuck_s(time.monotonic()) > self._late_s:
            raise EngineBusy("no thread of faster-whisper comes to an end")
        phrases = tuple(plain_words(phrase) for phrase in expected.phrases) if expected else ()
        hotwords = " ".join(phrases) if self.settings.hotwords else ""
        return self._queue.put(Decode(samples, rate_hz, _base(language), hotwords, phrases, urgency))

    def submit_spare(self, samples: Pcm, rate_hz: int, language: str) -> Future[Hypothesis]:
        """Queues one interim decode, whose result is "" for a loop. Raises `EngineError` when the engine is
        not started."""
        if self._queue is None:
            raise EngineError("faster-whisper is not running", retryable=False)
        return self._queue.put(Decode(samples, rate_hz, _base(language), urgency=Urgency.PARTIAL))

    def spare_pause_s(self) -> float | None:
        """Seconds after an utterance's last interim decode at which the next may follow; None: not now."""
        return None if self._queue is None else self._queue.pause_s(self.settings.partial_every_s)

    def decoder_waits(self) -> DecoderWaits | None:
        """Gives the waits of callers for a thread since the start; None while the engine is not started."""
        return None if self._queue is None else self._queue.waits()

    @property
    def pid(self) -> int | None:
        """The id of the model's process while it runs."""
        return None if self._model is None else self._model.pid

    async def decode(
        self, samples: Pcm, rate_hz: int, language: str, expected: Expected | None
    ) -> Hypothesis:
        """Decodes one utterance. Raises `EngineError`."""
        with contained("faster-whisper"):
            return await asyncio.wrap_future(self.submit(samples, rate_hz, language, expected))

    def _decode(self, decodes: Sequence[Decode]) -> list[Hypothesis]:
        """Decodes utterances of one group; runs in a decoding thread."""
        model, settings, language = self._model, self.settings, decodes[0].language
        if model is None:
            raise EngineError("faster-whisper is not running", retryable=False)
        long = [at for at, each in enumerate(decodes) if len(each.samples) >= each.rate_hz * _SHORTEST_S]
        if long and not model.multilingual and language != "en":
            raise EngineMissing(
                f"{settings.model or WHISPER.name} knows English only, the agent speaks {language!r}"
            )
        heard = [Hypothesis("")] * len(decodes)
        found = self._heard(model, [decodes[place] for place in long])
        for place, hypothesis in zip(long, found, strict=True):
            heard[place] = hypothesis
        return heard

    def _heard(self, model: WhisperDecoder, decodes: Sequence[Decode]) -> Iterator[Hypothesis]:
        """Gives the hypotheses. A loop, or one digit repeated, is decoded once more with another window; as
        an interim result it is ""."""
        if not decodes:
            return
        settings, language = self.settings, decodes[0].language
        audios = [resample(each.samples, each.rate_hz, MODEL_RATE_HZ) for each in decodes]
        voiced = [voiced_s(audio, MODEL_RATE_HZ) for audio in audios]
        most = min(settings.max_new_tokens, most_tokens(max(voiced)))
        first = _decoded(model, decodes[0], audios, window_s=settings.encoder_window_s, most=most)
        for each, audio, voice, decoded in zip(decodes, audios, voiced, first, strict=True):
            row = is_row(decoded.text, language)
            doubtful = row or is_loop(decoded, voice, language)
            if each.urgency is Urgency.PARTIAL and doubtful:
                yield Hypothesis("")
                continue
            final = decoded
            if doubtful:
                final = confirmed(decoded, self._again(model, each, audio, row), language)
            yield believed(
                final,
                language=language,
                min_confidence=settings.min_confidence,
                loops=final is not decoded and is_loop(final, voice, language),
                phrases=each.phrases,
            )

    def _again(self, model: WhisperDecoder, decode: Decode, audio: Pcm, row: bool) -> Decoded:
        """Decodes a doubtful utterance again, with another window and up to `max_new_tokens`."""
        other = row_window_s if row else another_window_s
        window_s = other(self.settings.encoder_window_s, len(audio) / MODEL_RATE_HZ)
        most = self.settings.max_new_tokens
        return _decoded(model, decode, [audio], window_s=window_s, most=most)[0]


class _FileRecognizer:
    """A started recogniser for files: with their lower priority and without interim decodes."""

    def __init__(self, engine: FasterWhisper) -> None:
        self._engine = engine

    async def start(self) -> None:
        """The recogniser's."""
        await self._engine.start()

    async def close(self) -> None:
        """The recogniser's."""
        await self._engine.close()

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> WhisperListening:
        """Starts listening to a piece of a file."""
        return WhisperListening(self, UtteranceFormat(rate_hz, language, expected), partial_every=0)

    def submit(
        self, samples: Pcm, rate_hz: int, language: str, expected: Expected | None
    ) -> Future[Hypothesis]:
        """See `FasterWhisper.submit`."""
        return self._engine.submit(samples, rate_hz, language, expected, urgency=Urgency.FILE)

    def submit_spare(self, samples: Pcm, rate_hz: int, language: str) -> Future[Hypothesis]:
        """See `FasterWhisper.submit_spare`."""
        return self._engine.submit_spare(samples, rate_hz, language)

    def spare_pause_s(self) -> float | None:
        """Gives None, since files have no interim decodes."""
        return None


def local_directory() -> str:
    """Gives the directory of the weights by pip, after a check of every file. Raises `EngineMissing`."""
    return str(whole_files(WHISPER)["model.bin"].parent)


def _base(language: str) -> str:
    """Gives Whisper's name of a language, "ar" for "ar-SA"."""
    return language.lower().split("-")[0]


def _program(settings: WhisperSettings) -> DecoderProgram:
    """Gives the process for `settings`; reads files. Raises `EngineMissing`."""
    if find_spec("faster_whisper") is None:
        raise EngineMissing("not installed (extra `whisper`)")
    model = str(Path(settings.model or local_directory()).resolve())
    return DecoderProgram(model, settings.threads, settings.device, settings.compute_type)


def _decoded(
    model: WhisperDecoder, decode: Decode, audios: Sequence[Pcm], *, window_s: int, most: int
) -> list[Decoded]:
    return model.decoded(
        [audio.astype(np.float32) / np.float32(32768) for audio in audios],
        language=decode.language,
        hotwords=decode.hotwords or None,
        window_s=window_s,
        most=most,
    )
