"""Measures cost and first sound of each local voice: `python -m bench voices`.

The voices speak in turn, sentence by sentence, several rounds, so that the machine's noise affects all; the
first is the baseline. CPU time is that of the voice's process."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from bench import report
from mediaserver.engine_pool.warm_up import cpu_s
from pipeline.errors import EngineMissing
from pipeline.registry import load
from pipeline.tts.subprocess_voice import ProcessVoice

VOICES: Final = ("espeak-ng", "piper", "kokoro")

TEXTS: Final = {
    3: "Yes, one moment.",
    10: "Thank you, your appointment is on Monday morning at nine.",
    25: "I have found your parcel, it left the depot this morning and it will be with you between two and "
    "four in the afternoon today, alright?",
}
"""Texts by number of words."""


@dataclass(slots=True)
class Figures:
    """The figures of one voice: seconds until the first sound by words, CPU seconds and seconds of speech in
    all."""

    first_s: dict[int, list[float]] = field(default_factory=lambda: {words: [] for words in TEXTS})
    cpu_s: float = 0.0
    wall_s: float = 0.0
    speech_s: float = 0.0
    rss_mb: int = 0
    start_s: float = 0.0


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Rounds of all sentences for each voice.")
@click.option("--short", is_flag=True, help="Run one round.")
def main(rounds: int, short: bool) -> None:
    """CPU, first sound and memory of the voices that need no network; results/voices.json."""
    figures = asyncio.run(measure(1 if short else rounds))
    report.show("local voices", COLUMNS, rows(figures))
    load_1m = os.getloadavg()[0]
    saved = [{"voice": name, **dict(zip(COLUMNS[1:], row[1:], strict=True))} for name, row in _named(figures)]
    report.save("voices", {"load_1m": round(load_1m, 1), "rounds": 1 if short else rounds, "voices": saved})


COLUMNS: Final = (
    "voice", "CPU s a s of speech", "of wall", *(f"first sound ms, {words} words" for words in TEXTS),
    "RSS MB", "start s",
)  # fmt: skip


async def measure(rounds: int) -> dict[str, Figures]:
    """Returns the figures by voice, without those that this machine lacks."""
    voices: dict[str, Any] = {}
    figures: dict[str, Figures] = {}
    try:
        for name in VOICES:
            began = time.perf_counter()
            try:
                voice = load("tts", name, {})
                await voice.start()
            except EngineMissing as error:
                click.echo(str(error))
                continue
            voices[name], figures[name] = voice, Figures(start_s=time.perf_counter() - began)
        for _ in range(rounds):
            for words, text in TEXTS.items():
                for name, voice in voices.items():
                    await _say(voice, words, text, figures[name])
        for name, voice in voices.items():
            figures[name].rss_mb = _status_mb(_pid(voice), "VmRSS")
    finally:
        for voice in voices.values():
            await voice.close()
    return figures


async def _say(voice: ProcessVoice, words: int, text: str, into: Figures) -> None:
    pid = _pid(voice)
    cpu, began, first = cpu_s(pid), time.perf_counter(), 0.0
    async for chunk in voice.speak(text, language="en"):
        first = first or time.perf_counter() - began
        into.speech_s += len(chunk.samples) / getattr(voice, "rate_hz", 1)
    into.wall_s += time.perf_counter() - began
    into.cpu_s += cpu_s(pid) - cpu
    into.first_s[words].append(first)


def rows(figures: dict[str, Figures]) -> list[list[object]]:
    """Returns one row per voice."""
    return [row for _, row in _named(figures)]


def _named(figures: dict[str, Figures]) -> list[tuple[str, list[object]]]:
    return [
        (
            name,
            [
                name,
                round(each.cpu_s / each.speech_s, 4),
                round(each.wall_s / each.speech_s, 4),
                *(round(1000 * statistics.median(taken)) for taken in each.first_s.values()),
                each.rss_mb,
                round(each.start_s, 1),
            ],
        )
        for name, each in figures.items()
    ]


def _pid(voice: ProcessVoice) -> int:
    process = voice._process
    assert process is not None
    assert process.pid is not None
    return process.pid


def _status_mb(pid: int, name: str) -> int:
    line = next(
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(name)
    )
    return int(line.split()[1]) // 1024
