"""From decoded payloads of any length to frames of 20 ms with positions on the far end's clock.

The position comes from RTP timestamps, not from counting packets or from arrival times: silence suppression
and losses leave holes in it and never shorten it. A sender that sets its clock anew (a bridge that
switches sources) is noticed by a jump that the time passed does not explain, and gets a new base.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from pipeline.audio import FRAME_MS, Pcm, frame_samples
from pipeline.audio.dtmf import DtmfDetector
from pipeline.audio.plc import Concealment
from pipeline.audio.resample import Resampler
from pipeline.leg import LegListener
from sip.rtp.dtmf_dedup import DtmfDedup, Way
from sip.rtp.packet import timestamp_delta
from sip.sdp.media_plan import Codec

MAX_CONCEALED: Final = 3
"""Frames made up for one hole: what `Concealment` fades out in. A longer hole is a hole in the positions."""

MAX_RECOVERED: Final = 5
"""Frames that the decoder itself gives for one hole: libopus has faded to silence by then. Of a longer hole
it gives the last frame."""

_CLOCK_SLACK_S: Final = 1.0
_PAUSE_S: Final = 0.1  # a rebased clock after more than this goes on where the listener's time is


class FrameAssembly:
    """One stream's frames, passed on to `listener` by direct call."""

    __slots__ = (
        "_arrived_s",
        "_clock_rate_hz",
        "_codec",
        "_codec_rate_hz",
        "_detector",
        "_expected",
        "_filled",
        "_frame",
        "_made_up",
        "_plc",
        "_position",
        "_resampler",
        "_samples",
        "concealed",
        "listener",
        "presses",
        "rate_hz",
    )

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.listener: LegListener | None = None
        self.presses = DtmfDedup()
        self.concealed = 0
        self._samples = frame_samples(rate_hz)
        self._plc = Concealment(rate_hz)
        self._detector: DtmfDetector | None = None
        self._codec: Codec | None = None
        self._clock_rate_hz = self._codec_rate_hz = rate_hz
        self._resampler: Resampler | None = None
        self._expected = -1  # the timestamp after the last packet's
        self._arrived_s = 0.0
        self._position = 0  # of the next frame to be passed on
        self._frame: Pcm = np.zeros(self._samples, np.int16)  # one that packets of other lengths fill up
        self._filled = 0
        self._made_up = False

    def detect_digits(self, *, wanted: bool) -> None:
        """Whether DTMF is looked for in the audio."""
        if wanted != (self._detector is not None):
            self._detector = DtmfDetector(self.rate_hz) if wanted else None

    def restart(self) -> None:
        """Another source: its timestamps have nothing to do with those before; the positions go on."""
        self._plc.reset()
        if self._detector is not None:
            self._detector.reset()
        if self._expected >= 0:
            self._expected = -2

    def use(self, codec: Codec) -> None:
        """`audio` is of `codec` from now on."""
        before, self._codec = self._codec, codec
        if before is not None and before.clock_rate_hz != codec.clock_rate_hz and self._expected >= 0:
            self._expected = -2
        self._clock_rate_hz, self._codec_rate_hz = codec.clock_rate_hz, codec.rate_hz
        if codec.rate_hz == self.rate_hz:
            self._resampler = None
        elif before is None or before.rate_hz != codec.rate_hz:
            self._resampler = Resampler(codec.rate_hz, self.rate_hz)

    def audio(self, samples: Pcm, timestamp: int, now: float, *, made_up: bool = False) -> None:
        """A packet's audio, at its codec's rate, in order. `now`: when it arrived. `made_up`: by the codec,
        for a packet that was lost."""
        if timestamp != self._expected:
            self._jump(timestamp, now)
        size = len(samples)
        self._expected = (timestamp + size * self._clock_rate_hz // self._codec_rate_hz) & 0xFFFFFFFF
        self._arrived_s = now
        if self._resampler is not None:
            samples = self._resampler(samples)
            size = len(samples)
        if size == self._samples and not self._filled:
            self._pass_on(self._plc.good(samples), now, made_up=made_up)
        else:
            self._fill(samples, now, made_up=made_up)

    def comfort_noise(self, timestamp: int, now: float) -> None:
        """A packet that says "silence": one frame of it. The next packet's timestamp says how long it was."""
        if timestamp != self._expected:
            self._jump(timestamp, now)
        self._expected = (timestamp + self._units()) & 0xFFFFFFFF
        self._arrived_s = now
        silent: Pcm = np.zeros(self._samples, np.int16)
        if self._filled:
            self._fill(silent, now, made_up=False)
        else:
            self._pass_on(self._plc.good(silent), now, made_up=False)

    def gap(self, next_timestamp: int, now: float, recover: Callable[[int], Pcm] | None = None) -> None:
        """Packets before the one stamped `next_timestamp` were given up: conceals what fits. `recover`: gives
        so many samples that end there, at the codec's rate, where the codec has a way of its own."""
        missing = timestamp_delta(next_timestamp, self._expected) if self._expected >= 0 else 0
        if missing <= 0:  # nothing of the clock is missing (lost events)
            return
        if recover is None:
            self._conceal(missing, now)
            return
        if missing > MAX_RECOVERED * self._units():
            missing = self._units()
        samples = recover(missing * self._codec_rate_hz // self._clock_rate_hz)
        units = len(samples) * self._clock_rate_hz // self._codec_rate_hz
        if units:
            self.concealed += max(1, round(units / self._units()))
            self.audio(samples, (next_timestamp - units) & 0xFFFFFFFF, now, made_up=True)

    def _conceal(self, missing: int, now: float) -> None:
        units = self._units()
        if not units // 2 < missing <= _CLOCK_SLACK_S * self._clock_rate_hz:
            return  # more than loss explains
        for _ in range(min(round(missing / units), MAX_CONCEALED)):
            self._expected = (self._expected + units) & 0xFFFFFFFF
            self.concealed += 1
            frame = self._plc.conceal()
            if self._filled:
                self._fill(frame, now, made_up=True)
            else:
                self._pass_on(frame, now, made_up=True)

    def _units(self) -> int:
        return self._clock_rate_hz * FRAME_MS // 1000

    def _jump(self, timestamp: int, now: float) -> None:
        """Moves the position to where `timestamp` belongs."""
        if self._expected == -1:
            return  # the first packet is position 0
        elapsed_s = now - self._arrived_s
        jump = timestamp_delta(timestamp, self._expected) if self._expected >= 0 else -1
        jump_s = jump / self._clock_rate_hz
        if jump < 0 or (jump_s > _CLOCK_SLACK_S and abs(jump_s - elapsed_s) > _CLOCK_SLACK_S):
            jump_s = elapsed_s - FRAME_MS / 1000 if elapsed_s > _PAUSE_S else 0.0
        self._leave_out(round(jump_s * self.rate_hz), now)

    def _leave_out(self, samples: int, now: float) -> None:
        """A hole of `samples`; a frame begun before it is filled up with silence."""
        if self._filled:
            padding = min(samples, self._samples - self._filled)
            self._fill(np.zeros(padding, np.int16), now, made_up=self._made_up)
            samples -= padding
        self._position += samples

    def _fill(self, samples: Pcm, now: float, *, made_up: bool) -> None:
        taken, size = 0, len(samples)
        while taken < size:
            step = min(self._samples - self._filled, size - taken)
            self._frame[self._filled : self._filled + step] = samples[taken : taken + step]
            taken += step
            self._filled += step
            self._made_up |= made_up
            if self._filled == self._samples:
                made_up_frame, self._made_up = self._made_up, made_up and taken < size
                self._filled = 0
                self._pass_on(self._plc.good(self._frame), now, made_up=made_up_frame)

    def _pass_on(self, frame: Pcm, now: float, *, made_up: bool) -> None:
        position = self._position
        self._position = position + self._samples
        listener = self.listener
        if listener is None:
            return
        if self._detector is not None:
            digit = self._detector.push(frame)
            if digit is not None and self.presses.counts(digit, Way.TONE, now):
                listener.digit_received(digit, now)
        listener.audio_received(frame, position, now, concealed=made_up)
