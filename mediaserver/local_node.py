"""Processes of this installation, for the demo and the benchmark: a node on loopback, started, waited for,
and ended with the block."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientError, ClientSession

from mediaserver.errors import LocalError
from pipeline import kernel_cache

READY_S = 90
"""Until the server is ready: on a machine with much else to do it takes a while."""
STOP_S = 15


class NodeFailed(LocalError):
    """A node did not become ready: the message says what it said."""


@asynccontextmanager
async def process(
    *arguments: str, log: Path, stdout: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs `python -m` with `arguments` for the length of the block; its log goes to `log`. The process
    imports nothing from the folder that it is started in."""
    with log.open("wb") as file:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", *arguments),
            stdout=stdout or file,
            stderr=file,
            limit=1 << 20,
            env=environment(),
        )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()


async def wait_ready(api: ClientSession, server: asyncio.subprocess.Process, log: Path) -> None:
    """Waits until /readyz answers 200. Raises `NodeFailed` with the end of the server's log."""
    try:
        async with asyncio.timeout(READY_S):
            while server.returncode is None:
                try:
                    async with api.get("/readyz") as answer:
                        if answer.status == 200:
                            return
                except (ClientError, TimeoutError):
                    pass  # it does not listen yet, or is too busy to answer
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass
    said = await asyncio.to_thread(log.read_text, errors="replace")
    raise NodeFailed("the server did not become ready:\n" + said[-2000:])


def environment() -> Mapping[str, str]:
    """Returns the environment of every process: they share the kernels that are compiled."""
    return {kernel_cache.VARIABLE: str(kernel_cache.users_place()), **os.environ}


def cache() -> Path:
    """Returns the user's cache, which is kept from one run to the next (XDG base directories)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "openline-mediaserver"


def free_port() -> int:
    """Returns a port of loopback that nothing is bound to, neither UDP nor TCP."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            port: int = tcp.getsockname()[1]
            try:
                udp.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
