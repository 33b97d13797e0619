"""Text to speech by a Piper voice (VITS), from local files, in a helper process.

Synthesis takes 0.05 to 0.1 of real time on one CPU core, a clause at a time. The voice of the extra `local`
speaks English; any other Piper voice, with its JSON beside it, is configured by path. The program `piper` is
not used: onnxruntime runs the voice, and libespeak-ng (GPL-3) gives the phonemes, both in the helper process
only.
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
"""Most characters of a piece: about 7 s of speech and 0.5 s of a core, in which other callers wait."""

_RATE_HZ: Final = 22050

_NOT_STARTED: Final = VoiceProgram("piper", "pipeline.tts.onnx.process", start_s=30.0, hung_s=8.0)
"""The helper process before its arguments are known. It starts in 1 s on an idle core, and the longest piece
takes 0.5 s, or 4 s on a machine with seven times too much work; `hung_s` is longer, so that a late voice is
not killed, while a session asks the next voice after 1.5 s."""


class PiperSettings(EngineTable):
    """The options of Piper. `model`: a voice's .onnx with its .onnx.json beside it; "": the voice of the
    extra `local`. `speaker`: number of the speaker in a voice with several. `speed`: 0.5 to 2. `threads`:
    number of CPU threads."""

    model: str = ""
    speaker: int = Field(default=0, ge=0, le=9999)
    speed: float = Field(default=1.0, ge=0.5, le=2)
    threads: int = Field(default=1, ge=1, le=64)


@dataclass(frozen=True, slots=True)
class _Voice:
    """The program, rate and language of a voice, from its files."""

    program: VoiceProgram
    rate_hz: int
    language: str


class Piper(ProcessVoice):
    """A Piper voice (`pipeline.speech.TextToSpeech`). Voices of equal models share the process."""

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
        """The voice's rate in Hz: 22050 for most, 16000 for small ones; valid after `start`."""
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
