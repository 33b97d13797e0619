"""Engines of one's own, as their authors write them: good ones and a bad one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np
from pydantic import Field

from pipeline.audio import Pcm
from pipeline.engines.options import Options, read_options
from pipeline.speech import Expected, Hypothesis, SpeechChunk


class EarOptions(Options):
    """`answer`: what is understood of any sound."""

    answer: str = Field(default="yes please", min_length=1)


class Ears:
    """Understands one answer in everything that is loud."""

    def __init__(self, options: EarOptions) -> None:
        self.options = options

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Ears:
        return cls(read_options("ears", EarOptions, settings))

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Heard:
        return Heard(self.options.answer)


class Heard:
    """One utterance."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.loudest = 0

    def push(self, samples: Pcm) -> None:
        self.loudest = max(self.loudest, int(np.abs(samples.astype(np.int32)).max()))

    def partial(self) -> str:
        return ""

    async def result(self) -> Hypothesis:
        return Hypothesis(self.answer, 0.9) if self.loudest > 500 else Hypothesis("")

    def close(self) -> None: ...


class Careless(Ears):
    """Hears voices in silence, and writes them as it likes."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Heard:
        heard = Heard("Yes, please!")
        heard.loudest = 1000
        return heard


class Hum:
    """A voice that hums."""

    rate_hz = 16000

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Hum:
        read_options("hum", Options, settings)
        return cls()

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        for _ in text.split():
            yield SpeechChunk((6000 * np.sin(np.arange(3200) / 10)).astype(np.int16))
