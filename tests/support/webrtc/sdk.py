"""Drives `sdk_client` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.paths import ROOT
from tests.support.webrtc.rtc import RtcClient


@asynccontextmanager
async def sdk_client(**options: Any) -> AsyncIterator[RtcClient]:
    """A client with LiveKit's Python SDK, its events being collected; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.webrtc.sdk_client",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # The SDK's native half logs, and at exit says things that mean nothing.
        stderr=None if os.environ.get("SDK_LOG") else asyncio.subprocess.DEVNULL,
        cwd=ROOT,
        limit=1 << 20,
    )
    client = RtcClient(process)
    client.tell(**options)
    client.follow()
    try:
        yield client
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        if client._reading is not None:
            client._reading.cancel()
            await asyncio.gather(client._reading, return_exceptions=True)
