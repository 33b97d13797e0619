"""Who was cancelled: a task, or only what it waits for."""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Whether somebody cancelled the task that asks: then a CancelledError is its own, whatever else was
    closed in the same moment, and is not to be told as a failure of an engine."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
