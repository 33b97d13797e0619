"""Whether there is room on the disk that recordings and the database are written to."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

LOW_BYTES = 4 * 1024 * 1024
"""The least free space, two minutes of one recording; below it the disk counts as full."""

LOOK_S = 2.0

_PROBE_BYTES = 64 * 1024


class Disk:
    """Watches the disk of `folder`. `missing` is "" or says why nothing can be written there; `show` is
    called with the free bytes after every check."""

    def __init__(self, folder: Path, *, show: Callable[[float], object]) -> None:
        self.missing = ""
        self._folder = folder
        self._show = show

    async def run(self) -> None:
        """Checks the disk every `LOOK_S` seconds until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Checks the disk once: its free bytes, and whether a file can be written."""
        free, missing = await asyncio.to_thread(_look, self._folder)
        self._show(free)
        if missing and not self.missing:
            log.error("disk full", extra={"folder": str(self._folder), "reason": missing})
        elif self.missing and not missing:
            log.warning("disk has room again", extra={"folder": str(self._folder), "free": free})
        self.missing = missing


def _look(folder: Path) -> tuple[int, str]:
    """The bytes that are free, and why nothing can be written: a quota says so only to who writes."""
    probe = folder / ".room"
    free = 0
    try:
        found = os.statvfs(folder)
        free = found.f_bavail * found.f_frsize
        if free < LOW_BYTES:
            return free, f"{folder} has {free // 1024} KiB left"
        with probe.open("wb", buffering=0) as file:
            written = file.write(bytes(_PROBE_BYTES))
        probe.unlink()
    except OSError as error:
        return free, f"{folder} cannot be written: {(error.strerror or str(error)).lower()}"
    return free, "" if written == _PROBE_BYTES else f"{folder} takes no more"
