"""The simplest party to a call: keeps what it hears and says what it was given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.leg import Leg


class Party:
    """Attaches itself to `leg`; `samples` and `digits` are what arrived."""

    def __init__(self, leg: Leg, say: Pcm | None = None) -> None:
        self.frames: list[Pcm] = []
        self.digits = ""
        self.ended: list[str] = []
        size = frame_samples(leg.rate_hz)
        self._say = [] if say is None else list(say[: say.size // size * size].reshape(-1, size))
        leg.attach(self, self)

    @property
    def samples(self) -> Pcm:
        """Everything heard."""
        return np.concatenate(self.frames) if self.frames else np.zeros(0, np.int16)

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """See `LegListener`."""
        self.frames.append(frame.copy())

    def digit_received(self, digit: str, now: float) -> None:
        """See `LegListener`."""
        self.digits += digit

    def leg_ended(self, reason: str, now: float) -> None:
        """See `LegListener`."""
        self.ended.append(reason)

    def read(self) -> Pcm | None:
        """See `AudioSource`."""
        return self._say.pop(0) if self._say else None

    def sent(self, now: float) -> None:
        """See `AudioSource`."""

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """See `AudioSource`."""
