"""A far end and a clock for media tests: nothing here waits for real time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.support.stepped_stream import SteppedStream
from pipeline.audio import Pcm
from sip.rtp.packet import RtpPacket
from sip.sdp.media_plan import PCMU, Codec, MediaPlan
from tests.support.speech.leg import Listener

SSRC = 0x1234ABCD


class VirtualTimer:
    """What `VirtualClock.call_at` returns."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """An event loop's clock that moves when told to."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now_s = start_s
        self._serials = itertools.count()
        self._calls: list[tuple[float, int, VirtualTimer, Callable[[], Any]]] = []

    def time(self) -> float:
        return self._now_s

    def call_at(self, when: float, callback: Callable[[], Any], /) -> VirtualTimer:
        timer = VirtualTimer()
        heapq.heappush(self._calls, (when, next(self._serials), timer, callback))
        return timer

    @property
    def armed(self) -> int:
        """Timers that have not been cancelled or fired."""
        return sum(not timer.cancelled for _, _, timer, _ in self._calls)

    def advance(self, seconds: float) -> None:
        """Runs what falls due on the way, each at its own time."""
        end_s = self._now_s + seconds
        while self._calls and self._calls[0][0] <= end_s:
            when, _, timer, callback = heapq.heappop(self._calls)
            if not timer.cancelled:
                self._now_s = max(self._now_s, when)
                callback()
        self._now_s = end_s

    def stall(self, seconds: float) -> None:
        """Time passes and nothing runs, as when something blocks the loop."""
        self._now_s += seconds


class RecordingListener(Listener):
    """A listener that keeps everything, with the times."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals: list[float] = []

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        super().audio_received(frame, position, now, concealed=concealed)
        self.arrivals.append(now)

    def leg_ended(self, reason: str, now: float) -> None:
        raise AssertionError("a media stream does not end a leg")


class Voice:
    """A source that says its frames once, then nothing."""

    def __init__(self, samples: Pcm | None = None, frame: int = 160) -> None:
        self.frame = frame
        self.waiting: list[Pcm] = []
        self.sent_at: list[float] = []
        self.reads = 0
        self.wake: Callable[[], None] | None = None
        if samples is not None:
            self.say(samples)

    def say(self, samples: Pcm) -> None:
        was_silent = not self.waiting
        self.waiting.extend(samples[at : at + self.frame] for at in range(0, len(samples), self.frame))
        if was_silent and self.wake is not None:
            self.wake()

    def read(self) -> Pcm | None:
        self.reads += 1
        return self.waiting.pop(0) if self.waiting else None

    def sent(self, now: float) -> None:
        self.sent_at.append(now)

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        self.wake = wake


def plan(port: int = 40000, codec: Codec = PCMU, **changes: Any) -> MediaPlan:
    """A plan for a far end on the loopback with DTMF events as type 101."""
    agreed: dict[str, Any] = {
        "receive": {codec.payload_type: codec},
        "dtmf_send": 101,
        "dtmf_receive": 101,
        "send_payload_type": codec.payload_type,
        **changes,
    }
    return MediaPlan("127.0.0.1", port, codec, **agreed)


def receiver(
    agreed: MediaPlan | None = None, *, rate_hz: int = 8000, inband_dtmf: bool = False
) -> tuple[SteppedStream, RecordingListener]:
    """A stream and its listener."""
    made = SteppedStream(agreed or plan(), rate_hz=rate_hz, now=0.0, inband_dtmf=inband_dtmf)
    made.listener = recorder = RecordingListener()
    return made, recorder


def feed(target: SteppedStream, packet: RtpPacket | bytes, now: float) -> None:
    """One datagram of the far end's."""
    target.datagram(packet if isinstance(packet, bytes) else packet.to_bytes(), now)


def packets(
    payloads: Sequence[bytes], *, sequence: int = 100, timestamp: int = 5000, step: int = 160,
    payload_type: int = 0, ssrc: int = SSRC,
) -> list[RtpPacket]:  # fmt: skip
    """A stream of packets in order."""
    return [
        RtpPacket(
            payload_type, (sequence + i) & 0xFFFF, (timestamp + i * step) & 0xFFFFFFFF, ssrc, payload, i == 0
        )
        for i, payload in enumerate(payloads)
    ]


def sine(samples: int, rate_hz: int = 8000, frequency_hz: float = 440.0, amplitude: float = 8000.0) -> Pcm:
    """A tone."""
    wave = amplitude * np.sin(2 * np.pi * frequency_hz * np.arange(samples) / rate_hz)
    return wave.astype(np.int16)


def speech_like(samples: int, rate_hz: int = 8000) -> Pcm:
    """Harmonics of a gliding pitch under a slow envelope: wide enough to judge a speech codec by."""
    t = np.arange(samples) / rate_hz
    phase = 2 * np.pi * (110 * t + 8 * np.sin(2 * np.pi * 1.3 * t))
    wave = np.sum([np.sin(k * phase) / k for k in range(1, 16)], axis=0)
    envelope = 0.55 + 0.45 * np.sin(2 * np.pi * 3 * t)
    said: Pcm = (6000 * wave * envelope / np.abs(wave).max()).astype(np.int16)
    return said


def snr_db(heard: Pcm, said: Pcm, *, search: int) -> float:
    """Signal-to-noise of `heard` against `said`, best over delays of 0 to `search` samples and any gain."""
    best = -np.inf
    reference = said.astype(float)
    for delay in range(search):
        size = min(len(reference), len(heard) - delay)
        a, b = reference[:size], heard[delay : delay + size].astype(float)
        gain = (a @ b) / max(a @ a, 1.0)
        noise = b - gain * a
        best = max(best, 10 * np.log10((gain * a @ (gain * a)) / max(noise @ noise, 1.0)))
    return float(best)


def spectral_distance_db(heard: Pcm, said: Pcm, *, delay: int) -> float:
    """Mean difference in level of their short-time spectra, where there is anything to hear (40 dB range).

    For codecs that keep the sound and not the waveform: Opus's voice mode turns phases below 100 Hz.
    """

    def bands(samples: Pcm) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(samples.astype(float), 512)[::256]
        power = np.abs(np.fft.rfft(windows * np.hanning(512), axis=1)) ** 2
        return 10 * np.log10(np.add.reduceat(power, np.arange(4, 200, 12), axis=1) + 1e3)

    size = min(len(said), len(heard) - delay)
    a, b = bands(said[:size]), bands(heard[delay : delay + size])
    return float(np.abs(a - b)[a > a.max() - 40].mean())
