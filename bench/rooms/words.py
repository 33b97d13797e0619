"""Measures how far the agent's text is from its voice in LiveKit's Python SDK: `python -m bench rooms-words`.

The voice is found in what the client heard by the envelope of the same sentences, synthesised here with
espeak-ng, whose word times are the truth. Two voices: espeak-ng with its word times, and the same voice
without them, whose words are placed by the share of the sentence that was played."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

import click
import numpy as np
import numpy.typing as npt

from bench import report
from bench.rooms.join import told_by
from bench.rooms.words_client import RATE_HZ
from pipeline.audio.resample import resample
from pipeline.speech import SpeechChunk
from pipeline.text.normalise import verbalize
from pipeline.text.sentences import sentences
from pipeline.tts.espeak import Espeak

Wave = npt.NDArray[np.float64]

TARGET_MS: Final = 150.0
"""The longest delay between a word and its sound, at the 95th percentile, in milliseconds."""

STEP_MS: Final = 5

TEXT: Final = (
    "Good morning, this is the appointment desk of the clinic in Harbour Street. "
    "I am calling because your examination on Thursday has to be moved. "
    "The doctor is away that day, and we would like to offer you Friday afternoon instead. "
    "If that is not possible, there are three other days in the following week. "
    "Please bring your insurance card, a list of the medicines that you take, and your doctor's letter. "
    "Parking is free for patients, but the garage closes early. Thank you, and goodbye."
)


class Wordless:
    """Espeak-ng without its word times."""

    def __init__(self, voice: Espeak) -> None:
        self._voice = voice

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Makes the voice of espeak-ng's settings."""
        return cls(Espeak.from_settings(settings))

    @property
    def rate_hz(self) -> int:
        """Espeak-ng's rate."""
        return self._voice.rate_hz

    async def start(self) -> None:
        """Starts espeak-ng."""
        await self._voice.start()

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        """Gives espeak-ng's chunks without their words."""
        async for chunk in self._voice.speak(text, language=language):
            yield replace(chunk, words=())

    async def close(self) -> None:
        """Ends espeak-ng."""
        await self._voice.close()


VOICES: Final = {"word times": "espeak-ng", "by proportion": "bench.rooms.words:Wordless"}


async def spoken() -> tuple[Wave, list[float]]:
    """Returns the voice at 16 kHz, and the second at which each word begins."""
    voice = Espeak.from_settings({})
    await voice.start()
    parts, begins, at = [], list[float](), 0
    for sentence in sentences(verbalize(TEXT, "en"), shortest=24):
        async for chunk in voice.speak(sentence, language="en"):
            begins += [(at + word.start) / voice.rate_hz for word in chunk.words]
            parts.append(chunk.samples)
        at = sum(len(part) for part in parts)
    await voice.close()
    return resample(np.concatenate(parts), voice.rate_hz, RATE_HZ).astype(np.float64), begins


def envelope(samples: Wave) -> Wave:
    """Returns the level of every `STEP_MS`, in decibels above silence."""
    size = RATE_HZ * STEP_MS // 1000
    blocks = samples[: len(samples) // size * size].reshape(-1, size)
    level: Wave = np.log10(1.0 + np.sqrt(np.mean(blocks**2, axis=1)))
    return level


def delays_ms(heard: Wave, told: Mapping[str, Any], voice: Wave, begins: list[float]) -> list[float]:
    """Returns the milliseconds from each word's sound to the moment at which its text came."""
    wanted = envelope(voice)
    match = np.correlate(envelope(heard), wanted - wanted.mean(), mode="valid")
    offset_s = float(np.argmax(match)) * STEP_MS / 1000
    frame_s, came = 0.01, [at for at, *_ in _growing(told["texts"])]
    sounds = [told["frames"][int((offset_s + begin) / frame_s)] for begin in begins]
    return [(text - sound) * 1000 for text, sound in zip(came, sounds, strict=True)]


def _growing(texts: list[tuple[float, str, str, bool]]) -> list[tuple[float, str]]:
    """Returns when each word of all segments came first, in order."""
    shown: dict[str, int] = {}
    words: list[tuple[float, str]] = []
    for at, segment, text, _ in texts:
        said, before = text.split(), shown.get(segment, 0)
        words += [(at, word) for word in said[before:]]
        shown[segment] = max(before, len(said))
    return words


def measure(engine: str, voice: Wave, begins: list[float]) -> list[float]:
    """Runs a server and one client; returns the delay of each word in milliseconds."""

    def edit(config: str) -> str:
        config = config.replace('engine = "espeak-ng"', f'engine = "{engine}"')
        script = f'say = "{TEXT}"\naction = "hang_up"\n[overload]\nlag_ms = 0.0\n'
        return config[: config.index('say = "Good morning."')] + script

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        directory = Path(scratch)
        heard = directory / "heard.raw"
        told = told_by("bench.rooms.words_client", str(heard), directory=directory, edit=edit)
        samples = np.fromfile(heard, np.int16).astype(np.float64)
    return delays_ms(samples, told, voice, begins)


@click.command()
@click.option("--rounds", default=2, show_default=True)
def main(rounds: int) -> None:
    """Measures the delay between the agent's words and their text, in LiveKit's Python SDK."""
    voice, begins = asyncio.run(spoken())
    found: dict[str, list[float]] = {name: [] for name in VOICES}
    for _ in range(rounds):
        for name, engine in VOICES.items():
            found[name] += measure(engine, voice, begins)
    figures = {name: _figures(delays) for name, delays in found.items()}
    rows = [(name, *each.values()) for name, each in figures.items()]
    report.show(
        f"rooms: {len(begins)} words {rounds} times, text after sound in ms (target: off p95 {TARGET_MS:g})",
        ["voice", "p50", "p95", "max", "earliest", "off p95"],
        rows,
    )
    report.save("rooms-words", {"words": len(begins), "rounds": rounds, "target_ms": TARGET_MS} | figures)


def _figures(delays: list[float]) -> dict[str, float]:
    off = [abs(delay) for delay in delays]
    return {
        "p50": round(float(np.median(delays)), 1),
        "p95": round(float(np.percentile(delays, 95)), 1),
        "max": round(max(delays), 1),
        "earliest": round(min(delays), 1),
        "off_p95": round(float(np.percentile(off, 95)), 1),
    }


if __name__ == "__main__":
    main()
