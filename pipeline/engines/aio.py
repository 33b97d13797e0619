"""Closes asynchronous streams of engines within a time limit, and tells cancelled tasks from failed
engines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NoReturn, TypeVar

from pipeline.errors import EngineError, boundary

log = logging.getLogger(__name__)

CLOSE_LIMIT_S: Final = 1.0  # longest wait for an engine to stop, so that the call can end

_T = TypeVar("_T")


def is_cancelled() -> bool:
    """Whether the current task was cancelled: a CancelledError is then the task's own and no failure of an
    engine."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@asynccontextmanager
async def closing(stream: AsyncIterator[_T]) -> AsyncIterator[AsyncIterator[_T]]:
    """Closes `stream` on exit, if it has `aclose`, within `CLOSE_LIMIT_S`. An exception while closing is
    logged and not raised."""
    try:
        yield stream
    finally:
        aclose: Any = getattr(stream, "aclose", None)
        if aclose is not None:
            with boundary(log, "engine did not stop cleanly"):
                try:
                    async with asyncio.timeout(CLOSE_LIMIT_S):
                        await aclose()
                except TimeoutError:
                    log.warning("engine did not stop when told to")


async def refuse(stream: AsyncIterator[_T], error: EngineError) -> NoReturn:
    """Raises `error`, within `stream` first where possible, so that the engine's guard counts the error."""
    athrow: Any = getattr(stream, "athrow", None)
    if athrow is not None:
        # The engine raises `error` again, or an error of its own.
        expected = suppress(EngineError, StopAsyncIteration, TimeoutError)
        with boundary(log, "engine did not stop cleanly"), expected:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await athrow(error)
    raise error
