"""A server that sends bytes as they are: model servers as they behave in the wild, down to the framing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Piece: TypeAlias = bytes | float
"""Bytes to send, or seconds to wait."""

SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@dataclass
class WildServer:
    """`answers`: what the next requests get, in order; the last one is given again. `requests`: their JSON
    bodies, {} for those without."""

    answers: list[Sequence[Piece]]
    base_url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    under_way: set[asyncio.Task[None]] = field(default_factory=set)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client is there."""
        task = asyncio.create_task(self.serve(reader, writer))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            body = await reader.readexactly(int(size or 0))
            self.requests.append(json.loads(body) if body.startswith(b"{") else {})
            pieces = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            for piece in pieces:
                if isinstance(piece, float):
                    await asyncio.sleep(piece)
                else:
                    writer.write(piece)
                    await writer.drain()


@asynccontextmanager
async def wild_server(*answers: Sequence[Piece]) -> AsyncIterator[WildServer]:
    """A running server that gives `answers`."""
    wild = WildServer(list(answers))
    server = await asyncio.start_server(wild.connected, "127.0.0.1", 0)
    wild.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield wild
    finally:
        server.close()
        for task in tuple(wild.under_way):
            task.cancel()
        await asyncio.gather(*wild.under_way, return_exceptions=True)


def event(delta: Any = None, *, finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a streamed chat completion."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}
    return f"data: {json.dumps(chunk)}\n\n".encode()


DONE = b"data: [DONE]\n\n"
