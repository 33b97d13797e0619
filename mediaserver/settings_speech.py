"""The table [speech]: text-to-speech and speech-to-text over HTTP."""

from __future__ import annotations

from pydantic import Field

from mediaserver.settings_agent import EngineChain
from mediaserver.settings_values import Table


class SpeechSettings(Table):
    """[speech]: limits are for each company; those that begin with `keyless` for each address without a key
    (`keyless_requests_per_minute` 0: text-to-speech needs a key). An engine's `fallback` absent: none. A
    client can ask again, and would not know that something else has understood its file."""

    language: str = Field(default="en", pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
    at_once: int = Field(default=8, ge=1, le=1000)
    text_characters: int = Field(default=5000, ge=1, le=100_000)
    keyless_requests_per_minute: int = Field(default=10, ge=0, le=100_000)
    keyless_at_once: int = Field(default=2, ge=1, le=1000)
    keyless_text_characters: int = Field(default=500, ge=1, le=100_000)
    upload_mb: int = Field(default=25, ge=1, le=1024)
    audio_s: int = Field(default=300, ge=1, le=3600)
    stt: EngineChain = EngineChain(engine="pocketsphinx")
    tts: EngineChain = EngineChain(engine="espeak-ng")
