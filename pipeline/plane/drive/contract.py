"""What runs the streams of a plane: sockets and time around `pipeline.plane.step`."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt


class Memory(NamedTuple):
    """What the plane works on: streams, what it tells, and the ports that many streams share."""

    rows: npt.NDArray[Any]
    shared: Any
    ports: list[Any]


class Drive(Protocol):
    """Reads what has come for the streams, steps, and sends what is due; tells the event loop of what
    happened."""

    def watch(self, bound: socket.socket | None, number: int) -> None:
        """Reads datagrams of stream `number` from `bound`, and sends its packets by it; None: reads nothing,
        and sends by what `send_by` names."""

    def send_by(self, bound: socket.socket, number: int) -> None:
        """Sends packets of stream `number` by `bound`, which others read. The row is held."""

    def forget(self, bound: socket.socket | None, number: int) -> None:
        """Touches the stream's socket no more; `bound` is as `watch` had it. The row is held."""

    def watch_port(self, bound: socket.socket, number: int) -> None:
        """Reads datagrams of the shared port `number` from `bound`."""

    def forget_port(self, number: int) -> None:
        """Touches the port's socket no more. The port is held."""

    def poke(self) -> None:
        """Sends what is due, without waiting for the tick."""

    def close(self) -> None:
        """Reads and sends no more. Idempotent."""
