"""Gives memory that is free back to the system.

glibc keeps what was freed below a block in use for the next one of its size: ten megabytes after a start, and
some kilobytes of each of a hundred calls that ended. Giving it back takes 1 to 3 ms, on a thread."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import Any, Final

LOOK_S: Final = 10.0
"""Seconds between two looks at how many calls there are."""

_trim: Final[Any] = getattr(ctypes.CDLL(None), "malloc_trim", None)


def give_back() -> None:
    """Gives pages of the heap on which nothing lies back to the system, where the C library can (glibc)."""
    if _trim is not None:
        _trim(0)


def settle() -> None:
    """Frees what only the start of the process needed. What is alive must live as long as the process: full
    collections skip it from now on. They also become rare, since calls are freed without them and each holds
    every call up for a tenth of a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 100)


async def after_calls(live: Callable[[], int], give_back: Callable[[], None] = give_back) -> None:
    """Gives memory back now, and whenever fewer calls are `live` than at the last look."""
    before, now = 1, 0
    while True:
        if now < before:
            await asyncio.to_thread(give_back)
        before = now
        await asyncio.sleep(LOOK_S)
        now = live()
