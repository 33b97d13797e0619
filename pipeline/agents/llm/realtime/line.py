"""The socket of one call to a model that hears and speaks: the caller's audio and messages out, answers in.

A line breaks once: whatever fails ends it, and the agent goes on without it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from pipeline.agents.llm.history import Message
from pipeline.agents.llm.realtime import messages
from pipeline.agents.llm.realtime.response import Part, Response, text_at
from pipeline.agents.llm.realtime.spoken import SpokenItem
from pipeline.agents.llm.realtime.table import RealtimeSettings
from pipeline.engines.guard import Guard
from pipeline.errors import EngineError, EngineTimeout
from pipeline.net.call_socket import CallSocket
from pipeline.net.socket_service import at, name_of
from pipeline.net.web_socket import Socket, SocketEndpoint

log = logging.getLogger(__name__)

SHORTEST_MS: Final = 100
"""Least audio of the caller that the service takes as something said."""

FREE_S: Final = 1.0
"""Longest wait for the end of an answer that was stopped, before the next may begin."""

CHUNK_MS: Final = 60
_LONGEST_S: Final = 60
_RECENT: Final = 30  # answers, more than a turn has rounds


class LineLost(EngineError):
    """The model is gone for the rest of the call; another goes on."""


class RealtimeLine:
    """One call's socket. `rate_hz`: of the call's leg. `failure`: why the line is gone; None while it is
    there."""

    def __init__(
        self,
        settings: RealtimeSettings,
        endpoint: SocketEndpoint,
        guard: Guard,
        *,
        call_id: str,
        rate_hz: int,
    ) -> None:
        self.failure: EngineError | None = None
        self.narrow = messages.is_narrow(settings, rate_hz)
        self.octets_a_ms = 8 if self.narrow else 2 * messages.WIDE_HZ // 1000
        self._settings = settings
        self._guard = guard
        self._call_id = call_id
        self._socket = CallSocket(settings.socket(), endpoint, self, who="the model", call_id=call_id)
        self._host = endpoint.host
        self._outgoing: deque[Message] = deque()
        self._audio = bytearray()  # of the caller, not sent yet
        self._sent = 0  # octets of the caller's since the last commit
        self._response: Response | None = None  # the answer under way
        self._recent: deque[Response] = deque(maxlen=_RECENT)
        self._free = asyncio.Event()
        self._free.set()
        self._numbers = 0
        self._loop = asyncio.get_running_loop()

    def open(self, session: Mapping[str, Any]) -> None:
        """Opens the socket in a task, unless the model's breaker is open."""
        if self._guard.admits():
            self._socket.open({"session": session})
        else:
            self.failure = EngineError("left alone after it failed", retryable=True)

    async def close(self) -> None:
        """Closes the socket; the line is gone."""
        if self.failure is None:
            self._guard.given_up(0.0)
            self.failure = EngineError("the call is over", retryable=False)
            self._end_answer(self.failure)
        socket = self._socket
        del self._socket, self._recent  # which know this line: a call is freed at once
        await socket.close()

    # What the caller says -----------------------------------------------------------------------------------

    @property
    def heard_ms(self) -> int:
        """Milliseconds of the caller's audio since the last that was taken as something said."""
        return (self._sent + len(self._audio)) // self.octets_a_ms

    def hear(self, octets: bytes) -> None:
        """Takes audio of the caller's."""
        if self.failure is None and len(self._audio) < _LONGEST_S * 1000 * self.octets_a_ms:
            self._audio += octets
            if len(self._audio) >= CHUNK_MS * self.octets_a_ms:
                self._socket.wake()

    def commit(self) -> None:
        """Takes the audio so far as something said."""
        self._flush()
        self._sent = 0
        self.tell(messages.COMMIT)

    def clear(self) -> None:
        """Drops the audio so far: it was nothing said."""
        self._audio.clear()
        if self._sent:
            self._sent = 0
            self.tell(messages.CLEAR)

    def tell(self, message: Message) -> None:
        """Sends a message, after the audio so far where it is about that."""
        if self.failure is None:
            self._outgoing.append(message)
            self._socket.wake()

    def _flush(self) -> None:
        if self._audio:
            self._sent += len(self._audio)
            self._outgoing.append(messages.append(bytes(self._audio)))
            self._audio.clear()

    # Answers ------------------------------------------------------------------------------------------------

    async def answer(self, more: Mapping[str, Any]) -> AsyncGenerator[Part, None]:
        """Asks for an answer, with `more` fields of the request, and gives its parts as they come. Closing
        the iterator stops the answer. Raises `LineLost`."""
        await self._until_free()
        self._numbers += 1
        response = self._response = Response(self, f"turn_{self._numbers}", self._loop.time())
        self._recent.append(response)
        self._free.clear()
        self.tell(messages.create(response.number, more))
        try:
            while (part := await self._next(response)) is not None:
                yield part
        finally:
            self.stop()

    def stop(self) -> None:
        """Stops the answer under way, if there is one."""
        response = self._response
        if response is not None and not response.stopped:
            response.stop()
            self.tell(messages.cancel(response.id))

    def cut(self, item: SpokenItem, heard_ms: int) -> None:
        """Cuts an item to what was heard of it; what the model said after it was not heard."""
        if self.failure is not None:
            return
        self.stop()
        said = [each for response in self._recent for each in response.offered]
        for unheard in said[said.index(item) + 1 :] if item in said else ():
            self.forget(unheard)
        if heard_ms > 0:
            self.tell(messages.truncate(item.item_id, item.content_index, min(heard_ms, item.ms)))
        else:
            self.forget(item)

    def forget(self, item: SpokenItem) -> None:
        """Takes back an item that nobody heard, once."""
        if not item.forgotten:
            item.forgotten = True
            self.tell(messages.delete(item.item_id))

    def lose(self, failure: EngineError) -> None:
        """Ends the line for `failure`."""
        if self.failure is None:
            self.failure = failure
            self._guard.failed(failure)
            log.warning("realtime model lost", extra={"call_id": self._call_id, "reason": str(failure)})
            self._end_answer(failure)
            self._socket.drop()

    def _end_answer(self, failure: EngineError) -> None:
        response, self._response = self._response, None
        self._free.set()
        if response is not None:
            response.finish(failure)
            response.parts.put_nowait(failure)

    async def _until_free(self) -> None:
        try:
            async with asyncio.timeout(FREE_S):
                await self._free.wait()
        except TimeoutError:
            self.lose(EngineTimeout("the model did not stop when told to"))
        if self.failure is not None:
            raise self._lost(self.failure)

    async def _next(self, response: Response) -> Part | None:
        """The next part, None at the end; waited for so long as anything of the answer comes."""
        part: Part | EngineError | None
        while True:
            limit_s = self._settings.stall_s if response.begun else self._settings.timeout_s
            due = response.came_at + limit_s
            try:
                async with asyncio.timeout_at(due):
                    part = await response.parts.get()
                break
            except TimeoutError:
                if response.came_at + limit_s <= due:
                    self.lose(EngineTimeout(f"nothing came for {limit_s:g} s"))
        if isinstance(part, EngineError):
            raise self._lost(part)
        return part

    def _lost(self, failure: EngineError) -> LineLost:
        return LineLost(f"the realtime model at {self._host}: {failure}", retryable=True)

    # The socket's side (`SocketUser`) -----------------------------------------------------------------------

    def began(self) -> None:
        """Notes a new socket; what waits is for it."""

    def broke(self, failure: EngineError, lived_s: float) -> bool:
        """Notes a socket that broke, which is the end of the line."""
        self.lose(failure)
        return False

    async def send_due(self, socket: Socket) -> bool:
        """Sends the next message, or the caller's audio."""
        if not self._outgoing and len(self._audio) >= CHUNK_MS * self.octets_a_ms:
            self._flush()
        if not self._outgoing:
            return False
        await socket.send(self._outgoing.popleft())
        return True

    async def keep_alive(self, socket: Socket) -> None:
        """Does nothing: pings keep the socket open."""

    async def take(self, message: Mapping[str, Any]) -> None:
        """Takes a message. Raises `EngineError` for one that ends the line."""
        kind, response, now = text_at(message, "type"), self._response, self._loop.time()
        if kind == "error":
            self._complain(message)
        elif response is None:
            return
        elif kind == "session.updated":
            response.came_at = now  # the answer's time begins when the session is there
        elif kind == "response.created":
            response.created(message, now)
        elif kind == "response.done" and text_at(message, "response.id") == response.id:
            self._done(response, message)
        else:
            response.take(message, now)

    def _complain(self, message: Mapping[str, Any]) -> None:
        """Takes an error: one about the session or the answer under way ends the line, any other is noted."""
        about, code = text_at(message, "error.event_id"), text_at(message, "error.code")
        reason = name_of(code or text_at(message, "error.type") or "error")[:100]
        log.warning("realtime model complains", extra={"call_id": self._call_id, "reason": reason})
        asked = "" if self._response is None else self._response.number
        if about and about in ("session", asked):
            raise EngineError(f"refused ({reason})", retryable=False)

    def _done(self, response: Response, message: Mapping[str, Any]) -> None:
        usage = {name: at(message, f"response.usage.{name}") for name in ("input_tokens", "output_tokens")}
        log.info("realtime answer", extra={"call_id": self._call_id, **usage})
        if at(message, "response.status") == "failed":
            reason = name_of(text_at(message, "response.status_details.error.code") or "failed")[:100]
            raise EngineError(f"the answer failed ({reason})", retryable=True)
        self._response = None
        response.finish()
        if response.stopped:
            for item_id in response.silent_items():
                self.tell(messages.delete(item_id))
        self._guard.succeeded()
        response.parts.put_nowait(None)
        self._free.set()
