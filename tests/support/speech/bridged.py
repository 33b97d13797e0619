"""Legs that a test speaks through, and a clock whose ticks it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.audio import Pcm
from pipeline.leg import AudioSource, LegListener

RATE_HZ = 16000


class FakeLeg:
    """A leg that the test speaks through."""

    def __init__(self, rate_hz: int = RATE_HZ) -> None:
        self.rate_hz = rate_hz
        self.held = False
        self.listener: LegListener | None = None
        self.source: AudioSource | None = None
        self.hung_up = 0
        self._at = 0

    def attach(self, listener: LegListener | None, source: AudioSource | None) -> None:
        self.listener, self.source = listener, source

    async def hang_up(self) -> None:
        self.hung_up += 1

    async def send_dtmf(self, digits: str) -> None:
        pass

    def say(self, frame: Pcm) -> None:
        assert self.listener is not None
        self.listener.audio_received(frame, self._at, 0.0, concealed=False)
        self._at += len(frame)

    def hear(self) -> Pcm | None:
        assert self.source is not None
        return self.source.read()


class Cancellable:
    """One entry of a list that can be taken out."""

    def __init__(self, entries: list[Any], entry: Any) -> None:
        self._entries = entries
        self._entry = entry

    def cancel(self) -> None:
        if self._entry in self._entries:
            self._entries.remove(self._entry)


class ByHand:
    """A clock whose ticks the test makes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], Any]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], Any], /) -> Any:
        entry = (when, callback)
        self.calls.append(entry)
        return Cancellable(self.calls, entry)

    def pass_frame(self) -> None:
        """20 ms."""
        self.now += 0.02
        due = [call for call in self.calls if call[0] <= self.now + 1e-6]
        for call in due:
            self.calls.remove(call)
        for _, callback in due:
            callback()
