"""Drives `sdk_client` in a process of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.webrtc.rtc import RtcClient, client_process


@asynccontextmanager
async def sdk_client(**options: Any) -> AsyncIterator[RtcClient]:
    """A client with LiveKit's Python SDK, its events being collected; killed at the end if it still runs."""
    # The SDK's native half logs, and at exit says things that mean nothing.
    is_quiet = not os.environ.get("SDK_LOG")
    async with client_process("tests.support.webrtc.sdk_client", options, is_quiet=is_quiet) as client:
        client.follow()
        yield client
