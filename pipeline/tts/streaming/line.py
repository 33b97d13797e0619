"""The socket of one call to a streaming voice: opened once, kept between answers, and opened again for the
next answer when it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from pipeline.errors import EngineError
from pipeline.net.call_socket import CallSocket
from pipeline.net.socket_service import filled_in
from pipeline.net.web_socket import Socket, SocketEndpoint
from pipeline.tts.streaming.answer import MOST_OF_A_FILE_S, MOST_QUEUED_S, Answer
from pipeline.tts.streaming.service import VoiceSettings, read

log = logging.getLogger(__name__)

CLEARED_S: Final = 2.0
"""Longest wait for the word that an answer is cleared; after it the socket is opened anew."""

_OPEN_S: Final = 1.0  # a socket that broke after so long was open: another is worth a try


class VoiceLine:
    """One call's socket. `begin` gives an answer on it; answers follow each other, and one before is over.
    `once`: the socket is for one answer."""

    def __init__(
        self, service: VoiceSettings, endpoint: SocketEndpoint, *, call_id: str = "", once: bool = False
    ) -> None:
        self._service = service
        self._socket = CallSocket(service, endpoint, self, who="the voice", call_id=call_id)
        self._call_id = call_id
        self._once = once
        self._current: Answer | None = None
        self._uncleared: list[str] = []  # contexts that the service is to be told to clear
        self._unconfirmed = 0  # answers that are cleared without a word of it; sound is of these until then
        self._deaf_until = 0.0  # loop time
        self._is_second_try = False

    def open(self, language: str) -> None:
        """Opens the socket in a task, unless it is open for that language and its voice."""
        self._socket.open(self.places(language))

    def places(self, language: str) -> dict[str, Any]:
        """What is filled in in the messages of a socket."""
        service = self._service
        primary = language.lower().split("-")[0]
        return {
            "language": primary,
            "speaker": service.speaker(language),
            "rate_hz": service.rate_hz,
            "null": None,
        }

    def begin(self, language: str) -> Answer:
        """Begins an answer; one before it is over."""
        if self._current is not None:
            self.leave(self._current)
        places = {**self.places(language), "context": uuid4().hex}
        most_s = MOST_OF_A_FILE_S if self._once else MOST_QUEUED_S
        self._current = Answer(self._service, places, most_queued_s=most_s)
        self._is_second_try = False
        self.open(language)
        return self._current

    def wake(self) -> None:
        """Notes that there is more to be sent."""
        self._socket.wake()

    def leave(self, answer: Answer) -> None:
        """Takes no more notice of an answer, and clears at the service what is not yet said of it."""
        answer.close()
        if self._current is not answer:
            return
        self._current = None
        if self._once:
            self._socket.drop()
        elif answer.is_under_way:
            self._clear(answer)

    def _clear(self, answer: Answer) -> None:
        service = self._service
        if not service.clear:
            self._socket.reopen()
            return
        self._uncleared.append(answer.context)
        if service.cleared:
            self._unconfirmed += 1
            self._deaf_until = asyncio.get_running_loop().time() + CLEARED_S
        self._socket.wake()

    async def close(self) -> None:
        """Closes the socket with the service's own farewell; another answer would open a new one."""
        if self._current is not None:
            self._current.close()
        self._current = None
        await self._socket.close()

    # The socket's side (`SocketUser`) -----------------------------------------------------------------------

    def began(self) -> None:
        """Notes a new socket, which knows of no answer."""
        self._uncleared.clear()
        self._unconfirmed = 0

    async def send_due(self, socket: Socket) -> bool:
        """Sends what is to be cleared, then the next message of the answer."""
        if self._uncleared:
            clear = filled_in(self._service.clear, context=self._uncleared.pop(0), null=None)
            await socket.send(clear)
            return True
        message = self._current.due() if self._current is not None else None
        if message is not None:
            await socket.send(message)
        return message is not None

    async def keep_alive(self, socket: Socket) -> None:
        """Sends the service's message for that, if it has one."""
        if self._service.keep_alive:
            await socket.send(self._service.keep_alive)

    async def take(self, message: Mapping[str, Any]) -> None:
        """Takes a message. Raises `EngineError` where the service does not clear an answer."""
        said, answer = read(self._service, message), self._current
        if self._unconfirmed:
            if said.cleared:
                self._unconfirmed -= 1
            elif asyncio.get_running_loop().time() > self._deaf_until:
                raise EngineError("the voice does not clear an answer", retryable=True)
            return
        is_named = not self._service.context or (said.context is None and bool(said.error))
        if answer is None or not (is_named or said.context == answer.context) or not answer.is_sent:
            return
        answer.take(said)
        await answer.room()

    def broke(self, failure: EngineError, lived_s: float) -> bool:
        """Notes a socket that broke. An answer of which nothing was sent gets another socket once; a socket
        that was of use for long is opened again for the next answer."""
        answer = self._current
        extra = {"call_id": self._call_id, "reason": str(failure)}
        if answer is None:
            if self._once or lived_s < self._service.idle_s:
                return False
            log.info("voice's socket is opened again", extra=extra)
            return True
        if not answer.is_sent and not self._is_second_try and lived_s >= _OPEN_S:
            self._is_second_try = True
            log.info("voice's socket is opened again", extra=extra)
            return True
        self._current = None
        answer.fail(failure)
        return False
