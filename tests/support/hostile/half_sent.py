"""HTTP clients that do not go through with it: heads and bodies that stop, answers that nobody reads."""

from __future__ import annotations

import asyncio
import json
import re
from types import TracebackType

from tests.support.node.node import KEY

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-More:"
BODY = (
    f"POST /api/v1/calls/outbound HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
    'Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"phoneNumber":'
).encode()
CHUNKS = BODY.replace(b"Content-Length: 5000", b"Transfer-Encoding: chunked").replace(
    b'\r\n\r\n{"phoneNumber":', b'\r\n\r\nf\r\n{"phoneNumber":\r\n'
)


class Client:
    """One connection; `address` is where it comes from."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int, *, address: str = "127.0.0.1") -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def send(self, data: bytes) -> None:
        """What the server gets, if it is still there."""
        self.writer.write(data)

    async def rest(self, patience_s: float = 10.0) -> bytes:
        """Everything until the server closes."""
        async with asyncio.timeout(patience_s):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


async def several(count: int, port: int, data: bytes, *, address: str = "127.0.0.1") -> list[Client]:
    """Connections on which `data` was sent; those that the server does not take end at once."""
    clients = []
    for _ in range(count):
        client = await Client.connect(port, address=address)
        client.send(data)
        clients.append(client)
    return clients


async def closed(clients: list[Client], patience_s: float) -> list[bytes]:
    """What each was told before the server closed. Raises TimeoutError."""
    try:
        return await asyncio.gather(*(client.rest(patience_s) for client in clients))
    finally:
        for client in clients:
            await client.close()


def status(answer: bytes) -> int:
    """Of an answer; 0 for none."""
    found = re.match(rb"HTTP/1\.[01] (\d+) ", answer)
    return int(found[1]) if found else 0


def error(answer: bytes) -> str:
    """The text of a refusal."""
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["error"])
