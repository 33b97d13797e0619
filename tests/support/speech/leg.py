"""Who listens to a leg, and the simplest party to a call: says what it was given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.leg import Leg


class Listener:
    """Keeps what a leg tells."""

    def __init__(self) -> None:
        self.frames: list[Pcm] = []
        self.positions: list[int] = []
        self.concealed: list[bool] = []
        self.digits: list[str] = []
        self.ended: list[str] = []

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """See `LegListener`."""
        self.frames.append(frame.copy())
        self.positions.append(position)
        self.concealed.append(concealed)

    def digit_received(self, digit: str, now: float) -> None:
        """See `LegListener`."""
        self.digits.append(digit)

    def leg_ended(self, reason: str, now: float) -> None:
        """See `LegListener`."""
        self.ended.append(reason)

    @property
    def heard(self) -> Pcm:
        """Everything that was heard."""
        return np.concatenate(self.frames) if self.frames else np.zeros(0, np.int16)

    @property
    def keyed(self) -> str:
        """The keys that were heard."""
        return "".join(self.digits)


class Party(Listener):
    """Attaches itself to `leg`; `samples` and `digits` are what arrived."""

    def __init__(self, leg: Leg, say: Pcm | None = None) -> None:
        super().__init__()
        size = frame_samples(leg.rate_hz)
        self._say = [] if say is None else list(say[: say.size // size * size].reshape(-1, size))
        leg.attach(self, self)

    def read(self) -> Pcm | None:
        """See `AudioSource`."""
        return self._say.pop(0) if self._say else None

    def sent(self, now: float) -> None:
        """See `AudioSource`."""

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """See `AudioSource`."""
