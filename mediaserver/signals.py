"""What the signals of the process ask of a server."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from typing import Self

_STOPPING = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Signals:
    """What signals asked for: `stop` drains, `now` ends without waiting any longer, `reload` reads the
    configuration again."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    now: asyncio.Event = field(default_factory=asyncio.Event)
    reload: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def installed(cls) -> Self:
        """Makes the running loop handle SIGTERM, SIGINT and SIGHUP."""
        signals = cls()
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, signals.stopped)
        loop.add_signal_handler(signal.SIGHUP, signals.reload.set)
        return signals

    def stopped(self) -> None:
        """Handles SIGTERM or SIGINT: the first drains, the second ends at once."""
        (self.now if self.stop.is_set() else self.stop).set()
