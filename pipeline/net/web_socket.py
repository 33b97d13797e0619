"""Websockets to other people's servers, only to addresses that `pipeline.net.egress` allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from pipeline.errors import EngineError
from pipeline.net import egress, speech_framing
from pipeline.net.http import GuardedSession, engine_errors, is_compressed
from pipeline.net.untrusted import MAX_CHARACTERS, NotJson, read_json

MESSAGE_LIMIT: Final = 256 * 1024  # bytes, of words
SOUND_LIMIT: Final = MAX_CHARACTERS  # bytes, of sound: 15 s in base64
CONNECT_S: Final = 2.0
HEARTBEAT_S: Final = 10.0


class Framing(Enum):
    """What a service's messages are: JSON in text or bytes; JSON in text and sound in bytes, which is read as
    `{"sound": bytes}`; or Azure's (`pipeline.net.speech_framing`)."""

    JSON = "json"
    SOUND = "sound"
    AZURE = "azure"


class Socket:
    """An open websocket: JSON and bytes out, JSON objects in."""

    def __init__(self, host: str, socket: aiohttp.ClientWebSocketResponse, framing: Framing) -> None:
        self._host = host
        self._socket = socket
        self._framing = framing

    async def send(self, message: bytes | Mapping[str, Any]) -> None:
        """Sends bytes, or an object as JSON. Raises `EngineError`."""
        with engine_errors(self._host):
            if isinstance(message, bytes):
                await self._socket.send_bytes(message)
            elif self._framing is Framing.AZURE:
                await self._socket.send_str(speech_framing.written(message, datetime.now(UTC)))
            else:
                await self._socket.send_json(message)

    async def receive(self) -> Mapping[str, Any]:
        """Returns the next message that is a JSON object. Raises `EngineError` when the socket is closed."""
        while True:
            await asyncio.sleep(0)  # aiohttp hands on what waits without a turn of the loop
            with engine_errors(self._host):
                message = await self._socket.receive()
            if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                try:
                    read = self._read(message.data)
                except NotJson:
                    continue
                if isinstance(read, Mapping):
                    return read
            elif message.type is not aiohttp.WSMsgType.PONG:
                code = self._socket.close_code or 1006
                raise EngineError(f"{self._host} closed the socket ({code})", retryable=True)

    def _read(self, content: str | bytes) -> Any:
        if self._framing is Framing.AZURE:
            return speech_framing.read(content)
        if self._framing is Framing.SOUND and isinstance(content, bytes):
            return {"sound": content}
        return read_json(content)


class SocketEndpoint:
    """Opens websockets to one server. `headers`: sent to the servers of `urls` with each request, and to no
    other, whatever address an answer names. `host`: that of the first, for messages. `longest`: most bytes of
    a message. Belongs to one event loop."""

    def __init__(
        self,
        urls: Iterable[str],
        *,
        headers: Mapping[str, str],
        framing: Framing = Framing.JSON,
        longest: int = MESSAGE_LIMIT,
        allowed: egress.EgressPolicy | None = None,
    ) -> None:
        places = list(map(_server, urls))
        self.host = places[0][1]
        self._trusted = frozenset(places)
        self._headers = dict(headers)
        self._framing = framing
        self._longest = longest
        self._session = GuardedSession(allowed, connect_s=CONNECT_S, limit=0)

    @asynccontextmanager
    async def opened(self, url: str, query: Mapping[str, str]) -> AsyncIterator[Socket]:
        """Opens a socket for as long as the block lasts. Raises `EngineError`."""
        with engine_errors(self.host):
            async with asyncio.timeout(CONNECT_S):
                socket = await self._session.opened().ws_connect(
                    url,
                    params=query,
                    headers=self._headers if _server(url) in self._trusted else {},
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=self._longest,
                )
        try:
            yield Socket(self.host, socket, self._framing)
        finally:
            await asyncio.shield(asyncio.create_task(_closed(socket)))

    async def ask(self, url: str, body: Mapping[str, Any]) -> Any:
        """Posts `body` and returns the answer's JSON, such as the address for a socket. Raises
        `EngineError`."""
        with engine_errors(self.host):
            async with asyncio.timeout(CONNECT_S):
                async with self._session.opened().post(
                    url, json=dict(body), headers=self._headers, allow_redirects=False
                ) as answer:
                    if answer.status >= 300 or is_compressed(answer):
                        text = f"{self.host} answered {answer.status}"
                        raise EngineError(text, retryable=answer.status >= 500)
                    return read_json(await self._whole(answer))

    async def _whole(self, answer: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for piece in answer.content.iter_any():
            content += piece
            if len(content) > MESSAGE_LIMIT:
                raise EngineError(f"{self.host} answers without end", retryable=False)
        return bytes(content)

    async def close(self) -> None:
        """Closes the sockets that are still open."""
        await self._session.close()


def _server(url: str) -> tuple[bool, str]:
    """Whether a URL is encrypted, and its host and port; a websocket and its HTTP have the same server."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    encrypted = parts.scheme.lower() in ("https", "wss")
    return encrypted, host.removesuffix(":443" if encrypted else ":80")


async def _closed(socket: aiohttp.ClientWebSocketResponse) -> None:
    try:
        async with asyncio.timeout(1.0):
            await socket.close()
    except (TimeoutError, aiohttp.ClientError, OSError):
        return
