"""Detects the echo of the agent's voice in the caller's audio.

The gate compares the caller's frame with the audio that was played. A telephone hybrid, or a loudspeaker
beside a microphone, sends that audio back 5 to 500 ms later and at least 12 dB quieter. A lag at which both
signals correlate for 0.16 s is taken for the echo's delay; a short adaptive filter at that lag then gives the
share of each frame that the played audio explains. A voice over the echo is not explained.

The method is the double-talk detection of echo cancellers (Benesty, Morgan and Cho 2000), without
cancellation: turn-taking only asks whether a frame is the caller's. A frame takes about 5 µs while the agent
speaks, and 2.5 µs while the caller has been silent for half a second: no delay is searched then.
"""

from __future__ import annotations

import functools
from typing import Final

import numpy as np

from pipeline.audio import FRAME_MS, LINE_RATES_HZ, Pcm, frame_samples, kernels

TAIL_S: Final = 0.6
"""Seconds after the last played frame in which an echo may arrive."""

EXPLAINED: Final = 0.5
"""Share of a frame above which it is taken for echo."""

_COARSE: Final = kernels.ECHO_COARSE
_COARSE_HZ: Final = _COARSE * 1000 // FRAME_MS
REALIGN: Final = 3 * _COARSE
"""Distance of a frame from its expected position, in samples at 2 kHz, above which there was a gap (silence
or loss); a shorter distance is jitter."""


class EchoGate:
    """The echo detector of one call: `played` takes every sent frame, `is_echo` every received one. Raises
    ValueError for a rate that no leg has."""

    __slots__ = (
        "_far", "_heard", "_near", "_next_heard", "_next_played", "_played", "_played_at", "_rings", "_state",
        "_sums", "_taps", "_weights",
    )  # fmt: skip

    def __init__(self, rate_hz: int) -> None:
        if rate_hz not in LINE_RATES_HZ:
            raise ValueError(f"rate_hz={rate_hz}: not one of {LINE_RATES_HZ}")
        self._taps = thinning_taps(rate_hz)
        self._rings = np.empty(0, np.int16)  # no memory before the first played frame
        self._state = np.zeros(kernels.ECHO_COLUMNS, np.float32)
        self._state[kernels.ECHO_LOCKED] = -1.0
        self._state[kernels.ECHO_QUIET] = kernels.ECHO_HANG
        self._played_at = -TAIL_S
        self._next_played = self._next_heard = 0  # in samples at 2 kHz, on the clock of `now`

    def _open(self, size: int) -> None:
        self._far, self._near = np.zeros((2, self._taps.size + 2 * size), np.float32)
        stretch = max(size, kernels.ECHO_LAGS + _COARSE)
        self._played, self._heard = np.zeros((2, kernels.ECHO_THINNED + stretch), np.float32)
        self._rings = np.zeros(kernels.ECHO_RINGS, np.int16)
        self._sums = np.zeros((2, kernels.ECHO_LAGS), np.float32)
        self._weights = np.zeros((2, kernels.ECHO_TAPS), np.float32)

    def played(self, frame: Pcm, now: float) -> None:
        """Takes a frame (20 ms of int16 at the leg's rate) that was sent at loop time `now`."""
        if not self._rings.size:
            self._open(frame.size)
        if now - self._played_at > TAIL_S:
            self._begin(now)
        self._played_at = now
        due = round(now * _COARSE_HZ)
        if abs(due - self._next_played) > REALIGN:
            self._skip(due)
        kernels.echo_thin(frame, self._taps, self._far, self._played)
        kernels.echo_remember(self._rings, self._next_played, self._played)
        self._next_played += _COARSE

    def is_echo(self, frame: Pcm, now: float) -> bool:
        """Whether `frame`, received at loop time `now`, is only the echo of played audio. Call for every
        frame; False at once unless the agent has spoken within `TAIL_S`."""
        due = round(now * _COARSE_HZ)
        position = self._next_heard if abs(due - self._next_heard) <= REALIGN else due
        self._next_heard = position + _COARSE
        if now - self._played_at > TAIL_S or not self._rings.size:
            return False
        kernels.echo_thin(frame, self._taps, self._near, self._heard)
        share = kernels.echo_share(self._rings, position, self._heard, self._sums, self._weights, self._state)
        return share > EXPLAINED

    @property
    def delay_ms(self) -> int | None:
        """The delay of the echo in milliseconds, by the loop times of frames; None until one is found."""
        lag = int(self._state[kernels.ECHO_LOCKED])
        return None if lag < 0 else (kernels.ECHO_LATEST - lag) * FRAME_MS // _COARSE

    @property
    def searches(self) -> int:
        """The number of frames in which the delay was searched: every other frame, but none while the caller
        is silent."""
        return int(self._state[kernels.ECHO_SEARCHES])

    def _begin(self, now: float) -> None:
        """Clears the played audio when the agent begins to speak; keeps lag and filter of the line."""
        self._next_played = round(now * _COARSE_HZ)
        self._rings[:] = 0
        self._sums[:] = 0.0
        self._state[: kernels.ECHO_LOCKED] = 0.0
        self._state[kernels.ECHO_QUIET] = kernels.ECHO_HANG

    def _skip(self, due: int) -> None:
        """Fills a pause within the agent's words with silence, up to the position `due`."""
        self._played[:] = 0.0
        while self._next_played < due:
            kernels.echo_remember(self._rings, self._next_played, self._played)
            self._next_played += _COARSE
        self._next_played = due


@functools.cache
def thinning_taps(rate_hz: int) -> kernels.Floats:
    """Gives the low-passes by which `kernels.echo_thin` decimates frames at `rate_hz`."""
    size = frame_samples(rate_hz)
    return np.concatenate((_low_pass(size // kernels.ECHO_FINE), _low_pass(size // _COARSE)))


def _low_pass(ratio: int) -> kernels.Floats:
    """The taps of a low-pass for decimation by `ratio`: a windowed sinc of 12 samples at the lower rate."""
    length = 12 * ratio
    n = np.arange(length) - (length - 1) / 2
    taps = np.sinc(0.8 * n / ratio) * np.hamming(length)
    return np.ascontiguousarray(taps / taps.sum(), np.float32)
