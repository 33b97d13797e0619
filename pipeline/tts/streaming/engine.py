"""The engine `websocket`: a streaming voice that data describes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final
from weakref import WeakSet

from pipeline.engines.tables import read_table
from pipeline.net.socket_service import check
from pipeline.net.web_socket import SOUND_LIMIT, SocketEndpoint
from pipeline.speech import SpeechChunk
from pipeline.tts.clauses import pieces
from pipeline.tts.streaming.line import VoiceLine
from pipeline.tts.streaming.service import VoiceSettings

LONGEST_PIECE: Final = 500
"""Most characters of a message; services refuse longer ones than 2000, and answers come in shorter ones."""


class StreamingTextToSpeech:
    """A voice behind a websocket (`pipeline.speech.TextToSpeech`), for all calls of the process; each call
    has a socket of its own (`pipeline.speech.VoicePerCall`)."""

    def __init__(self, service: VoiceSettings, endpoint: SocketEndpoint) -> None:
        self.service = service
        self._endpoint = endpoint
        self._alone: WeakSet[VoiceLine] = WeakSet()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> StreamingTextToSpeech:
        """Keys: those of `VoiceSettings`. Raises `SettingsRefused`."""
        service = read_table("websocket", VoiceSettings, settings)
        return cls(service, service.endpoint(service.framing, longest=SOUND_LIMIT))

    @property
    def rate_hz(self) -> int:
        """The rate of the chunks in Hz, as configured."""
        return self.service.rate_hz

    @property
    def deadline_s(self) -> float:
        """The wait in seconds from which a caller that gave up counts as a failure of the service."""
        return min(1.0, self.service.timeout_s)

    async def start(self) -> None:
        """Does nothing, since a server that is down now may be up at the first call."""

    def for_call(self, call_id: str, *, language: str) -> CallVoice:
        """Gives the voice of one call, and opens its socket; without a `language` the first answer does."""
        line = VoiceLine(self.service, self._endpoint, call_id=call_id)
        if language:
            line.open(language)
        return CallVoice(line, self.rate_hz)

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises `text` outside of any call, on a socket of its own. Raises `EngineError`."""
        line = VoiceLine(self.service, self._endpoint, once=True)
        self._alone.add(line)
        try:
            async with aclosing(CallVoice(line, self.rate_hz).speak(text, language=language)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            await line.close()

    async def check(self) -> str:
        """Checks whether the server takes a socket: gives "" if so, else the reason."""
        places = VoiceLine(self.service, self._endpoint).places("en")
        return await check(self.service, self._endpoint, places)

    async def close(self) -> None:
        """Closes the connections to the server."""
        for line in list(self._alone):
            await line.close()
        await self._endpoint.close()


class CallVoice:
    """The voice of one call (`pipeline.speech.IncrementalVoice`)."""

    def __init__(self, line: VoiceLine, rate_hz: int) -> None:
        self._line = line
        self.rate_hz = rate_hz

    async def start(self) -> None:
        """Does nothing: the socket opens by itself."""

    async def speak(self, text: str, *, language: str) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises a whole text. Raises `EngineError`."""
        async with aclosing(self.speak_pieces(_cut(text), language=language)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def speak_pieces(
        self, pieces: AsyncIterator[str], *, language: str
    ) -> AsyncGenerator[SpeechChunk, None]:
        """Synthesises an answer whose pieces come as they are written. Raises `EngineError`."""
        answer = self._line.begin(language)
        feeding = asyncio.create_task(answer.feed(pieces, self._line.wake), name="text of an answer")
        try:
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._line.leave(answer)
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def close(self) -> None:
        """Ends the call for the service, after which no answer may begin."""
        await self._line.close()


async def _cut(text: str) -> AsyncIterator[str]:
    for piece in pieces(text, longest=LONGEST_PIECE):
        yield piece
