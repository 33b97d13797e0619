"""The media plane's concealment of one stream, called frame by frame without packets."""

from __future__ import annotations

from typing import Final

import numpy as np

from pipeline.audio import Pcm, frame_samples
from pipeline.audio.compiled import compiled
from pipeline.plane.called import address_of, scratch_at
from pipeline.plane.native import I16, VOID, T, line_at
from pipeline.plane.reception import concealment
from pipeline.plane.rows import rows, scratch
from pipeline.plane.setup import prepare

RATES_HZ: Final = (8000, 16000)
"""The rates of the media plane's streams."""

_ADDRESS: Final = T.uintp


@compiled(VOID(_ADDRESS, _ADDRESS, I16))
def _good(line: int, scratch: int, frame: Pcm) -> None:
    concealment.good(line_at(line), scratch_at(scratch), frame)


@compiled(VOID(_ADDRESS, _ADDRESS, I16))
def _conceal(line: int, scratch: int, frame: Pcm) -> None:
    concealment.conceal(line_at(line), scratch_at(scratch), frame)


class Concealment:
    """One stream at `rate_hz`: `good` takes each frame that arrived, `conceal` stands for each lost one, in
    order. Raises ValueError for a rate that the plane does not have."""

    def __init__(self, rate_hz: int) -> None:
        if rate_hz not in RATES_HZ:
            raise ValueError(f"rate_hz={rate_hz}: not one of {RATES_HZ}")
        self._rows, self._scratch = rows(1), scratch()
        prepare(self._rows[0], 0, rate_hz=rate_hz, patience_ms=0)
        self._addresses = address_of(self._rows[0]), address_of(self._scratch)
        self._samples = frame_samples(rate_hz)

    def good(self, frame: Pcm) -> Pcm:
        """Returns the frame of 20 ms to play: the same array, written into after a lost frame."""
        _good(*self._addresses, frame)
        return frame

    def conceal(self) -> Pcm:
        """Returns a frame of 20 ms for a lost one."""
        frame = np.zeros(self._samples, np.int16)
        _conceal(*self._addresses, frame)
        return frame
