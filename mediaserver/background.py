"""Background loops of the server: run until cancelled, whatever goes wrong in them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mediaserver.errors import StoreError

log = logging.getLogger(__name__)

RESTART_S = 1.0
"""Pause before a background loop that failed is run again."""


async def forever(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Runs a background loop of the server; one that fails is logged and run again."""
    while True:
        try:
            await run()
        except StoreError as error:
            log.error("background loop waits for the database", extra={"loop": name, "reason": str(error)})
        except Exception:
            log.exception("background loop failed", extra={"loop": name})
        await asyncio.sleep(RESTART_S)
