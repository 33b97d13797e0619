"""Echo paths of the agent's own voice: delayed, and lower by the return loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.conversation.sounds import RATE_HZ, reading

Taps = npt.NDArray[np.float64]

_HYBRID_S: Final = 0.008
_ROOM_S: Final = 0.25
_REVERBERATION_S: Final = (0.2, 0.4)
_DIRECT_DB: Final = (3.0, 9.0)


@dataclass(frozen=True, slots=True)
class Echo:
    """An echo path: `taps` at 8 kHz, `delay_s` seconds after the voice arrived."""

    delay_s: float
    taps: Taps

    def quieter(self, loss_db: float) -> Echo:
        """Returns the path with a return loss of `loss_db`, measured on the agent's voice: taps that favour
        some frequencies return more or less of a voice than of noise."""
        voice = reading().samples[: 4 * RATE_HZ].astype(np.float64)
        returned = np.convolve(voice, self.taps)
        gain = 10 ** (-loss_db / 20) * np.sqrt((voice**2).sum() / (returned**2).sum())
        return Echo(self.delay_s, self.taps * gain)


def wire(rng: np.random.Generator) -> Echo:
    """Returns a path with a delay only."""
    return Echo(_delay_s(rng), np.ones(1))


def hybrid(rng: np.random.Generator) -> Echo:
    """Returns the path of an analogue line's hybrid (four-to-two-wire junction), dispersed over some
    milliseconds."""
    time_s = np.arange(round(_HYBRID_S * RATE_HZ)) / RATE_HZ
    return Echo(_delay_s(rng), rng.standard_normal(time_s.size) * np.exp(-time_s / rng.uniform(0.001, 0.003)))


def room(rng: np.random.Generator) -> Echo:
    """Returns the path of a loudspeaker telephone: the direct sound, and a reverberation that falls by 60 dB
    in 0.2 to 0.4 s. Its microphone is closer to its loudspeaker than the critical distance (half a metre in a
    living room), so the reverberation is 3 to 9 dB below the direct sound."""
    time_s = np.arange(round(_ROOM_S * RATE_HZ)) / RATE_HZ
    taps = rng.standard_normal(time_s.size) * np.exp(-6.9 * time_s / rng.uniform(*_REVERBERATION_S))
    taps *= 10 ** (-rng.uniform(*_DIRECT_DB) / 20) / np.sqrt((taps**2).sum())
    taps[0] = 1.0
    return Echo(_delay_s(rng), taps)


def _delay_s(rng: np.random.Generator) -> float:
    return float(rng.uniform(0.03, 0.3))
