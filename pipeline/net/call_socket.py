"""The socket of one call to a service: opened once, kept open, and opened again where its user needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from pipeline.errors import EngineError, contained
from pipeline.net.socket_service import SocketSettings, address_of, filled_in, fits
from pipeline.net.web_socket import Socket, SocketEndpoint

READY_S: Final = 3.0


class SocketUser(Protocol):
    """What is said on a socket: a recogniser's utterances, or a voice's answers."""

    def began(self) -> None:
        """Notes a new socket, to which nothing was sent yet."""

    async def send_due(self, socket: Socket) -> bool:
        """Sends what is due; whether there was anything. Raises `EngineError`."""

    async def keep_alive(self, socket: Socket) -> None:
        """Sends what keeps the socket open. Raises `EngineError`."""

    async def take(self, message: Mapping[str, Any]) -> None:
        """Takes a message. Raises `EngineError` for one that tells of a failure."""

    def broke(self, failure: EngineError, lived_s: float) -> bool:
        """Notes a socket that broke after so many seconds; whether another is needed at once."""


class CallSocket:
    """One socket to a service at a time, for one call. `who`: the engine, for faults and the log."""

    def __init__(
        self, service: SocketSettings, endpoint: SocketEndpoint, user: SocketUser, *, who: str, call_id: str
    ) -> None:
        self._service = service
        self._endpoint = endpoint
        self._user = user
        self._who = who
        self._call_id = call_id
        self._places: Mapping[str, Any] = {}
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self, places: Mapping[str, Any]) -> None:
        """Opens the socket in a task, unless it is open with those `places`."""
        if self._task is not None and not self._task.done() and self._places == places:
            return
        self._places = places
        self.reopen()

    def reopen(self) -> None:
        """Closes the socket without waiting for it, and opens another in a task."""
        self.drop()
        self._task = asyncio.create_task(self._keep_open(), name=f"socket of {self._who}")

    def wake(self) -> None:
        """Notes that there is more to be sent."""
        self._wake.set()

    def drop(self) -> None:
        """Closes the socket without waiting for it; `open` opens another."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Closes the socket with the service's own farewell."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_open(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                with contained(f"{self._who} at {self._endpoint.host}", call_id=self._call_id):
                    await self._talk()
            except EngineError as failure:
                if not self._user.broke(failure, loop.time() - began):
                    return

    async def _talk(self) -> None:
        service, places = self._service, self._places
        self._user.began()
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
                if await self._user.send_due(socket):
                    continue
                try:
                    async with asyncio.timeout(service.keep_alive_s):
                        await self._wake.wait()
                except TimeoutError:
                    await self._user.keep_alive(socket)
        except asyncio.CancelledError:
            if service.end:
                with suppress(EngineError):  # the socket may be what broke
                    await socket.send(filled_in(service.end, **self._places))
            raise

    async def _receive(self, socket: Socket) -> None:
        ready = self._service.ready
        while True:
            message = await socket.receive()
            if ready and not self._ready.is_set() and fits(message, ready):
                self._ready.set()
            await self._user.take(message)
