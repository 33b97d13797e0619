"""Text to speech by a Piper voice (VITS), from local files, in a process of its own.

It makes speech at 0.05 to 0.1 of real time on one CPU core, a clause at a time. The voice that comes with the
extra `local` speaks English; any other voice of Piper's, with its JSON beside it, is named by its path. The
program piper itself is not used: onnxruntime runs the voice, and libespeak-ng (GPL-3) gives its phonemes,
both in that process only.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from pipeline.engines.local_weights import INSTALL, PIPER, whole_files
from pipeline.engines.tables import EngineTable, read_table
from pipeline.errors import EngineMissing, LanguageRefused
from pipeline.tts.clauses import pieces
from pipeline.tts.subprocess_client import VoiceProgram
from pipeline.tts.subprocess_voice import Piece, ProcessVoice

PIECE_CHARACTERS: Final = 110
"""About 7 s of speech and half a second of a core, for which a piece keeps other callers waiting."""

_RATE_HZ: Final = 22050

_NOT_STARTED: Final = VoiceProgram("piper", "pipeline.tts.onnx.process", start_s=30.0, hung_s=8.0)
"""It starts in one second of an idle core, and its longest piece takes half a second of one. On a machine
with seven times its work that is 4 s, and a voice that is merely late must not be ended for it: a session
asks the next voice after 1.5 s."""


class PiperSettings(EngineTable):
    """`model`: a voice's .onnx with its .onnx.json beside it; "": the one of the extra `local`. `speaker`: of
    a voice that has several. `speed`: 0.5 to 2. `threads`: of the CPU."""

    model: str = ""
    speaker: int = Field(default=0, ge=0, le=9999)
    speed: float = Field(default=1.0, ge=0.5, le=2)
    threads: int = Field(default=1, ge=1, le=64)


@dataclass(frozen=True, slots=True)
class _Voice:
    """What is known of a voice before its process runs."""

    program: VoiceProgram
    rate_hz: int
    language: str


class Piper(ProcessVoice):
    """A voice. Equal models share the process."""

    def __init__(self, settings: PiperSettings | None = None) -> None:
        super().__init__(_NOT_STARTED)
        self.settings = settings or PiperSettings()
        self._rate_hz = _RATE_HZ
        self._language = PIPER.languages[0]

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Piper:
        """Keys: those of `PiperSettings`. Raises `SettingsRefused`."""
        return cls(read_table("piper", PiperSettings, settings))

    @property
    def rate_hz(self) -> int:
        """The voice's: 22050 for most, 16000 for the small ones. Known after `start`."""
        return self._rate_hz

    async def start(self) -> None:
        """Checks the files, starts or shares the process, and tries the voice. Raises `EngineMissing`."""
        voice = await asyncio.to_thread(_voice, self.settings)
        self._program, self._rate_hz, self._language = voice.program, voice.rate_hz, voice.language
        await super().start()

    @property
    def _trial_language(self) -> str:
        return self._language

    def _pieces(self, text: str, language: str) -> Iterator[Piece]:
        if language.lower().partition("-")[0] != self._language:
            raise LanguageRefused(f"this voice of piper speaks {self._language!r}, not {language!r}")
        for piece in pieces(text, longest=PIECE_CHARACTERS):
            yield Piece(
                piece, {"text": piece, "speed": self.settings.speed, "speaker": self.settings.speaker}
            )


def _voice(settings: PiperSettings) -> _Voice:
    """Reads and checks the files of a voice. Raises `EngineMissing`."""
    if find_spec("onnxruntime") is None:
        raise EngineMissing(f"onnxruntime is not installed: {INSTALL}")
    model, config = _files(settings)
    try:
        read = json.loads(config.read_text())
        rate_hz, language = int(read["audio"]["sample_rate"]), str(read["espeak"]["voice"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EngineMissing(f"{config} does not describe a voice ({type(error).__name__})") from error
    arguments = {
        "model": str(model.resolve()),
        "config": str(config.resolve()),
        "threads": settings.threads,
    }
    program = VoiceProgram(
        _NOT_STARTED.name,
        _NOT_STARTED.module,
        start_s=_NOT_STARTED.start_s,
        hung_s=_NOT_STARTED.hung_s,
        arguments=("piper", json.dumps(arguments, sort_keys=True)),
    )
    return _Voice(program, rate_hz, language.lower().partition("-")[0])


def _files(settings: PiperSettings) -> tuple[Path, Path]:
    if not settings.model:
        files = whole_files(PIPER)
        return files["onnx"], files["onnx.json"]
    model = Path(settings.model)
    config = model.with_name(f"{model.name}.json")
    for path in (model, config):
        if not path.is_file():
            raise EngineMissing(f"there is no file {path}")
    return model, config
