"""Speech to text by Whisper models on CTranslate2 (faster-whisper), from a local directory.

An utterance is decoded as a whole, when asked: at the first pause on speculation and again if the caller went
on. Decodes run in threads (CTranslate2 lets the interpreter go), at most one per utterance at a time.
Confidence is the geometric mean of the token probabilities: 0.96 for right and 0.55 for wrong texts of the
demo's model; not comparable between models.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.audio import Pcm
from pipeline.engines.options import Options
from pipeline.engines.wording import plain_words
from pipeline.errors import EngineError, EngineMissing
from pipeline.resample import resample
from pipeline.speech import Expected, HeardWord, Hypothesis

MODEL_RATE_HZ = 16000
WINDOW_S = 30
"""The window Whisper was trained with, and the longest utterance: of a longer one the end is kept."""

_FILES = ("model.bin", "config.json", "tokenizer.json")
_VOCABULARIES = ("vocabulary.json", "vocabulary.txt")
_NO_SPEECH = 0.6
_SHORTEST_S = 0.1


@dataclass(frozen=True, slots=True)
class WhisperSettings:
    """`model`: directory of a CTranslate2 model. `threads`: decodes at a time. `encoder_window_s`: see
    `pipeline.engines.whisper_model`. `min_confidence`: texts below it count as not understood.
    `hotwords`: put the expected phrases before the text as a hint (not for the demo's model)."""

    model: str
    threads: int
    encoder_window_s: int = WINDOW_S
    device: str = "cpu"
    compute_type: str = "default"
    max_new_tokens: int = 96
    min_confidence: float = 0.4
    hotwords: bool = False


class FasterWhisper:
    """A recogniser for all calls of the process."""

    def __init__(self, settings: WhisperSettings) -> None:
        self.settings = settings
        self._model: Any = None
        self._pool: ThreadPoolExecutor | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> FasterWhisper:
        """Keys: those of `WhisperSettings`; `model` is required. Raises `SettingsRefused`."""
        options = Options("faster-whisper", settings)
        model = options.text("model")
        if not model:
            options.wrong("model", "names the directory of a CTranslate2 Whisper model; there is no default")
        read = WhisperSettings(
            model=model_path(model),
            threads=options.integer("threads", min(4, os.cpu_count() or 1), low=1, high=64),
            encoder_window_s=options.integer("encoder_window_s", WINDOW_S, low=1, high=WINDOW_S),
            device=options.text("device", "cpu", choices=("cpu", "cuda", "auto")),
            compute_type=options.text("compute_type", "default"),
            max_new_tokens=options.integer("max_new_tokens", 96, low=1, high=224),
            min_confidence=options.number("min_confidence", 0.4, low=0, high=1),
            hotwords=options.flag("hotwords"),
        )
        options.finish()
        return cls(read)

    async def start(self) -> None:
        """Loads the model and decodes once. Raises `EngineMissing` naming what is absent."""
        if self._model is not None:
            return
        check_model(Path(self.settings.model))
        self._pool = ThreadPoolExecutor(self.settings.threads, thread_name_prefix="whisper")
        try:
            self._model = await asyncio.wrap_future(self._pool.submit(_load, self.settings))
            await self.decode(np.zeros(MODEL_RATE_HZ, np.int16), MODEL_RATE_HZ, "en", None)
        except EngineError:
            await self.close()
            raise

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> WhisperListening:
        """Starts listening to one utterance."""
        return WhisperListening(self, rate_hz=rate_hz, language=language, expected=expected)

    async def close(self) -> None:
        """Waits for decodes under way (a model freed under one would crash the process), then frees."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.get_running_loop().run_in_executor(None, lambda: pool.shutdown(cancel_futures=True))
        self._model = None

    def submit(
        self, samples: Pcm, rate_hz: int, language: str, expected: Expected | None
    ) -> Future[Hypothesis]:
        """Queues one decode. Raises `EngineError` when the engine is not started."""
        if self._pool is None:
            raise EngineError("faster-whisper is not running", retryable=False)
        return self._pool.submit(self._decode, samples, rate_hz, language, expected)

    async def decode(
        self, samples: Pcm, rate_hz: int, language: str, expected: Expected | None
    ) -> Hypothesis:
        """Decodes one utterance. Raises `EngineError`."""
        return await asyncio.wrap_future(self.submit(samples, rate_hz, language, expected))

    def _decode(self, samples: Pcm, rate_hz: int, language: str, expected: Expected | None) -> Hypothesis:
        """In a decoding thread."""
        if len(samples) < rate_hz * _SHORTEST_S:
            return Hypothesis("")
        model, settings = self._model, self.settings
        language = language.lower().split("-")[0]
        if not model.model.is_multilingual and language != "en":
            raise EngineMissing(f"{settings.model} knows English only, the agent speaks {language!r}")
        try:
            audio = resample(samples, rate_hz, MODEL_RATE_HZ).astype(np.float32) / 32768
            segments, _ = model.transcribe(
                audio,
                language=language,
                beam_size=1,
                temperature=0.0,
                without_timestamps=True,
                condition_on_previous_text=False,
                max_new_tokens=settings.max_new_tokens,
                hotwords=" ".join(expected.phrases) or None if settings.hotwords and expected else None,
            )
            return _hypothesis(list(segments), settings.min_confidence)
        except Exception as error:  # the boundary of the thread, and of somebody else's C++
            raise EngineError(f"faster-whisper failed: {error}", retryable=True) from error


class WhisperListening:
    """One utterance: a growing buffer at the line's rate, resampled and decoded as a whole when asked."""

    __slots__ = (
        "_bound",
        "_closed",
        "_engine",
        "_expected",
        "_language",
        "_one",
        "_orphan",
        "_pcm",
        "_rate_hz",
    )

    def __init__(
        self, engine: FasterWhisper, *, rate_hz: int, language: str, expected: Expected | None
    ) -> None:
        self._engine = engine
        self._rate_hz = rate_hz
        self._language = language
        self._expected = expected
        self._bound = rate_hz * WINDOW_S * 2
        self._pcm = bytearray()
        self._one = asyncio.Lock()
        self._orphan: asyncio.Future[Hypothesis] | None = None
        self._closed = False

    def push(self, samples: Pcm) -> None:
        """Keeps a copy; of an utterance longer than the window the end (cut a second at a time)."""
        self._pcm += samples.tobytes()
        if len(self._pcm) > self._bound + 2 * self._rate_hz:
            del self._pcm[: len(self._pcm) - self._bound]

    def partial(self) -> str:
        """Nothing: a Whisper decode of half an utterance is not stable."""
        return ""

    async def result(self) -> Hypothesis:
        """Decodes what was pushed so far. Calls queue up: one decode of an utterance runs at a time, also
        after one was cancelled in the middle (a thread cannot be stopped)."""
        async with self._one:
            if self._orphan is not None and not self._orphan.done():
                await asyncio.wait({self._orphan})
            if self._closed:
                raise EngineError("this utterance was closed", retryable=False)
            samples = np.frombuffer(bytes(self._pcm[-self._bound :]), np.int16)
            job = self._engine.submit(samples, self._rate_hz, self._language, self._expected)
            future = asyncio.wrap_future(job)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if job.cancelled():  # by `FasterWhisper.close`, before its turn: nobody cancelled this task
                    raise EngineError("faster-whisper was closed", retryable=False) from None
                future.add_done_callback(_forget)
                job.cancel()
                self._orphan = future
                raise

    def close(self) -> None:
        """Frees the audio; a decode under way is dropped when it ends."""
        self._closed = True
        self._pcm = bytearray()


def model_path(model: str) -> str:
    """Where a model named in settings is: a path, or `package:NAME/DIRECTORY` inside an installed package."""
    name, _, inside = model.removeprefix("package:").partition("/")
    if not model.startswith("package:") or find_spec(name) is None:
        return model
    return str(files(name).joinpath(inside))


def check_model(directory: Path) -> None:
    """Raises `EngineMissing` naming what is absent from a model's directory.

    Checked before loading because the library would ask a hub on the network instead: for the model when the
    directory does not exist, for another model's tokenizer when tokenizer.json is not in it.
    """
    if not directory.is_dir():
        raise EngineMissing(
            f"no Whisper model: {directory} is not a directory (a CTranslate2 model goes there)"
        )
    missing = [name for name in _FILES if not (directory / name).is_file()]
    if not any((directory / name).is_file() for name in _VOCABULARIES):
        missing.append(_VOCABULARIES[0])
    if missing:
        raise EngineMissing(f"the Whisper model in {directory} lacks {', '.join(missing)}")


def _load(settings: WhisperSettings) -> Any:
    try:
        module = importlib.import_module("pipeline.engines.whisper_model")
    except ImportError as error:
        raise EngineMissing(f"faster-whisper is not installed (extra `whisper`): {error}") from error
    try:
        return module.load(
            settings.model,
            window_s=settings.encoder_window_s,
            threads=settings.threads,
            device=settings.device,
            compute_type=settings.compute_type,
        )
    except Exception as error:  # the boundary of the thread, and of somebody else's C++
        raise EngineMissing(f"the Whisper model in {settings.model} does not load: {error}") from error


def _hypothesis(segments: list[Any], min_confidence: float) -> Hypothesis:
    """Text and confidence of decoded segments; what is likely no speech, or unsure, is not understood."""
    if not segments:
        return Hypothesis("")
    confidence = math.exp(min(0.0, sum(segment.avg_logprob for segment in segments) / len(segments)))
    silent = all(segment.no_speech_prob > _NO_SPEECH and segment.avg_logprob < -1 for segment in segments)
    text = plain_words(" ".join(segment.text for segment in segments))
    if silent or confidence < min_confidence or not text:
        return Hypothesis("", confidence=0.0 if silent else confidence)
    return Hypothesis(
        text, confidence, tuple(HeardWord(word, confidence=confidence) for word in text.split())
    )


def _forget(future: asyncio.Future[Hypothesis]) -> None:
    """Takes the outcome of a decode nobody waits for, so that it is not reported as lost."""
    if not future.cancelled():
        future.exception()
