"""The engine `websocket`: a streaming recogniser that data describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

from pipeline.engines.tables import read_table
from pipeline.net.socket_service import check
from pipeline.net.web_socket import SocketEndpoint
from pipeline.speech import Expected
from pipeline.stt.streaming.line import CallLine, service_places
from pipeline.stt.streaming.service import ServiceSettings
from pipeline.stt.streaming.utterance import StreamingListening


class StreamingSpeechToText:
    """A recogniser behind a websocket (`pipeline.speech.SpeechToText`), for all calls of the process; each
    call has a socket of its own (`pipeline.speech.PerCall`)."""

    def __init__(self, service: ServiceSettings, endpoint: SocketEndpoint) -> None:
        self.service = service
        self._endpoint = endpoint
        self._alone: WeakSet[CallLine] = WeakSet()

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> StreamingSpeechToText:
        """Keys: those of `ServiceSettings`. Raises `SettingsRefused`."""
        service = read_table("websocket", ServiceSettings, settings)
        return cls(service, service.endpoint())

    @property
    def deadline_s(self) -> float:
        """Seconds after which an answer is late where another engine could still answer in time."""
        return self.service.deadline_s

    async def start(self) -> None:
        """Does nothing, since a server that is down now may be up at the first call."""

    def for_call(self, call_id: str, *, language: str) -> CallEars:
        """Gives the recogniser for one call, and opens its socket; without a `language` the first utterance
        does."""
        line = CallLine(self.service, self._endpoint, call_id=call_id)
        if language:
            line.open(_primary(language))
        return CallEars(self, line)

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> StreamingListening:
        """Begins an utterance outside of any call, on a socket of its own."""
        line = CallLine(self.service, self._endpoint, once=True)
        self._alone.add(line)
        return line.listen(rate_hz=rate_hz, language=_primary(language))

    async def check(self) -> str:
        """Checks whether the server takes a socket: gives "" if so, else the reason."""
        return await check(self.service, self._endpoint, service_places(self.service, "en"))

    async def close(self) -> None:
        """Closes the connections to the server."""
        for line in list(self._alone):
            await line.close()
        await self._endpoint.close()


class CallEars:
    """The recogniser of one call."""

    def __init__(self, engine: StreamingSpeechToText, line: CallLine) -> None:
        self._engine = engine
        self._line = line

    async def start(self) -> None:
        """Does nothing: the socket opens by itself."""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> StreamingListening:
        """Begins an utterance on the call's socket."""
        return self._line.listen(rate_hz=rate_hz, language=_primary(language))

    async def close(self) -> None:
        """Ends the call for the service, after which no utterance may begin."""
        await self._line.close()


def _primary(language: str) -> str:
    return language.lower().split("-")[0]
