"""The stub models of all peers, as those of `bench.call.server`."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

LINE_HZ: Final = 8000
VOICE_HZ: Final = 24_000
SENTENCE_S: Final = 1.5
WORDS: Final = "good morning everybody"
ANSWER: Final = "This is the answer of the agent."


@cache
def sentence() -> npt.NDArray[np.int16]:
    """Returns the agent's sentence: a tone of 400 Hz at -12 dBov, int16 at `VOICE_HZ`."""
    phase = np.arange(int(SENTENCE_S * VOICE_HZ)) * (2 * np.pi * 400 / VOICE_HZ)
    samples: npt.NDArray[np.int16] = (8192 * np.sin(phase)).astype(np.int16)
    return samples
