"""Drives `rtc_client` in a process of its own."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from tests.support.node.forked import forked_client


class RtcClient:
    """The client's pipe. `events` are the lines it wrote so far."""

    def __init__(
        self, process: BaseProcess, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader
    ) -> None:
        self._process = process
        self._stdin = stdin
        self._stdout = stdout
        self.events: list[dict[str, Any]] = []
        self.report: dict[str, Any] = {}
        self._news = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def line(self) -> dict[str, Any]:
        """The next line."""
        text = await asyncio.wait_for(self._stdout.readline(), 30)
        assert text, "the client is gone"
        line: dict[str, Any] = json.loads(text)
        return line

    def tell(self, **line: Any) -> None:
        """Writes a line to it."""
        self._stdin.write(json.dumps(line).encode() + b"\n")

    def follow(self) -> None:
        """Collects events from now on."""
        self._reading = asyncio.create_task(self._read())

    async def event(self, name: str, *, after: int = 0, timeout_s: float = 30) -> dict[str, Any]:
        """Waits for an event of that name beyond the first `after` of them."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = [each for each in self.events if each.get("event") == name]
                if len(found) > after:
                    return found[after]
                self._news.clear()
                await self._news.wait()

    async def end(self) -> dict[str, Any]:
        """Ends the session; what it reports."""
        self.tell(end=True)
        if self._reading is not None:
            await asyncio.wait_for(self._reading, 30)
        await asyncio.to_thread(self._process.join, 30)
        return self.report

    async def _read(self) -> None:
        while text := await self._stdout.readline():
            line = json.loads(text)
            self.report = line.get("report", self.report)
            self.events.append(line)
            self._news.set()


@asynccontextmanager
async def rtc_client(**options: Any) -> AsyncIterator[RtcClient]:
    """A client process; killed at the end if it still runs."""
    async with client_process("tests.support.webrtc.rtc_client", options) as client:
        yield client


@asynccontextmanager
async def client_process(
    module: str, options: Mapping[str, Any], *, is_quiet: bool = False
) -> AsyncIterator[RtcClient]:
    """A process of `module`, told its `options`; killed at the end if it still runs. `is_quiet`: nobody sees
    what it writes on stderr."""
    (ours_in, stdin), (ours_out, stdout) = socket.socketpair(), socket.socketpair()
    process = await asyncio.to_thread(forked_client, module, stdin, stdout, is_quiet=is_quiet)
    stdin.close()
    stdout.close()
    _, writer = await asyncio.open_connection(sock=ours_in)
    reader, reading = await asyncio.open_connection(sock=ours_out, limit=1 << 20)
    client = RtcClient(process, writer, reader)
    client.tell(**options)
    try:
        yield client
    finally:
        process.kill()
        await asyncio.to_thread(process.join, 30)
        if client._reading is not None:
            client._reading.cancel()
            await asyncio.gather(client._reading, return_exceptions=True)
        for each in (writer, reading):
            each.close()
