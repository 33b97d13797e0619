"""Plays recorded audio as a source (`Call.play`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.audio.resample import resample


class Clip:
    """Samples cut into frames of 20 ms at `rate_hz`, the last one padded with silence (an `AudioSource`)."""

    __slots__ = ("_at", "_done", "_frame", "_samples", "_sent")

    def __init__(self, samples: Pcm, from_hz: int, rate_hz: int) -> None:
        """Raises ValueError for a rate that cannot be converted."""
        if from_hz != rate_hz:
            samples = resample(samples, from_hz, rate_hz)
        self._frame = frame_samples(rate_hz)
        missing = -len(samples) % self._frame
        self._samples: Pcm = np.concatenate([samples, np.zeros(missing, np.int16)])
        self._at = self._sent = 0
        self._done = asyncio.Event()
        if not len(self._samples):
            self._done.set()

    def read(self) -> Pcm | None:
        """Returns the next 20 ms of the clip at the leg's rate; None after the last."""
        if self._at >= len(self._samples):
            return None
        frame = self._samples[self._at : self._at + self._frame]
        self._at += self._frame
        return frame

    def sent(self, now: float) -> None:
        """`played` returns once the last frame was sent (`AudioSource`)."""
        self._sent += self._frame
        if self._sent >= len(self._samples):
            self._done.set()

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """Calls `wake` at once: a clip is ready from the start."""
        if wake is not None:
            wake()

    async def played(self, over: asyncio.Event) -> None:
        """Waits until the last frame has been sent, or the call is `over`."""
        waits = [asyncio.ensure_future(each.wait()) for each in (self._done, over)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
