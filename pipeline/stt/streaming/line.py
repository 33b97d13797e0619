"""The socket of one call to a streaming recogniser: opened once, kept between utterances, and opened again
when it breaks, with the utterance from its first sample."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from pipeline.errors import EngineError
from pipeline.net.call_socket import CallSocket
from pipeline.net.socket_service import name_of
from pipeline.net.web_socket import Socket, SocketEndpoint
from pipeline.stt.streaming.service import Read, ServiceSettings, read
from pipeline.stt.streaming.utterance import StreamingListening

log = logging.getLogger(__name__)

UNANSWERED_S: Final = 2.0
"""Age at which a request for the words so far will not be answered: there were none."""


class CallLine:
    """One call's socket. `listen` gives an utterance on it; utterances follow each other. A socket that
    breaks in an utterance is opened again once for it. `once`: the socket is for one utterance."""

    def __init__(
        self, service: ServiceSettings, endpoint: SocketEndpoint, *, call_id: str = "", once: bool = False
    ) -> None:
        self._service = service
        self._host = endpoint.host
        self._socket = CallSocket(service, endpoint, self, who="the recogniser", call_id=call_id)
        self._call_id = call_id
        self._once = once
        self._current: StreamingListening | None = None
        self._is_second_try = False
        self._flush = False  # audio of an utterance that is over was sent: its words are to be passed over
        self._asked: deque[tuple[StreamingListening | None, int, float]] = deque()  # and when
        self._sent_ms = 0.0

    def open(self, language: str) -> None:
        """Opens the socket in a task, unless it is open for that language."""
        self._socket.open(service_places(self._service, language))

    def listen(self, *, rate_hz: int, language: str) -> StreamingListening:
        """Begins an utterance; one before it is over."""
        if self._current is not None:
            self._current.close()
        utterance = StreamingListening(self, self._service, rate_hz=rate_hz)
        utterance.restart(round(self._sent_ms))
        self._current, self._is_second_try = utterance, False
        self.open(language)
        return utterance

    def wake(self) -> None:
        """Notes that there is more to be sent."""
        self._socket.wake()

    def leave(self, utterance: StreamingListening) -> None:
        """Takes no more notice of an utterance, and of words that still come for it."""
        if self._current is utterance:
            self._current = None
            self._flush = self._flush or utterance.is_unfinished
            self._socket.wake()
            if self._once:
                self._socket.drop()

    async def close(self) -> None:
        """Closes the socket with the service's own farewell; another utterance would open a new one."""
        await self._socket.close()

    # The socket's side (`SocketUser`) -----------------------------------------------------------------------

    def began(self) -> None:
        """Notes a new socket, which needs the utterance from its first sample."""
        self._sent_ms, self._flush = 0.0, False
        if self._current is not None:
            self._current.restart(0)
        self._asked.clear()

    def broke(self, failure: EngineError, lived_s: float) -> bool:
        """Notes a socket that broke: an utterance gets another socket once."""
        utterance = self._current
        if utterance is None:
            return False  # the next utterance opens another
        if self._is_second_try or not failure.retryable:
            self._current = None
            utterance.fail(failure)
            return False
        extra = {"call_id": self._call_id, "reason": str(failure)}
        log.info("recogniser's socket is opened again", extra=extra)
        self._is_second_try = True
        return True

    async def send_due(self, socket: Socket) -> bool:
        """Sends the audio that is due, and the requests for words."""
        if self._flush:
            self._flush = False
            await self._finalise(socket, None, 0)
        utterance = self._current
        samples = utterance.unsent() if utterance is not None else b""
        if samples:
            await self._send_audio(socket, samples)
        position = utterance.to_finalise if utterance is not None else -1
        if position >= 0 and (utterance, position) not in [asked[:2] for asked in self._asked]:
            await self._finalise(socket, utterance, position)
        return bool(samples)

    async def _finalise(self, socket: Socket, utterance: StreamingListening | None, position: int) -> None:
        service = self._service
        self._asked.append((utterance, position, asyncio.get_running_loop().time()))
        if service.finalise_silence_ms:
            await self._send_audio(socket, bytes(2 * service.rate_hz * service.finalise_silence_ms // 1000))
        if service.finalise:
            await socket.send(service.finalise)

    async def _send_audio(self, socket: Socket, samples: bytes) -> None:
        self._sent_ms += len(samples) / 2 / self._service.rate_hz * 1000
        await socket.send(self._service.audio_message(samples))

    async def keep_alive(self, socket: Socket) -> None:
        """Sends the service's message for that, else silence."""
        service = self._service
        if service.keep_alive:
            await socket.send(service.keep_alive)
        else:
            await self._send_audio(socket, bytes(2 * service.rate_hz * service.chunk_ms // 1000))

    async def take(self, message: Mapping[str, Any]) -> None:
        """Takes a message. Raises `EngineError` for one of a failure."""
        said = read(self._service, message)
        if said.error:
            raise EngineError(f"{self._host} failed ({name_of(said.error)})", retryable=True)
        self._take(said)

    def _take(self, message: Read) -> None:
        """Gives a message to the utterance that it is about: words before the answer to the last request of
        an utterance that is over belong to that one."""
        now = asyncio.get_running_loop().time()
        while self._asked and now - self._asked[0][2] > UNANSWERED_S:
            self._asked.popleft()
        passed_over = any(asked[0] is not self._current for asked in self._asked) or self._flush
        has_words = message.partial is not None or message.final is not None
        if self._current is not None and has_words and not passed_over:
            self._current.hears(message)
        if message.finalised and self._asked:
            utterance, position, _ = self._asked.popleft()
            if utterance is not None:
                utterance.finalised(position)


def service_places(service: ServiceSettings, language: str) -> dict[str, Any]:
    """What is filled in in the messages of a service."""
    return {"language": language, "rate_hz": service.rate_hz, "null": None}
