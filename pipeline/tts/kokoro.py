"""Text to speech by Kokoro (82 M parameters, StyleTTS 2), from local files, in a helper process.

The model runs on onnxruntime, with the int8 weights and the voices of the extra `local` (300 MB, English),
or, where `model` names a file, on torch with the published weights (the extra `kokoro`: 1 to 2 GB, a GPU, six
languages). The model makes whole chunks only, at 0.3 to 0.7 of real time on a CPU core, so the first chunk is
two to four words and the others are short sentences. Kokoro speaks no Arabic: an agent that does needs
another voice, or espeak-ng as a fallback. docs/design.md has the measured figures.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationInfo, field_validator

from pipeline.engines.local_weights import INSTALL, KOKORO, KOKORO_SHA256, whole_files
from pipeline.engines.tables import EngineTable, read_table
from pipeline.errors import EngineMissing, LanguageRefused
from pipeline.tts.clauses import pieces
from pipeline.tts.subprocess_client import VoiceProgram
from pipeline.tts.subprocess_voice import Piece, ProcessVoice

RATE_HZ: Final = 24000

LANGUAGES: Final[Mapping[str, str]] = {
    "en": "en-us", "en-us": "en-us", "en-gb": "en-gb", "es": "es", "fr": "fr-fr", "hi": "hi", "it": "it",
    "pt": "pt-br", "pt-br": "pt-br",
}  # fmt: skip
"""espeak-ng's name for the phonemes of each language (the model's Japanese and Chinese need dictionaries)."""

FIRST_WORDS: Final = 4
"""Most words of the first chunk, for whose whole synthesis the caller waits."""

CHUNK_CHARACTERS: Final = 110
"""Most characters of a chunk, about 100 phonemes and 7 s of speech: longer chunks cost more time and memory
for each second of speech."""

LOCAL_VOICE: Final = "jm_kumo"
"""The default of the five voices: Whisper recognises its every word over a telephone line."""


class KokoroSettings(EngineTable):
    """The options of Kokoro. `model`, `config`, `voice`: the files kokoro-v1_0.pth, config.json and
    voices/NAME.pt; without `model`, `voice` is a name of the extra `local`: jm_kumo, jf_alpha, jf_gongitsune,
    jf_nezumi, jf_tebukuro. `language`: of the voice; "": that of the call. `speed`: 0.5 to 2. `device`: "cpu"
    or "cuda". `threads`: number of CPU threads."""

    model: str = ""
    config: str = Field(default="", validate_default=True)
    voice: str = Field(default="", validate_default=True)
    language: Literal["", "en", "en-us", "en-gb", "es", "fr", "hi", "it", "pt", "pt-br"] = ""
    speed: float = Field(default=1.0, ge=0.5, le=2)
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = Field(default=1, ge=1, le=64)

    @field_validator("config", "voice")
    @classmethod
    def _of_the_model(cls, path: str, info: ValidationInfo) -> str:
        if info.data.get("model") and not path:
            raise ValueError("names a local file of the model; there is no default")
        if info.field_name == "config" and path and not info.data.get("model"):
            raise ValueError("goes with `model`")
        return path

    @field_validator("device")
    @classmethod
    def _with_weights(cls, device: str, info: ValidationInfo) -> str:
        if device != "cpu" and not info.data.get("model"):
            raise ValueError("a GPU needs `model`: the weights of the extra `local` are for the CPU")
        return device


class Kokoro(ProcessVoice):
    """A Kokoro voice (`pipeline.speech.TextToSpeech`). Voices of one directory, model, device and number of
    threads share the process."""

    def __init__(self, settings: KokoroSettings) -> None:
        super().__init__(program(settings))
        self.settings = settings

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Kokoro:
        """Keys: those of `KokoroSettings`. Raises `SettingsRefused`."""
        unnamed = not settings.get("model") and settings.get("voice", "") == ""
        local = {"voice": LOCAL_VOICE} if unnamed else {}
        return cls(read_table("kokoro", KokoroSettings, {**settings, **local}))

    @property
    def rate_hz(self) -> int:
        """Sample rate of the model: 24000 Hz."""
        return RATE_HZ

    async def start(self) -> None:
        """Checks the files, starts or shares the process, and tries the voice. Raises `EngineMissing`."""
        self._program = await asyncio.to_thread(_checked, self.settings)
        await super().start()

    @property
    def _trial_language(self) -> str:
        return self.settings.language or "en"

    def _pieces(self, text: str, language: str) -> Iterator[Piece]:
        settings = self.settings
        spoken = settings.language or language.lower()
        phonemes_of = LANGUAGES.get(spoken) or LANGUAGES.get(spoken.partition("-")[0])
        if phonemes_of is None or not (settings.model or phonemes_of.startswith("en-")):
            raise LanguageRefused(f"kokoro does not speak {language!r}")
        for piece in pieces(text, longest=CHUNK_CHARACTERS, opening_words=FIRST_WORDS):
            request = {
                "text": piece,
                "voice": settings.voice,
                "speed": settings.speed,
                "language": phonemes_of,
            }
            yield Piece(piece, request)


def _checked(settings: KokoroSettings) -> VoiceProgram:
    """Gives the process for the settings, after a check of its files. Raises `EngineMissing`."""
    if not settings.model:
        return _local_program(settings)
    for path in (settings.model, settings.config, settings.voice):
        if not Path(path).is_file():
            raise EngineMissing(f"there is no file {path}")
    if find_spec("kokoro") is None:
        raise EngineMissing("not installed: pip install 'openline-mediaserver[kokoro]'")
    return program(settings)


def _local_program(settings: KokoroSettings) -> VoiceProgram:
    if find_spec("onnxruntime") is None:
        raise EngineMissing(f"onnxruntime is not installed: {INSTALL}")
    files = whole_files(KOKORO)
    arguments = {
        "parts": [str(path) for name, path in files.items() if name.startswith("part ")],
        "sha256": KOKORO_SHA256,
        "voices": str(files["voices"]),
        "vocabulary": str(files["vocabulary"]),
        "threads": settings.threads,
    }
    return VoiceProgram(
        "kokoro",
        "pipeline.tts.onnx.process",
        start_s=55.0,
        hung_s=30.0,
        arguments=("kokoro", json.dumps(arguments, sort_keys=True)),
    )


def program(settings: KokoroSettings) -> VoiceProgram:
    """Gives the process of the model on torch for the settings, shared by equal settings. The process may
    read voices of one directory only."""
    wanted = settings.model_dump(include={"model", "config", "device", "threads"})
    wanted["voices"] = str(Path(settings.voice).parent)
    return VoiceProgram(
        "kokoro",
        "pipeline.tts.kokoro_process",
        start_s=55.0,  # imports take 5 s on an idle core
        hung_s=30.0,  # the longest chunk takes 4 s on an idle core
        arguments=(json.dumps(wanted, sort_keys=True),),
    )
