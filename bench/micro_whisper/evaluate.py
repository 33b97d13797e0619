"""Measures the word error rate of a model, by voice and line, through the server's own engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from bench.micro_whisper.corpus import PHRASES, unseen
from bench.micro_whisper.data import RATE_HZ, Floats, Voices, noisy, over_the_line
from mediaserver.demo.persona import word_errors
from pipeline.stt.faster_whisper import FasterWhisper

_HISS = np.random.default_rng(0)


def conditions() -> dict[str, Callable[[Floats], Floats]]:
    """Returns the lines between the voice and the recogniser."""
    return {
        "16 kHz": lambda samples: samples,
        "8 kHz µ-law": over_the_line,
        "16 kHz, 20 dB": lambda samples: noisy(samples, 20, _hiss(samples)),
        "8 kHz µ-law, 15 dB": lambda samples: over_the_line(noisy(samples, 15, _hiss(samples))),
    }


def speakers(voices: Voices) -> dict[str, Callable[[str], Floats]]:
    """Returns the voices to measure with: f3, klatt2 and slt were not in the training."""
    chosen: dict[str, Callable[[str], Floats]] = {
        name: lambda text, name=name: voices.espeak(text, voice=name)  # type: ignore[misc]
        for name in ("en-us", "en-gb", "en-us+f3", "en-us+klatt2")
    }
    if voices.has_flite:
        for name in ("kal16", "slt"):
            chosen[f"flite {name}"] = lambda text, name=name: voices.flite(text, voice=name)  # type: ignore[misc]
    return chosen


async def measure(engine: FasterWhisper, voices: Voices, texts: list[str]) -> Table:
    """Measures the percentage of wrong words."""
    table = Table(title=f"% of words wrong, {len(texts)} texts")
    table.add_column("voice")
    lines = conditions()
    for name in lines:
        table.add_column(name, justify="right")
    for name, speak in speakers(voices).items():
        row = []
        for line in lines.values():
            wrong = 0
            for text in texts:
                padded = np.pad(speak(text), (RATE_HZ * 3 // 10, RATE_HZ * 4 // 10))
                pcm = (line(padded).clip(-1, 1) * 32767).astype(np.int16)
                wrong += word_errors(text, (await engine.decode(pcm, RATE_HZ, "en", None)).text)[0]
            row.append(f"{100 * wrong / sum(len(text.split()) for text in texts):.1f}")
        table.add_row(name, *row)
    return table


async def _measure_all(model: Path, window_s: int) -> list[Table]:
    engine = FasterWhisper.from_settings(
        {"model": str(model), "encoder_window_s": window_s, "min_confidence": 0, "threads": 1}
    )
    await engine.start()
    voices = Voices()
    try:
        combinations = unseen(random.Random(99), 40)
        return [await measure(engine, voices, texts) for texts in (list(PHRASES), combinations)]
    finally:
        await engine.close()


def _hiss(samples: Floats) -> Floats:
    return _HISS.standard_normal(len(samples)).astype(np.float32)


@click.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--window", default=1, show_default=True, help="encoder_window_s")
def main(*, model: Path, window: int) -> None:
    """Measures the model in the directory MODEL."""
    for table in asyncio.run(_measure_all(model, window)):
        Console().print(table)
