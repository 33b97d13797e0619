"""Assembles frames of 20 ms, with positions on the far end's clock, from decoded payloads of any length.

The position comes from RTP timestamps, not from counting packets or from arrival times: silence suppression
and losses leave gaps in the positions and never shorten them. A sender that restarts its clock (a bridge that
switches sources) shows by a jump that the time passed does not explain, and gets a new base."""

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
"""Frames concealed for one gap, while `Concealment` fades out. A longer gap remains a gap in the
positions."""

MAX_RECOVERED: Final = 5
"""Frames that the decoder conceals for one gap: libopus has faded to silence by then. Of a longer gap only
the last frame is recovered."""

_CLOCK_SLACK_S: Final = 1.0
_PAUSE_S: Final = 0.1  # after a longer pause a restarted clock continues at the listener's time


class FrameAssembly:
    """The frames of one stream, passed to `listener` by direct call."""

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
        "dtmf_dedup",
        "listener",
        "rate_hz",
    )

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self.listener: LegListener | None = None
        self.dtmf_dedup = DtmfDedup()
        self.concealed = 0
        self._samples = frame_samples(rate_hz)
        self._plc = Concealment(rate_hz)
        self._detector: DtmfDetector | None = None
        self._codec: Codec | None = None
        self._clock_rate_hz = self._codec_rate_hz = rate_hz
        self._resampler: Resampler | None = None
        self._expected = -1  # the RTP timestamp after the last packet's
        self._arrived_s = 0.0
        self._position = 0  # of the next frame to be passed on
        self._frame: Pcm = np.zeros(self._samples, np.int16)  # filled by packets of other lengths
        self._filled = 0
        self._made_up = False

    def detect_digits(self, *, wanted: bool) -> None:
        """Turns the detection of in-band DTMF on or off."""
        if wanted != (self._detector is not None):
            self._detector = DtmfDetector(self.rate_hz) if wanted else None

    def restart(self) -> None:
        """Starts a new source: its timestamps are unrelated to those before, positions continue."""
        self._plc.reset()
        if self._detector is not None:
            self._detector.reset()
        if self._expected >= 0:
            self._expected = -2

    def use(self, codec: Codec) -> None:
        """Sets the codec of the payloads given to `audio`."""
        before, self._codec = self._codec, codec
        if before is not None and before.clock_rate_hz != codec.clock_rate_hz and self._expected >= 0:
            self._expected = -2
        self._clock_rate_hz, self._codec_rate_hz = codec.clock_rate_hz, codec.rate_hz
        if codec.rate_hz == self.rate_hz:
            self._resampler = None
        elif before is None or before.rate_hz != codec.rate_hz:
            self._resampler = Resampler(codec.rate_hz, self.rate_hz)

    def audio(self, samples: Pcm, timestamp: int, now: float, *, made_up: bool = False) -> None:
        """Takes the decoded audio of a packet, in order, at its codec's rate. `now`: its arrival. `made_up`:
        the codec concealed a lost packet."""
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
        """Takes a comfort noise packet (RFC 3389) as one frame of silence; the next packet's timestamp gives
        its length."""
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
        """Conceals packets that were lost before the one stamped `next_timestamp`. `recover`: returns so many
        samples that end there, at the codec's rate, for a codec with a concealment of its own."""
        missing = timestamp_delta(next_timestamp, self._expected) if self._expected >= 0 else 0
        if missing <= 0:  # no time is missing (lost events)
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
        """Moves the position to that of `timestamp`."""
        if self._expected == -1:
            return  # the first packet is position 0
        elapsed_s = now - self._arrived_s
        jump = timestamp_delta(timestamp, self._expected) if self._expected >= 0 else -1
        jump_s = jump / self._clock_rate_hz
        if jump < 0 or (jump_s > _CLOCK_SLACK_S and abs(jump_s - elapsed_s) > _CLOCK_SLACK_S):
            jump_s = elapsed_s - FRAME_MS / 1000 if elapsed_s > _PAUSE_S else 0.0
        self._leave_out(round(jump_s * self.rate_hz), now)

    def _leave_out(self, samples: int, now: float) -> None:
        """Skips `samples`; a frame begun before is padded with silence."""
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
            if digit is not None and self.dtmf_dedup.counts(digit, Way.TONE, now):
                listener.digit_received(digit, now)
        listener.audio_received(frame, position, now, concealed=made_up)
