"""Callers with voices: sentences by espeak-ng in several voices, cut to their sound, and what a line does to
them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import cache

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.tts.espeak import Espeak, EspeakSettings

VOICES = ("en-us", "en-gb", "en-us+f3", "en-us+m3")


@cache
def spoken(texts: Sequence[str], voice: str = "en-us", *, rate_hz: int = 8000, wpm: int = 170) -> list[Pcm]:
    """Each text as it sounds, without the silence around it."""
    return asyncio.run(_spoken(texts, EspeakSettings(voice=voice, rate_wpm=wpm), rate_hz))


async def _spoken(texts: Sequence[str], settings: EspeakSettings, rate_hz: int) -> list[Pcm]:
    engine = Espeak(settings)
    await engine.start()
    try:
        said = []
        for text in texts:
            async with aclosing(engine.speak(text, language="en")) as chunks:
                pieces = [chunk.samples async for chunk in chunks]
            said.append(trimmed(resample(np.concatenate(pieces), engine.rate_hz, rate_hz)))
        return said
    finally:
        await engine.close()


def trimmed(samples: Pcm, quietest: int = 150) -> Pcm:
    """From the first sound to the last."""
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > quietest)
    return samples[loud[0] : loud[-1] + 1] if len(loud) else samples


def at_level(samples: npt.ArrayLike, dbfs: float) -> npt.NDArray[np.float64]:
    """The same at `dbfs` (RMS)."""
    wave = np.asarray(samples, np.float64)
    scaled: npt.NDArray[np.float64] = wave * (32768 * 10 ** (dbfs / 20) / np.sqrt((wave**2).mean()))
    return scaled
