"""Measures what an engine costs on this machine before the first call, in CPU time, so that other work on the
machine does not matter. Every measurement ends in bounded time."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.confinement.confined_process import close_pipes, how_it_ended, start_confined
from pipeline.errors import EngineError
from pipeline.tts.subprocess_voice import ProcessVoice

RECOGNIZER_S: Final = 25.0
"""The longest trial of a recogniser, in seconds, the first import of its libraries included."""

VOICE_S: Final = 10.0
"""The longest trial of a voice, in seconds; its start has a limit of its own."""

TEXT: Final = "21, 22, 23, 24."
"""The text of the trial: figures are read in any language, 3 to 5 s of speech."""

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class RecognizerTrial:
    """A recogniser's trial. `cpu_ms`: CPU time of a decode of 3 s by one thread; `problem`: why there was
    none; `passing`: a later trial may succeed, since the machine was too busy for this one."""

    cpu_ms: float = 0.0
    problem: str = ""
    passing: bool = False


@dataclass(frozen=True, slots=True)
class VoiceTrial:
    """A voice's trial. `cpu_ratio`: seconds of CPU per second of speech, for each of the callers while all of
    them wait; `problem`: why there was none; `passing`: as in `RecognizerTrial`."""

    cpu_ratio: float = 0.0
    problem: str = ""
    passing: bool = False


async def try_whisper(directory: Path, *, window_s: int, compute_type: str) -> RecognizerTrial:
    """Measures a decode with the model in `directory`, in a process that ends with the trial."""
    arguments = (str(directory), str(window_s), compute_type)
    try:
        async with (
            asyncio.timeout(RECOGNIZER_S),
            _running("pipeline.stt.whisper.trial", *arguments) as process,
        ):
            written, _ = await process.communicate()
            status = await process.wait()
    except TimeoutError:
        return RecognizerTrial(problem=f"no decode in {RECOGNIZER_S:.0f} s", passing=True)
    except OSError as error:
        return RecognizerTrial(problem=f"its trial does not start: {error.strerror or error}")
    try:
        read = json.loads(written.decode().splitlines()[-1])
        return RecognizerTrial(float(read.get("cpu_ms", 0.0)), str(read.get("problem", "")))
    except (ValueError, IndexError):
        return RecognizerTrial(problem=how_it_ended(status))


async def try_voice(voice: ProcessVoice, *, language: str, callers: int) -> VoiceTrial:
    """Measures the started `voice` with `callers` at once, each of whom waits for all of the speech."""
    before_s = await asyncio.to_thread(cpu_s, voice.pid)
    try:
        async with asyncio.timeout(VOICE_S):
            seconds = await asyncio.gather(*(_spoken_s(voice, language) for _ in range(callers)))
    except TimeoutError:
        problem = f"not through with {callers * 4} s of speech in {VOICE_S:.0f} s"
        return VoiceTrial(problem=problem, passing=True)
    except EngineError as error:
        return VoiceTrial(problem=str(error))
    longest_s = max(seconds)
    if longest_s <= 0:
        return VoiceTrial(problem="it says nothing")
    return VoiceTrial((await asyncio.to_thread(cpu_s, voice.pid) - before_s) / longest_s)


def cpu_s(pid: int | None) -> float:
    """Returns the CPU time in seconds that a process has used, 0 for one that does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * _TICK_S


async def _spoken_s(voice: ProcessVoice, language: str) -> float:
    samples = 0
    async for chunk in voice.speak(TEXT, language=language):
        samples += len(chunk.samples)
    return samples / voice.rate_hz


@asynccontextmanager
async def _running(module: str, *arguments: str) -> AsyncIterator[Process]:
    """Runs a process for the length of the block, and kills it then."""
    process = await start_confined(module, *arguments, stdin=DEVNULL, stderr=DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        close_pipes(process)
