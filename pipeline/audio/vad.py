"""Detects voice activity by energy, in about 2 µs a frame.

The energy below and above 1 kHz, and in eight narrower bands, is compared with the noise floor of each band,
which follows the minimum of the last 0.75 to 1.5 s (minimum statistics, Martin 2001). A voice no louder than
a stationary noise still exceeds the noise in some narrow bands: at 0 dB the wide bands find one voiced frame
in ten, the narrow ones six. Like any energy detector, this one takes babble, music, slamming doors and DTMF
for voice; remove DTMF first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pipeline.audio import FRAME_MS, LINE_RATES_HZ, Pcm, frame_samples, kernels


@dataclass(frozen=True, slots=True)
class VadSettings:
    """Thresholds in dB over the noise floor, times in ms (whole frames of 20 ms).

    `on_db`: level at which speech begins; `off_db`: lower level at which speech goes on (hysteresis).
    `min_on_ms`: voiced time before `active` begins; a click is shorter. `hang_ms`: unvoiced time before
    `active` ends; pauses inside words are shorter. `quietest_dbov`: least noise floor, so that line noise
    after digital silence is no speech. `narrow`: uses the narrow bands, which find a voice in noise of the
    same level, but take more music for voice. Raises ValueError for values out of order.
    """

    on_db: float = 7.0
    off_db: float = 4.5
    min_on_ms: int = 40
    hang_ms: int = 160
    quietest_dbov: float = -62.0
    narrow: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.off_db <= self.on_db:
            raise ValueError(f"off_db={self.off_db}: must be above 0 and at most on_db={self.on_db}")
        if self.min_on_ms < FRAME_MS or self.hang_ms < FRAME_MS:
            raise ValueError(f"min_on_ms and hang_ms: at least one frame of {FRAME_MS} ms")


@dataclass(frozen=True, slots=True)
class VadFrame:
    """The verdict on one frame.

    `voiced`: the frame itself exceeds the noise floor, without smoothing or hang-over, so that the last
    voiced frame is the end of the voice. `active`: a voice is present (on after `min_on_ms`, off after
    `hang_ms`).
    """

    voiced: bool
    active: bool


# The kernel returns two bits; the four verdicts are made once, so that a frame allocates nothing.
VERDICTS: Final = tuple(VadFrame(voiced=bool(bits & 1), active=bool(bits & 2)) for bits in range(4))


def begin_energy_vad(
    state: kernels.Floats, bands: kernels.Floats, rate_hz: int, settings: VadSettings
) -> None:
    """Begins the detector whose memory is `state` and `bands`, with an unknown noise floor."""
    kernels.energy_vad_init(
        state,
        bands,
        rate_hz,
        (settings.on_db, settings.off_db, settings.quietest_dbov),
        (settings.min_on_ms // FRAME_MS, settings.hang_ms // FRAME_MS),
    )


class EnergyVad:
    """The voice activity detector of one party; takes every frame of 20 ms in order. Raises ValueError for a
    rate that no leg has."""

    __slots__ = ("_bands", "_samples", "_settings", "_state", "rate_hz")

    def __init__(self, rate_hz: int, settings: VadSettings | None = None) -> None:
        if rate_hz not in LINE_RATES_HZ:
            raise ValueError(f"rate_hz={rate_hz}: not one of {LINE_RATES_HZ}")
        self.rate_hz = rate_hz
        self._samples = frame_samples(rate_hz)
        self._settings = settings or VadSettings()
        self._state = np.zeros(kernels.VAD_COLUMNS, np.float32)
        rows = kernels.VAD_ROWS if self._settings.narrow else 0
        self._bands = np.zeros((rows, kernels.VAD_BANDS), np.float32)
        self.reset()

    def reset(self) -> None:
        """Restarts the detector for another stream, with an unknown noise floor."""
        begin_energy_vad(self._state, self._bands, self.rate_hz, self._settings)

    def push(self, frame: Pcm) -> VadFrame:
        """Takes the next frame (20 ms of int16 at `rate_hz`) and gives the verdict on it."""
        return VERDICTS[kernels.energy_vad_step(frame, self._state, self._bands)]

    @property
    def active(self) -> bool:
        """Whether a voice was present at the last frame."""
        return bool(self._state[kernels.VAD_ACTIVE])

    @property
    def snr_db(self) -> float:
        """The last frame's level over the noise floor in dB, in the louder of the two wide bands."""
        return float(self._state[kernels.VAD_SNR_DB])
