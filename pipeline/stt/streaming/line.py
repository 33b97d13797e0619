"""The socket of one call to a streaming recogniser: opened once, kept between utterances, and opened again
when it breaks, with the utterance from its first sample."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from pipeline.errors import EngineError, contained
from pipeline.net.web_socket import Socket, SocketEndpoint
from pipeline.stt.streaming.service import Read, ServiceSettings, at, filled_in, read
from pipeline.stt.streaming.utterance import StreamingListening

log = logging.getLogger(__name__)

READY_S: Final = 3.0
UNANSWERED_S: Final = 2.0
"""Age at which a request for the words so far will not be answered: there were none."""


class CallLine:
    """One call's socket. `listen` gives an utterance on it; utterances follow each other. A socket that
    breaks in an utterance is opened again once for it. `once`: the socket is for one utterance."""

    def __init__(
        self, service: ServiceSettings, endpoint: SocketEndpoint, *, call_id: str = "", once: bool = False
    ) -> None:
        self._service = service
        self._endpoint = endpoint
        self._call_id = call_id
        self._once = once
        self._language = ""
        self._current: StreamingListening | None = None
        self._is_second_try = False
        self._flush = False  # audio of an utterance that is over was sent: its words are to be passed over
        self._asked: deque[tuple[StreamingListening | None, int, float]] = deque()  # and when
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sent_ms = 0.0

    def open(self, language: str) -> None:
        """Opens the socket in a task, unless it is open for that language."""
        if self._task is not None and not self._task.done() and self._language == language:
            return
        if self._task is not None:
            self._task.cancel()
        self._language = language
        self._task = asyncio.create_task(self._keep_open(), name="recogniser's socket")

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
        self._wake.set()

    def leave(self, utterance: StreamingListening) -> None:
        """Takes no more notice of an utterance, and of words that still come for it."""
        if self._current is utterance:
            self._current = None
            self._flush = self._flush or utterance.is_unfinished
            self._wake.set()
            if self._once and self._task is not None:
                self._task.cancel()

    async def close(self) -> None:
        """Closes the socket with the service's own farewell; another utterance would open a new one."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # The socket ---------------------------------------------------------------------------------------------

    async def _keep_open(self) -> None:
        """Opens the socket, and again when it breaks while an utterance needs it."""
        while True:
            try:
                with contained(f"the recogniser at {self._endpoint.host}", call_id=self._call_id):
                    await self._talk()
            except EngineError as failure:
                utterance = self._current
                if utterance is None:
                    return  # the next utterance opens another
                if self._is_second_try or not failure.retryable:
                    self._current = None
                    utterance.fail(failure)
                    return
                extra = {"call_id": self._call_id, "reason": str(failure)}
                log.info("recogniser's socket is opened again", extra=extra)
                self._is_second_try = True

    async def _talk(self) -> None:
        service, places = self._service, service_places(self._service, self._language)
        self._sent_ms, self._flush = 0.0, False
        if self._current is not None:
            self._current.restart(0)
        self._asked.clear()
        self._ready.clear()
        url, query = await address_of(service, self._endpoint, places)
        async with self._endpoint.opened(url, query) as socket:
            for message in service.begin:
                await socket.send(filled_in(message, **places))
            if not service.ready:
                self._ready.set()
            receiving = asyncio.create_task(self._receive(socket))
            sending = asyncio.create_task(self._send(socket))
            try:
                await asyncio.wait((receiving, sending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                receiving.cancel()
                sending.cancel()
                ended = await asyncio.gather(receiving, sending, return_exceptions=True)
            for failure in ended:
                if isinstance(failure, Exception):
                    raise failure

    async def _send(self, socket: Socket) -> None:
        service = self._service
        async with asyncio.timeout(READY_S):
            await self._ready.wait()
        try:
            while True:
                self._wake.clear()
                sent = await self._send_due(socket)
                if sent:
                    continue
                try:
                    async with asyncio.timeout(service.keep_alive_s):
                        await self._wake.wait()
                except TimeoutError:
                    await self._keep_alive(socket)
        except asyncio.CancelledError:
            if service.end:
                with suppress(EngineError):  # the socket may be what broke
                    await socket.send(service.end)
            raise

    async def _send_due(self, socket: Socket) -> bool:
        """Sends what is due; whether there was anything."""
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

    async def _keep_alive(self, socket: Socket) -> None:
        service = self._service
        if service.keep_alive:
            await socket.send(service.keep_alive)
        else:
            await self._send_audio(socket, bytes(2 * service.rate_hz * service.chunk_ms // 1000))

    async def _receive(self, socket: Socket) -> None:
        while True:
            message = read(self._service, await socket.receive())
            if message.error:
                raise EngineError(f"{self._endpoint.host} failed ({_name(message.error)})", retryable=True)
            if message.ready:
                self._ready.set()
            self._take(message)

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


async def address_of(
    service: ServiceSettings, endpoint: SocketEndpoint, places: Mapping[str, Any]
) -> tuple[str, dict[str, str]]:
    """The URL and the query of a socket, which some services give for each; encrypted where it was asked for
    so. Raises `EngineError`, as for an answer without an address."""
    query = {name: str(value) for name, value in filled_in(service.query, **places).items()}
    if not service.session_url:
        return filled_in(service.url, **places), query
    answer = await endpoint.ask(service.session_url, filled_in(service.session_body, **places))
    url = at(answer, service.session_address)
    schemes = ("wss://",) if service.session_url.lower().startswith("https:") else ("ws://", "wss://")
    if not isinstance(url, str) or not url.startswith(schemes):
        raise EngineError(f"{endpoint.host} gave no address for a socket", retryable=True)
    return url, query


def _name(error: str) -> str:
    """The short name of an error; sentences may quote what was said."""
    return error if error.replace("_", "").replace("-", "").replace(".", "").isalnum() else "error"
