"""Resamples streams and utterances with a polyphase filter, a Kaiser-windowed sinc of 80 dB.

`Resampler` is for streams: its delay is 1 to 2 ms, chunks may have any length, and the output does not depend
on how the stream was cut. (soxr's stream delays by 36 to 171 ms; scipy's `resample_poly`, called for each
frame, clicks at every edge.)
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import ceil, gcd
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.audio import Pcm, kernels

_ATTENUATION_DB: Final = 80.0
# Edges of the transition band, as fractions of the lower rate's Nyquist frequency: the 3.4 kHz of a telephone
# channel pass, and aliases lie above 3.4 kHz.
_PASS: Final = 0.85
_STOP: Final = 1.15
_PIECE_MS: Final = 50
"""Of a long chunk what is filtered at once: a voice may give a whole sentence, and a call keeps its
buffer."""

KEPT: Final = 32
"""Filters that are kept, up to 200 kB each: a voice's server names the rate of each answer."""

_LOWEST_HZ: Final = 4000
_HIGHEST_HZ: Final = 192000
_MAX_PHASES: Final = 1000  # 44100 to 48000 Hz has 160; a ratio with more makes too long a filter


@dataclass(frozen=True, slots=True)
class _Filter:
    """The filter of one pair of rates. `up`/`down`: the ratio in lowest terms. `phases`: (up, taps) float32,
    each row in the order of the samples. `delay`: of the stream, in steps of 1/up input samples."""

    up: int
    down: int
    phases: npt.NDArray[np.float32]
    delay: int


@functools.lru_cache(KEPT)
def _design(from_hz: int, to_hz: int) -> _Filter:
    for rate_hz in (from_hz, to_hz):
        if not _LOWEST_HZ <= rate_hz <= _HIGHEST_HZ:
            raise ValueError(f"rate {rate_hz} Hz: not within {_LOWEST_HZ} to {_HIGHEST_HZ}")
    common = gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    if max(up, down) > _MAX_PHASES:
        raise ValueError(f"{from_hz} to {to_hz} Hz: the ratio {up}/{down} has too many phases")
    fast_hz = from_hz * up
    nyquist_hz = min(from_hz, to_hz) / 2
    # Kaiser's formula for the length; odd, so that the delay is a whole number of fast samples.
    length = ceil((_ATTENUATION_DB - 8) / (2.285 * 2 * np.pi * (_STOP - _PASS) * nyquist_hz / fast_hz)) | 1
    taps = -(-length // up)
    n = np.arange(length) - (length - 1) / 2
    cutoff = nyquist_hz / fast_hz
    impulse = 2 * cutoff * np.sinc(2 * cutoff * n) * np.kaiser(length, 0.1102 * (_ATTENUATION_DB - 8.7))
    padded = np.zeros(taps * up)
    padded[:length] = impulse * (up / impulse.sum())
    phases = np.ascontiguousarray(padded.reshape(taps, up).T[:, ::-1], np.float32)
    phases /= phases.sum(axis=1, keepdims=True)  # each phase passes DC exactly: no ripple at the frame rate
    return _Filter(up, down, phases, (length - 1) // 2)


def phases(from_hz: int, to_hz: int) -> npt.NDArray[np.float32]:
    """The filter of `Resampler`, (up, taps), for `kernels.polyphase`. Raises ValueError like it."""
    return _design(from_hz, to_hz).phases


class Resampler:
    """Resamples one stream from `from_hz` to `to_hz`; with equal rates a call returns its argument.

    Raises ValueError for a rate outside 4 to 192 kHz, or a pair whose ratio needs too many phases.
    """

    __slots__ = ("_buffer", "_down", "_filter", "_history", "_position", "_up", "from_hz", "to_hz")

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self.from_hz = from_hz
        self.to_hz = to_hz
        self._filter = _design(from_hz, to_hz)
        self._up = self._filter.up
        self._down = self._filter.down
        self._history = self._filter.phases.shape[1] - 1
        self._buffer = np.zeros(self._history + from_hz // 50, np.float32)
        self._position = 0
        """Position of the next output sample, in 1/up input samples from the start of the next chunk."""

    @property
    def delay_samples(self) -> int:
        """The filter's delay in output samples (0 for equal rates)."""
        return 0 if self._up == self._down else round(self._filter.delay / self._down)

    def reset(self) -> None:
        """Restarts the filter: the next chunk is the start of another stream."""
        self._buffer[: self._history] = 0.0
        self._position = 0

    def __call__(self, samples: Pcm) -> Pcm:
        """Takes any number of int16 samples and gives the output samples that they complete, as a new array.
        A frame of 20 ms gives exactly 20 ms."""
        if self._up == self._down:
            return samples
        size, most = samples.shape[0], self.from_hz * _PIECE_MS // 1000
        out = np.empty(max(0, -(-(size * self._up - self._position) // self._down)), np.int16)
        self._grow(min(size, most))
        done = 0
        for first in range(0, size, most):
            done += self._filtered(samples[first : first + most], out[done:])
        return out

    def _filtered(self, samples: Pcm, out: Pcm) -> int:
        """Filters a piece that fits the buffer into the beginning of `out`; how many samples it gave."""
        end = samples.shape[0] * self._up
        count: int = max(0, -(-(end - self._position) // self._down))
        kernels.polyphase(
            samples, self._buffer, self._filter.phases, out[:count], (self._position, self._down)
        )
        self._position += count * self._down - end
        return count

    def _grow(self, size: int) -> None:
        if size <= self._buffer.shape[0] - self._history:
            return
        buffer = np.zeros(self._history + size, np.float32)
        buffer[: self._history] = self._buffer[: self._history]
        self._buffer = buffer


def resample(samples: Pcm, from_hz: int, to_hz: int) -> Pcm:
    """Resamples a whole utterance without delay: gives `round(len * to_hz / from_hz)` int16 samples. Raises
    ValueError as `Resampler` does."""
    design = _design(from_hz, to_hz)
    if design.up == design.down or samples.size == 0:
        return samples
    taps = design.phases.shape[1]
    tail = -(-design.delay // design.up) + 1
    padded = np.concatenate((samples, np.zeros(tail, np.int16)))
    out = np.empty(round(samples.shape[0] * to_hz / from_hz), np.int16)
    buffer = np.zeros(taps - 1 + padded.shape[0], np.float32)
    kernels.polyphase(padded, buffer, design.phases, out, (design.delay, design.down))
    return out
