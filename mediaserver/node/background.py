"""Background loops of the server: run until cancelled, whatever goes wrong in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mediaserver.errors import StoreError
from pipeline.errors import boundary

log = logging.getLogger(__name__)

RESTART_S = 1.0
"""Pause before a background loop that failed is run again."""


async def forever(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Runs a background loop of the server; one that fails is logged and run again."""
    while True:
        with boundary(log, "background loop failed", loop=name):
            try:
                await run()
            except StoreError as error:
                fields = {"loop": name, "reason": str(error)}
                log.error("background loop waits for the database", extra=fields)
        await asyncio.sleep(RESTART_S)
