"""A page of a browser, driven over a WebSocket: what DevTools and WebDriver BiDi have in common."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from typing import Any

import aiohttp


class RemotePage(ABC):
    """One page. `log` is what it said and what went wrong in it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.log: list[str] = []
        self._socket = socket
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def command(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The whole answer to one command of the protocol."""
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(answer, 30)

    @abstractmethod
    async def run(self, script: str) -> Any:
        """The value of an expression, awaited."""

    @abstractmethod
    def heard(self, event: dict[str, Any]) -> None:
        """What the browser tells unasked."""

    async def until(self, script: str, *, timeout_s: float = 30.0) -> Any:
        """Waits until an expression is true; its value."""
        async with asyncio.timeout(timeout_s):
            while not (value := await self.run(script)):
                await asyncio.sleep(0.05)
        return value

    async def close(self) -> None:
        """Ends the session with the page."""
        await self._socket.close()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" not in told:
                self.heard(told)
                continue
            waiting = self._waiting.pop(told["id"])
            if not waiting.done():
                waiting.set_result(told)
