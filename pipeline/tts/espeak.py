"""Text to speech by espeak-ng, which needs no download and has about 140 languages.

Synthesis starts within a millisecond and runs at 1600 times real time; the voice sounds synthetic. Arabic
needs diacritics in the text, without which the short vowels are missing. The engine runs in a helper process
(`pipeline.tts.espeak_process`), one for all voices of the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import Field

from pipeline.engines.tables import EngineTable, read_table
from pipeline.text.sentences import sentences, shortened
from pipeline.tts.espeak_arabic import vowelled
from pipeline.tts.subprocess_client import VoiceProgram
from pipeline.tts.subprocess_voice import Piece, ProcessVoice

ESPEAK: Final = VoiceProgram("espeak-ng", "pipeline.tts.espeak_process", start_s=10.0, hung_s=1.2)
"""The helper process, which on an idle machine starts in 0.1 s and takes at most 15 ms for a sentence."""

VOICES: Mapping[str, str] = {"en": "en-us"}
"""The default voice of a language that has several; other languages' tags are names of voices."""


class EspeakSettings(EngineTable):
    """The options of espeak-ng. `voice`: a name such as "en-gb", "ar" or "en-us+f3"; "": by the call's
    language. `rate_wpm`: words per minute, 80 to 450. `pitch`: 0 to 99. `volume`: 0 to 200; above 100 may
    clip."""

    voice: str = ""
    rate_wpm: int = Field(default=175, ge=80, le=450)
    pitch: int = Field(default=50, ge=0, le=99)
    volume: int = Field(default=100, ge=0, le=200)


SENTENCE_CHARACTERS = 400
"""Most characters of a request: about half a minute of speech, which takes 1.3 MB of the server's memory for
its listener and 15 ms, in which other requests wait."""

_ARABIC = re.compile(r"[\u0620-\u064a]")
_ARABIC_VOICES = ("ar", "fa", "ur", "ku", "sd", "ug")


class Espeak(ProcessVoice):
    """An espeak-ng voice (`pipeline.speech.TextToSpeech`); all voices share the helper process."""

    def __init__(self, settings: EspeakSettings | None = None) -> None:
        super().__init__(ESPEAK)
        self.settings = settings or EspeakSettings()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Espeak:
        """Keys: voice, rate_wpm, pitch, volume. Raises `SettingsRefused`."""
        return cls(read_table("espeak-ng", EspeakSettings, settings))

    @property
    def rate_hz(self) -> int:
        """22050 Hz, the rate of every espeak-ng voice except MBROLA's, which the wheel lacks."""
        return 22050

    def _pieces(self, text: str, language: str) -> Iterator[Piece]:
        settings = self.settings
        for sentence in _sentences(text):
            voice = _voice(settings.voice, language, sentence)
            spoken = vowelled(sentence) if voice.startswith("ar") else sentence
            request = {
                "text": spoken,
                "voice": voice,
                "otherwise": "" if voice == settings.voice else voice.partition("-")[0],
                "rate_wpm": settings.rate_wpm,
                "pitch": settings.pitch,
                "volume": settings.volume,
            }
            yield Piece(sentence, request, spoken)


def _sentences(text: str) -> Iterator[str]:
    for sentence in sentences(text):
        yield from shortened(sentence, SENTENCE_CHARACTERS)


def _voice(wanted: str, language: str, sentence: str) -> str:
    """The configured voice for text in its script, else the voice of `language`: an agent may change between
    English and Arabic."""
    if wanted and (_ARABIC.search(sentence) is not None) == wanted.startswith(_ARABIC_VOICES):
        return wanted
    arabic = voice_of(language).startswith(_ARABIC_VOICES)
    return wanted if wanted and arabic == wanted.startswith(_ARABIC_VOICES) else voice_of(language)


def voice_of(language: str) -> str:
    """Gives espeak-ng's voice for a language tag ("en", "en-GB", "ar")."""
    return VOICES.get(language.lower(), language.lower())
