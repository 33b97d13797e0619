"""Synthesises the called person's sentences before the call: a voice at half of real time would be late in
it.

`python -m mediaserver.demo.sentences --speech local DIRECTORY` makes the files that are missing, and prints a
line for each: 15 s of a core with Kokoro, once on a machine."""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import numpy as np

from mediaserver.demo.persona import PATIENTS
from mediaserver.demo.speech import Speech
from pipeline.audio import Pcm, wav
from pipeline.engines.local_weights import KOKORO_SHA256
from pipeline.speech import TextToSpeech
from pipeline.tts.espeak import Espeak
from pipeline.tts.kokoro import Kokoro

WOMAN: Final = "jf_gongitsune"
"""The woman's voice of Kokoro's by pip whose sentences Whisper understands best over a telephone."""

_PEAK: Final = 16000
"""The peak of every sentence: half of full scale, like a person at a telephone."""


def file_of(directory: Path, speech: Speech, text: str) -> Path:
    """Returns the path of the sentence's file. Another voice or model has another name."""
    voice = f"{WOMAN} {KOKORO_SHA256}" if speech is Speech.LOCAL else "en-us+f3"
    name = hashlib.sha256(f"{voice} {_PEAK} {text}".encode()).hexdigest()[:16]
    return directory / f"{name}.wav"


def missing(directory: Path, speech: Speech) -> list[str]:
    """Returns the sentences without a file, in the order of the talk."""
    return [line.say for line in PATIENTS[speech] if not file_of(directory, speech, line.say).exists()]


async def synthesise(directory: Path, speech: Speech) -> None:
    """Makes the missing files, each whole or not at all; prints the progress."""
    texts, of = missing(directory, speech), len(PATIENTS[speech])
    voice: TextToSpeech = (
        Kokoro.from_settings({"voice": WOMAN})
        if speech is Speech.LOCAL
        else Espeak.from_settings({"voice": "en-us+f3", "pitch": 60})
    )
    directory.mkdir(parents=True, exist_ok=True)
    await voice.start()
    try:
        for done, text in enumerate(texts, of - len(texts) + 1):
            chunks = [chunk.samples async for chunk in voice.speak(text, language="en")]
            _write(file_of(directory, speech, text), _levelled(np.concatenate(chunks)), voice.rate_hz)
            print(done, of, flush=True)
    finally:
        await voice.close()


def _levelled(samples: Pcm) -> Pcm:
    """Returns `samples` scaled to the peak `_PEAK`."""
    loudest = max(1, int(np.abs(samples.astype(np.int32)).max()))
    return (samples.astype(np.float32) * (_PEAK / loudest)).astype(np.int16)


def _write(path: Path, samples: Pcm, rate_hz: int) -> None:
    part = path.with_suffix(f".{os.getpid()}")
    try:
        wav.write(part, samples, rate_hz)
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


@click.command()
@click.option("--speech", type=click.Choice([each.value for each in Speech]), required=True)
@click.argument("directory", type=click.Path(path_type=Path))
def main(speech: str, directory: Path) -> None:
    """Makes the missing files in DIRECTORY."""
    asyncio.run(synthesise(directory, Speech(speech)))


if __name__ == "__main__":
    main()
