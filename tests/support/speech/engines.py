"""Voices for the recognisers' tests: espeak-ng and flite, over a telephone line."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import numpy as np

from bench.embedded_stt.corpus import on_the_line
from mediaserver.demo import persona
from pipeline.audio import Pcm
from pipeline.audio.resample import resample
from pipeline.audio.wav import read
from pipeline.engines.guard import GuardedVoice
from pipeline.speech import Listening
from pipeline.tts.espeak import Espeak

LINE_HZ = 8000


async def espeak(voice: Espeak | GuardedVoice, text: str, *, language: str = "en") -> Pcm:
    """`text` at the voice's rate."""
    return np.concatenate([chunk.samples async for chunk in voice.speak(text, language=language)])


async def flite(text: str, directory: Path, *, voice: str = "slt") -> Pcm:
    """`text` at 16 kHz by flite, whose voices are made of people's."""
    path = directory / "flite.wav"
    command = ("flite", "-voice", voice, "-t", text, "-o", str(path))
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    samples, rate_hz = read(path)
    return resample(samples, rate_hz, 16000)


def over_the_line(samples: Pcm, rate_hz: int) -> Pcm:
    """`samples` as a telephone delivers them: 8 kHz, µ-law, with a pause before and behind."""
    return on_the_line(samples, rate_hz, after_ms=400)


def push(listening: Listening, samples: Pcm) -> None:
    """Pushes in frames of 20 ms, as a leg does."""
    for start in range(0, len(samples), LINE_HZ // 50):
        listening.push(samples[start : start + LINE_HZ // 50])


def word_errors(reference: str, heard: str) -> int:
    """Words to insert, delete or replace (Levenshtein)."""
    return persona.word_errors(reference, heard)[0]
