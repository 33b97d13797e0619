"""What runs the streams of a plane: sockets and time around `pipeline.plane.step`."""

from __future__ import annotations

import socket
from typing import Protocol


class Drive(Protocol):
    """Reads what has come for the streams, steps, and sends what is due; tells the event loop of what
    happened."""

    def watch(self, bound: socket.socket, number: int) -> None:
        """Reads datagrams of stream `number` from `bound`, and sends its packets by it."""

    def forget(self, bound: socket.socket, number: int) -> None:
        """Touches `bound` no more. The row is held."""

    def poke(self) -> None:
        """Sends what is due, without waiting for the tick."""

    def close(self) -> None:
        """Reads and sends no more. Idempotent."""
