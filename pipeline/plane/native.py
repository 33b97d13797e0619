"""The types of the plane's memory, as its kernels are compiled for them."""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from pipeline.audio.dtmf import COSINES, SINES
from pipeline.audio.resample import phases
from pipeline.plane.compiled import native as native
from pipeline.plane.rows import FRAME_SAMPLES, MOST_SAMPLES, Scratch, rows, shared

T: Final[Any] = numba.types  # its own stubs cover a part of it only


def scratch() -> Scratch:
    """Tables and working memory for the kernels of one thread."""
    return Scratch(
        cosines=COSINES,
        sines=SINES,
        up=phases(8000, 16000),
        down=phases(16000, 8000),
        pcm=np.zeros(MOST_SAMPLES, np.int16),
        resampled=np.zeros(2 * MOST_SAMPLES, np.int16),
        loop=np.zeros(3 * FRAME_SAMPLES, np.float32),
        wave=np.zeros(2 * FRAME_SAMPLES, np.float32),
    )


ROWS: Final = numba.typeof(rows(1))
SCRATCH: Final = numba.typeof(scratch())
SHARED: Final = numba.typeof(shared())
LINE: Final = numba.typeof(rows(1).line[0])
I64: Final = T.int64
VOID: Final = T.void
BOOL: Final = T.boolean
I16: Final = T.int16[::1]
U8: Final = T.uint8[::1]
F32: Final = T.float32[::1]
