"""Stand-ins for models: ears that hear one answer in everything, and a voice that hums."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline import registry
from pipeline.errors import EngineMissing
from pipeline.speech import Expected, Hypothesis, SpeechChunk


@dataclass
class Recognizer:
    """A recogniser that hears `answer` in everything."""

    answer: str = "yes"
    started: int = 0
    closed: int = 0
    missing: str = ""

    async def start(self) -> None:
        if self.missing:
            raise EngineMissing(self.missing)
        self.started += 1

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Utterance:
        return Utterance(self.answer)

    async def close(self) -> None:
        self.closed += 1


@dataclass
class Utterance:
    """What `Recognizer` listen to."""

    answer: str
    samples: int = 0

    def push(self, samples: Any) -> None:
        self.samples += len(samples)

    def partial(self) -> str:
        return ""

    async def result(self) -> Hypothesis:
        return Hypothesis(self.answer, 0.9)

    def close(self) -> None:
        self.samples = 0


@dataclass
class Voice:
    """A voice that hums: 40 ms of a 200 Hz tone for each character."""

    rate_hz: int = 8000
    started: int = 0
    closed: int = 0
    said: list[str] = field(default_factory=list)

    async def start(self) -> None:
        self.started += 1

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        self.said.append(text)
        time_s = np.arange(len(text) * self.rate_hz // 25) / self.rate_hz
        yield SpeechChunk((6000 * np.sin(2 * np.pi * 200 * time_s)).astype(np.int16))

    async def close(self) -> None:
        self.closed += 1


@contextmanager
def fake_models(
    recognizer: Recognizer | None = None, voice: Voice | None = None
) -> Iterator[tuple[Recognizer, Voice]]:
    """Registers `test-recognizer` and `test-voice` for as long as it is open."""
    recognizer, voice = recognizer or Recognizer(), voice or Voice()
    registry.register("stt", "test-ears", lambda options: recognizer)
    registry.register("tts", "test-voice", lambda options: voice)
    try:
        yield recognizer, voice
    finally:
        registry.unregister("stt", "test-ears")
        registry.unregister("tts", "test-voice")
