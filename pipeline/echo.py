"""Is what the caller's line carries our own voice? The caller's frame is compared with what we played."""

from __future__ import annotations

from pipeline.audio import Pcm


class EchoGate:
    """One call's: `played` gets every frame that leaves, `is_echo` every frame that comes in."""

    __slots__ = ("_rate_hz",)

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz

    def played(self, frame: Pcm, now: float) -> None:
        """`frame` (20 ms at the leg's rate) was handed to the wire at `now`."""

    def is_echo(self, frame: Pcm, now: float) -> bool:
        """`frame`, which arrived at `now`, is nothing but what we played, late and quieter. Call it for every
        frame while the agent speaks and for half a second after; False at once at other times."""
        return False
