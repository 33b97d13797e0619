"""Logging as it was, after a test that configured it as a server does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_logging() -> Iterator[None]:
    """Puts back the root's handlers, and the levels that `mediaserver.telemetry.logging.configure` sets."""
    root = logging.getLogger()
    loggers = [root, *(logging.getLogger(name) for name in ("api", "mediaserver", "pipeline", "sip"))]
    handlers, levels = root.handlers[:], [each.level for each in loggers]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
