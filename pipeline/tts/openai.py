"""Text to speech by a server with OpenAI's `/audio/speech`, streamed as the server sends it.

The request asks for raw PCM (16 bit, mono, at `rate_hz`). A rate in the answer's media type replaces
`rate_hz`, and a WAV file, which some servers send instead, is read too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, Field

from pipeline.audio import Pcm
from pipeline.audio.resample import Resampler
from pipeline.engines.tables import read_table
from pipeline.errors import EngineError
from pipeline.net.audio_types import disguise
from pipeline.net.model_endpoint import EndpointTable, ModelEndpoint
from pipeline.speech import SpeechChunk
from pipeline.tts.wav_stream import MARK, WavStream

PATH: Final = "audio/speech"

CHUNK_MS: Final = 20  # shortest chunk; smaller pieces from the network are joined

_RATES: Final = (8000, 16000, 22050, 24000, 48000)


def _resampled(rate_hz: int) -> int:
    if rate_hz not in _RATES:
        raise ValueError(f"must be one of {', '.join(map(str, _RATES))}")
    return rate_hz


class OpenAiSpeechSettings(EndpointTable):
    """The options of the server's voice. `voice`: the server's name for it; `voices`: the same by language,
    in preference to `voice`. `rate_hz`: of the server's PCM. `timeout_s`: longest wait for the first sound;
    `stall_s`: longest wait between two pieces. `speed`: 0.25 to 4."""

    model: str = "tts-1"
    voice: str = "alloy"
    voices: dict[str, str] = Field(default_factory=dict)
    rate_hz: Annotated[int, Field(ge=8000, le=48000), AfterValidator(_resampled)] = 24000
    speed: float = Field(default=1.0, ge=0.25, le=4)
    timeout_s: float = Field(default=1.4, ge=0.1, le=60)
    stall_s: float = Field(default=1.4, ge=0.1, le=60)
    response_format: Literal["pcm", "wav"] = "pcm"


class OpenAiTextToSpeech:
    """A voice of a server (`pipeline.speech.TextToSpeech`), shared by all calls of the process."""

    def __init__(self, endpoint: ModelEndpoint, settings: OpenAiSpeechSettings) -> None:
        self.endpoint = endpoint
        self.settings = settings

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> OpenAiTextToSpeech:
        """Keys: those of `OpenAiSpeechSettings`. Raises `SettingsRefused`."""
        read = read_table("openai", OpenAiSpeechSettings, settings)
        return cls(read.endpoint(timeout_s=read.timeout_s), read)

    @property
    def rate_hz(self) -> int:
        """The rate of the chunks in Hz, as configured; other audio of the server is resampled."""
        return self.settings.rate_hz

    @property
    def deadline_s(self) -> float:
        """The wait in seconds from which a caller that gave up counts as a failure of the server."""
        return min(1.0, self.settings.timeout_s)

    async def start(self) -> None:
        """Does nothing, since a server that is down now may be up at the first call."""

    async def check(self) -> str:
        """Checks whether the server can be reached: gives "" if so, else the reason."""
        return await self.endpoint.check()

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises `text`, in chunks as they arrive, of at least 20 ms except the last. Raises
        `EngineError`."""
        settings = self.settings
        body: dict[str, Any] = {
            "model": settings.model,
            "input": text,
            "voice": self._voice(language),
            "response_format": settings.response_format,
        }
        if settings.speed != 1.0:
            body["speed"] = settings.speed
        cutter = SoundCutter(settings.rate_hz)
        stream = self.endpoint.stream_bytes(
            PATH, body, first_s=settings.timeout_s, stall_s=settings.stall_s, on_rate=cutter.comes_at
        )
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                samples = cutter.push(piece)
                if samples.size:
                    yield SpeechChunk(samples)
        samples = cutter.finish()
        if samples.size:
            yield SpeechChunk(samples)

    async def close(self) -> None:
        """Closes the connections to the server."""
        await self.endpoint.close()

    def _voice(self, language: str) -> str:
        voices = self.settings.voices
        return voices.get(language) or voices.get(language.partition("-")[0]) or self.settings.voice


class SoundCutter:
    """Converts pieces of bytes of any length, from raw PCM or a WAV file, to int16 samples at `rate_hz`."""

    __slots__ = ("_begun", "_least", "_rate_hz", "_resample", "_rest", "_wav")

    octets = 2

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._least = rate_hz * CHUNK_MS // 1000 * 2
        self._rest = bytearray()
        self._resample: Resampler | None = None
        self._wav: WavStream | None = None
        self._begun = False

    def comes_at(self, rate_hz: int) -> None:
        """Sets the rate that the server gives for its samples. Raises `EngineError` for an unusable one."""
        if rate_hz != self._rate_hz:
            self._resample = _resampler(rate_hz, self._rate_hz)

    def push(self, piece: bytes) -> Pcm:
        """Takes a piece; returns the samples that are complete, none before there are 20 ms. Raises
        `EngineError` for a WAV file that is not 16 bit mono, and for other formats."""
        self._rest += piece if self._wav is None else self._wav.feed(piece)
        if not self._begun and not self._begin():
            return _NOTHING
        if len(self._rest) < self._least:
            return _NOTHING
        return self._take()

    def finish(self) -> Pcm:
        """Ends the stream; returns the rest, without half a sample. Raises `EngineError` like `push`, and for
        an incomplete header."""
        if not self._begun and not self._begin(whole=True):
            raise EngineError("the voice sent a WAV file without samples", retryable=True)
        samples = self._take()
        if self._resample is None:
            return samples
        return np.concatenate((samples, self._resample(np.zeros(self._resample.from_hz // 100, np.int16))))

    def _take(self) -> Pcm:
        whole = len(self._rest) & ~1
        samples = np.frombuffer(bytes(self._rest[:whole]), "<i2").astype(np.int16, copy=False)
        del self._rest[:whole]
        return samples if self._resample is None else self._resample(samples)

    def _begin(self, *, whole: bool = False) -> bool:
        """Whether the samples begin: the format is known, and a WAV header was complete and is removed."""
        if self._wav is None:
            if len(self._rest) < 4:
                return whole
            if self._rest.startswith(MARK):
                self._wav = WavStream()
                self._rest = bytearray(self._wav.feed(bytes(self._rest)))
        if self._wav is not None:
            if not self._wav.rate_hz:
                return False
            self._resample = None
            self.comes_at(self._wav.rate_hz)
        else:
            kind = disguise(bytes(self._rest), whole=whole)
            if kind is None:
                return False
            if kind:
                raise EngineError(f"the voice sends {kind} instead of pcm", retryable=False)
        self._begun = True
        return True


def _resampler(from_hz: int, to_hz: int) -> Resampler:
    try:
        return Resampler(from_hz, to_hz)
    except ValueError as error:
        raise EngineError(
            f"the voice sends sound at a rate that is not understood: {error}", retryable=False
        ) from error


_NOTHING: Final = np.zeros(0, np.int16)
