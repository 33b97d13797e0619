"""Prepares the server's own phrases (filler, apology, goodbye) at start-up: a voice that has failed cannot
synthesise an apology.

A short tone replaces a phrase that no voice could say, so that the caller hears something in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, cast

import numpy as np

from pipeline.audio import Pcm
from pipeline.audio.levels import is_audible
from pipeline.audio.resample import resample
from pipeline.engines.aio import closing
from pipeline.errors import EngineError, contained
from pipeline.result import EndReason
from pipeline.settings import SessionSettings
from pipeline.speech import TextToSpeech
from pipeline.text.normalise import verbalize
from pipeline.text.prompts import Phrase, standard

log = logging.getLogger(__name__)

SYNTHESIS_LIMIT_S: Final = 20.0  # per phrase, at start-up: a cold neural voice on a busy CPU is slow
_TONE_HZ: Final = 8000
_Synthesised: TypeAlias = tuple[str, Pcm, int]
"""Text, samples, and their rate."""


LAST_WORDS: Final[Mapping[EndReason, Phrase]] = MappingProxyType(
    {
        EndReason.ENGINE_ERROR: Phrase.APOLOGY,
        EndReason.SILENCE: Phrase.GOODBYE,
        EndReason.MAX_DURATION: Phrase.GOODBYE,
    }
)
"""The phrase before the server hangs up, by the reason of the end."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A phrase ready to be played: int16 samples at the rate asked for. `text` is "" for the tone."""

    text: str
    samples: Pcm


class Phrases:
    """The phrases of one agent, shared by its calls: its own in the agent's language, the standard ones in
    every other language that the agent may change to."""

    def __init__(
        self, spoken: dict[Phrase, _Synthesised] | None = None, *, others: Mapping[str, Phrases] | None = None
    ) -> None:
        self._spoken = spoken or {}
        self._others = dict(others or {})
        self._at_rate: dict[tuple[Phrase, int], Spoken] = {}

    @classmethod
    async def prepare(
        cls, voices: Sequence[TextToSpeech], settings: SessionSettings, *, languages: Iterable[str] = ()
    ) -> Phrases:
        """Synthesises each phrase with the first of `voices` that succeeds; `languages` are those beside the
        agent's own. Never raises `EngineError`: a phrase that no voice can say becomes the tone, and a
        warning is logged."""
        others = {
            language: cls(
                await _spoken({each: standard(each, language) for each in Phrase}, voices, language)
            )
            for language in languages
            if language != settings.language
        }
        own = {phrase: getattr(settings, phrase.value) for phrase in Phrase}
        return cls(await _spoken(own, voices, settings.language), others=others)

    def at(self, phrase: Phrase, rate_hz: int, language: str = "") -> Spoken:
        """Gives the phrase at the leg's rate, in `language` where the phrase was prepared, else in the
        agent's own."""
        if language in self._others:
            return self._others[language].at(phrase, rate_hz)
        key = (phrase, rate_hz)
        if key not in self._at_rate:
            text, samples, from_hz = self._spoken.get(phrase) or ("", _tone(), _TONE_HZ)
            self._at_rate[key] = Spoken(text, resample(samples, from_hz, rate_hz))
        return self._at_rate[key]


async def _spoken(
    texts: Mapping[Phrase, str], voices: Sequence[TextToSpeech], language: str
) -> dict[Phrase, _Synthesised]:
    spoken: dict[Phrase, _Synthesised] = {}
    for phrase, written in texts.items():
        text = verbalize(written, language)
        for voice in voices if text else ():
            samples = await _patiently(voice, text, language, phrase)
            if samples is not None:
                spoken[phrase] = (text, samples, voice.rate_hz)
                break
    return spoken


async def _patiently(voice: TextToSpeech, text: str, language: str, phrase: Phrase) -> Pcm | None:
    """Synthesises `text`, with a second try after a retryable failure, since the phrase is kept for as long
    as the server runs. None after a failure."""
    for _ in range(2):
        try:
            return await synthesise(voice, text, language)
        except (EngineError, TimeoutError) as error:
            extra = {"phrase": phrase.value, "reason": str(error) or "not done in time"}
            log.warning("phrase could not be prepared", extra=extra)
            if not (isinstance(error, EngineError) and error.retryable):
                break
    return None


async def synthesise(voice: TextToSpeech, text: str, language: str) -> Pcm:
    """Synthesises all of `text`: int16 samples at the voice's rate. Raises `EngineError`, also for inaudible
    audio, and TimeoutError after `SYNTHESIS_LIMIT_S`."""
    chunks: list[Pcm] = []
    async with asyncio.timeout(SYNTHESIS_LIMIT_S):
        with contained("the voice"):
            async with closing(voice.speak(text, language=language)) as stream:
                async for chunk in stream:
                    chunks.append(chunk.samples)
            samples = np.concatenate(chunks) if chunks else np.empty(0, np.int16)
    if not is_audible(samples):
        raise EngineError("the voice said nothing", retryable=False)
    return samples


def _tone() -> Pcm:
    """400 ms of 440 Hz at -20 dBFS, with 20 ms ramps so that it does not click."""
    time_s = np.arange(_TONE_HZ * 4 // 10) / _TONE_HZ
    ramp = np.minimum(1.0, np.minimum(time_s, time_s[::-1]) / 0.02)
    return cast(Pcm, (3277 * ramp * np.sin(2 * np.pi * 440 * time_s)).astype(np.int16))
