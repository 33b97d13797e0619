"""Text to speech by Kokoro (82 M parameters, StyleTTS 2), from local files, in a process of its own.

The model makes whole chunks only, at 0.3 to 0.5 of real time on a CPU core, so the first chunk is two to four
words and the others are short sentences; a GPU is needed for more than two calls a core. The process imports
for five seconds and holds 1 to 2 GB. It speaks no Arabic: an agent that does needs another voice, or
espeak-ng behind this one. Measured figures: docs/design.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from pipeline.engines.espeak_text import sentences
from pipeline.engines.options import Options
from pipeline.engines.voice_process import VoiceProgram
from pipeline.engines.voice_speech import Piece, ProcessVoice
from pipeline.errors import EngineMissing, EngineRefused

RATE_HZ: Final = 24000

LANGUAGES: Final[Mapping[str, str]] = {
    "en": "en-us", "en-us": "en-us", "en-gb": "en-gb", "es": "es", "fr": "fr-fr", "hi": "hi", "it": "it",
    "pt": "pt-br", "pt-br": "pt-br",
}  # fmt: skip
"""espeak-ng's phonemes for each language the model knows (Japanese and Chinese need dictionaries of their
own)."""

FIRST_WORDS: Final = 4
"""Length of the first chunk: what the caller waits for is the synthesis of all of it."""

CHUNK_CHARACTERS: Final = 110
"""About 100 phonemes and 7 s of speech: longer chunks cost more time and memory for each second of speech."""

_CLAUSE: Final = re.compile(r"(?<=[,;:،])\s+")


@dataclass(frozen=True, slots=True)
class KokoroSettings:
    """`model`, `config`, `voice`: the files kokoro-v1_0.pth, config.json and voices/NAME.pt. `language`: of
    the voice, where it is not the call's. `speed`: 0.5 to 2. `device`: "cpu" or "cuda". `threads`: of the
    CPU."""

    model: str
    config: str
    voice: str
    language: str = ""
    speed: float = 1.0
    device: str = "cpu"
    threads: int = 1


class Kokoro(ProcessVoice):
    """A voice. Voices of one directory, model, device and number of threads share the process."""

    def __init__(self, settings: KokoroSettings) -> None:
        super().__init__(program(settings))
        self.settings = settings

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Kokoro:
        """Keys: those of `KokoroSettings`; model, config and voice are required. Raises `SettingsRefused`."""
        options = Options("kokoro", settings)
        paths = {name: options.text(name) for name in ("model", "config", "voice")}
        for name, path in paths.items():
            if not path:
                options.wrong(name, "names a local file of the model; there is no default")
        read = KokoroSettings(
            **paths,
            language=options.text("language", choices=tuple(LANGUAGES)),
            speed=options.number("speed", 1.0, low=0.5, high=2.0),
            device=options.text("device", "cpu", choices=("cpu", "cuda")),
            threads=options.integer("threads", 1, low=1, high=64),
        )
        options.finish()
        return cls(read)

    @property
    def rate_hz(self) -> int:
        """24000."""
        return RATE_HZ

    async def start(self) -> None:
        """Starts or shares the process, loads the model, and tries the voice. Raises `EngineMissing`."""
        _check(self.settings)
        await super().start()

    def _pieces(self, text: str, language: str) -> Iterator[Piece]:
        settings = self.settings
        spoken = settings.language or language.lower()
        phonemes_of = LANGUAGES.get(spoken) or LANGUAGES.get(spoken.partition("-")[0])
        if phonemes_of is None:
            raise EngineRefused(f"kokoro does not speak {language!r}")
        for piece in pieces(text):
            request = {
                "text": piece,
                "voice": settings.voice,
                "speed": settings.speed,
                "language": phonemes_of,
            }
            yield Piece(piece, request)


def _check(settings: KokoroSettings) -> None:
    for path in (settings.model, settings.config, settings.voice):
        if not Path(path).is_file():
            raise EngineMissing(f"kokoro: there is no file {path}")
    if find_spec("kokoro") is None:
        raise EngineMissing("kokoro is not installed: pip install 'openline-mediaserver[kokoro]'")


def program(settings: KokoroSettings) -> VoiceProgram:
    """The process that settings need; equal ones share it. It reads voices of one directory only."""
    wanted = {name: asdict(settings)[name] for name in ("model", "config", "device", "threads")}
    wanted["voices"] = str(Path(settings.voice).parent)
    return VoiceProgram(
        "kokoro",
        "pipeline.engines.kokoro_process",
        start_s=55.0,  # imports alone take five seconds of an idle core
        hung_s=30.0,  # the longest chunk takes four on an idle core
        arguments=(json.dumps(wanted, sort_keys=True),),
    )


def pieces(text: str) -> list[str]:
    """`text` in chunks: the first of two to four words, then sentences, long ones cut at a clause or a
    space."""
    found: list[str] = []
    for sentence in sentences(text):
        found += _opening(sentence) if not found else [sentence]
    return [short for piece in found for short in _shortened(piece)]


def _opening(sentence: str) -> list[str]:
    words = sentence.split()
    if len(words) <= 2 * FIRST_WORDS:
        return [sentence]
    clause = _CLAUSE.split(sentence, maxsplit=1)[0].split()
    first = len(clause) if 2 <= len(clause) <= FIRST_WORDS else FIRST_WORDS
    return [" ".join(words[:first]), " ".join(words[first:])]


def _shortened(piece: str) -> list[str]:
    short: list[str] = []
    rest = piece
    while len(rest) > CHUNK_CHARACTERS:
        head = rest[:CHUNK_CHARACTERS]
        cut = max(head.rfind(mark) + 1 for mark in (", ", "; ", ": ")) or head.rfind(" ")
        cut = cut if cut > 0 else CHUNK_CHARACTERS
        short.append(rest[:cut].strip())
        rest = rest[cut:].strip()
    return [*short, rest] if rest else short
