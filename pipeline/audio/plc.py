"""Conceals lost frames by repeating the last pitch periods, like ITU-T G.711 Appendix I.

The repetition is faded out between 10 and 60 ms and followed by silence, since a recogniser must not get
invented words. Unlike Appendix I, concealment adds no delay: the start of a repetition is joined to the audio
before by removing the step instead of overlapping 3.75 ms of the past, so a received frame costs one copy.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pipeline.audio import FRAME_MS, LINE_RATES_HZ, Pcm, frame_samples, kernels

_HISTORY_FRAMES: Final = 3  # 60 ms hold three and a quarter periods of the lowest pitch: 48.75 ms
_FADE_FROM_MS: Final = 10.0
_FADE_TO_MS: Final = 60.0
_SHORTEST_MS: Final = 5.0  # pitch periods of 200 Hz and 66 Hz, as in Appendix I
_LONGEST_MS: Final = 15.0
_JOIN_MS: Final = 1.0  # length over which the step at the start is spread
_OVERLAP_MS: Final = 10.0  # of a repetition with the frame after it


class Concealment:
    """The packet loss concealment of one stream: call `good` for each received frame and `conceal` for each
    lost one, in order. Raises ValueError for a rate that no leg has."""

    __slots__ = ("_at", "_lost", "_overlap", "_period", "_phase", "_ring", "_samples", "_silence", "_source",
                 "_tail", "rate_hz")  # fmt: skip

    def __init__(self, rate_hz: int) -> None:
        if rate_hz not in LINE_RATES_HZ:
            raise ValueError(f"rate_hz={rate_hz}: not one of {LINE_RATES_HZ}")
        self.rate_hz = rate_hz
        self._samples = frame_samples(rate_hz)
        self._overlap = int(rate_hz * _OVERLAP_MS / 1000)
        self._silence = np.zeros(self._samples, np.int16)
        self._silence.flags.writeable = False
        self._ring = np.zeros((_HISTORY_FRAMES, self._samples), np.int16)
        self._source = np.zeros(_HISTORY_FRAMES * self._samples, np.float32)
        self.reset()

    def reset(self) -> None:
        """Begins a new stream (another SSRC)."""
        self._ring[:] = 0
        self._at = 0
        self._lost = 0
        self._period = 0
        self._phase = 0
        self._tail = np.zeros(self._overlap, np.float32)

    def good(self, frame: Pcm) -> Pcm:
        """Takes a frame of 20 ms that arrived. Returns the frame to play: the same array, or, after a
        concealed frame, a new array that crossfades from the repetition to the frame."""
        if self._lost:
            frame = self._merged(frame)
            self._lost = 0
        self._ring[self._at] = frame
        self._at = (self._at + 1) % _HISTORY_FRAMES
        return frame

    def conceal(self) -> Pcm:
        """Gives a frame of 20 ms in place of a lost one; digital silence (read-only) after 60 ms of loss."""
        begun_ms = float(self._lost * FRAME_MS)
        if self._lost == 0:
            self._begin()
        self._lost += 1
        if begun_ms >= _FADE_TO_MS:
            self._tail[:] = 0.0
            frame = self._silence
        else:
            frame = self._repeated(begun_ms)
        self._ring[self._at] = frame
        self._at = (self._at + 1) % _HISTORY_FRAMES
        return frame

    def _begin(self) -> None:
        self._source[:] = np.roll(self._ring, -self._at, axis=0).reshape(-1)
        shortest, longest = (int(self.rate_hz * ms / 1000) for ms in (_SHORTEST_MS, _LONGEST_MS))
        self._period = kernels.pitch_period(self._source, shortest, longest, self._samples)
        self._phase = 0

    def _repeated(self, begun_ms: float) -> Pcm:
        """The frame that starts `begun_ms` into the loss: one, then two, then three periods, repeated."""
        periods = 1 + self._lost - 1
        loop = self._loop(periods)
        total = self._samples + self._overlap
        index = np.arange(self._phase, self._phase + total) % loop.size
        at_ms = begun_ms + np.arange(total, dtype=np.float32) * (1000.0 / self.rate_hz)
        gain = np.clip((_FADE_TO_MS - at_ms) / (_FADE_TO_MS - _FADE_FROM_MS), 0.0, 1.0)
        wave = loop[index] * gain
        if begun_ms == 0.0:
            self._join(wave)
        else:
            self._crossfade(wave)
        self._tail = wave[self._samples :]
        self._phase = (self._phase + self._samples) % self._period
        return _rounded(wave[: self._samples])

    def _loop(self, periods: int) -> kernels.Floats:
        """The last `periods`, whose end is crossfaded with the audio before their start, so that they repeat
        without a step."""
        length, quarter = periods * self._period, self._period // 4
        end = self._source.size
        loop = self._source[end - length :].copy()
        before = self._source[end - length - quarter : end - length]
        ramp = np.linspace(0.0, 1.0, quarter, dtype=np.float32)
        loop[-quarter:] = loop[-quarter:] * (1 - ramp) + before * ramp
        return loop

    def _join(self, wave: kernels.Floats) -> None:
        count = int(self.rate_hz * _JOIN_MS / 1000)
        step = self._source[-1] - self._source[-1 - self._period]
        wave[:count] += step * np.linspace(1.0, 0.0, count, dtype=np.float32)

    def _merged(self, frame: Pcm) -> Pcm:
        merged = frame.astype(np.float32)
        self._crossfade(merged)
        return _rounded(merged)

    def _crossfade(self, wave: kernels.Floats) -> None:
        """Crossfades from the rest of the repetition to `wave`."""
        ramp = np.linspace(0.0, 1.0, self._overlap, dtype=np.float32)
        wave[: self._overlap] = wave[: self._overlap] * ramp + self._tail * (1 - ramp)


def _rounded(wave: kernels.Floats) -> Pcm:
    return np.clip(np.rint(wave), -32768, 32767).astype(np.int16)
