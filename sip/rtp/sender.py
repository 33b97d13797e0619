"""Sends RTP: one packet per tick of the pacer, with a frame of the source, silence, or a DTMF digit.

Silence is sent too: carriers expect a steady stream, and a NAT drops the binding of a silent one. The first
packet of a talkspurt has the marker bit (RFC 3551 4.1). Packets are 20 ms long whatever `ptime` the far end
prefers: RFC 8866 makes it a preference, and every endpoint plays 20."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, TypeAlias

import numpy as np

from pipeline.audio import FRAME_MS, Pcm, frame_samples
from pipeline.audio.dtmf import tone
from pipeline.audio.resample import Resampler
from pipeline.leg import AudioSource
from pipeline.media.pacer import Pace
from sip.errors import LocalError
from sip.rtp.codecs import MAX_PAYLOAD_BYTES, BadPayload, Encoder, encoder, silent_payload
from sip.rtp.packet import HEADER, HEADER_BYTES, MARKER, PLAIN
from sip.rtp.telephone_event import PAUSE_MS, TONE_MS, event_payloads
from sip.sdp.media_plan import Codec, MediaPlan

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int]

MAX_KEYED: Final = 64
"""Digits that may wait to be sent: 13 s, more than any menu or card number needs."""

_COUNTERS: Final = struct.Struct("!HI")
_TONE_DBFS: Final = -13.0


class Wire(Protocol):
    """The part of a socket that the sender uses."""

    def sendto(self, data: bytearray | memoryview, address: Address, /) -> int:
        """Sends a datagram or raises OSError."""


class Mode(Enum):
    """Whether the last packet carried speech of the source."""

    SILENT = "silent"
    TALKING = "talking"


class _Keyed:
    """One DTMF digit being sent: per tick an event's payload, a frame of tone, or None for silence."""

    __slots__ = ("done", "steps", "timestamp")

    def __init__(self, steps: deque[bytes | Pcm | None], done: Callable[[bool], None] | None) -> None:
        self.steps = steps
        self.done = done
        self.timestamp = -1


class RtpSender:
    """The outbound half of a stream. `time` is the loop's clock."""

    __slots__ = (
        "_clock_rate_hz",
        "_codec",
        "_dtmf",
        "_dtmf_rate_hz",
        "_encoder",
        "_keyed",
        "_marker",
        "_mode",
        "_packet",
        "_payload",
        "_payload_type",
        "_resampler",
        "_rng",
        "_samples",
        "_sends",
        "_sequence",
        "_silence",
        "_silent_frame",
        "_step",
        "_ticked_s",
        "_time",
        "_timestamp",
        "_view",
        "_wire",
        "address",
        "errors",
        "octets",
        "pace",
        "packets",
        "rate_hz",
        "source",
        "ssrc",
    )

    def __init__(
        self, wire: Wire, rate_hz: int, *, time: Callable[[], float], rng: random.Random | None = None
    ) -> None:
        self.rate_hz = rate_hz
        self.address: Address | None = None
        self.source: AudioSource | None = None
        self.pace: Pace | None = None
        self.packets = self.octets = self.errors = 0
        self._wire = wire
        self._time = time
        self._rng = rng or random.SystemRandom()
        self._samples = frame_samples(rate_hz)
        self._packet = bytearray(HEADER_BYTES + MAX_PAYLOAD_BYTES)
        self._view = memoryview(self._packet)
        self._payload = np.frombuffer(self._packet, np.uint8)[HEADER_BYTES:]
        self._silence: bytes | None = None
        self._silent_frame: Pcm = np.zeros(self._samples, np.int16)
        self._sequence = self._rng.randrange(0x10000)
        self._codec: Codec | None = None
        self._encoder: Encoder | None = None
        self._resampler: Resampler | None = None
        self._clock_rate_hz: int = 8000
        self._dtmf_rate_hz: int = 8000
        self._step: int = 160
        self._timestamp: int = 0
        self._payload_type = 0
        self._dtmf: int | None = None
        self._sends = False
        self._mode = Mode.SILENT
        self._marker = MARKER
        self._keyed: deque[_Keyed] = deque()
        self._ticked_s = 0.0
        self._begin_source()

    @property
    def silent(self) -> bool:
        """Whether the source had no frame at the last tick, and one could be sent now."""
        return self._mode is Mode.SILENT and self._sends and not self._keyed

    @property
    def clock_rate_hz(self) -> int:
        """Rate of the RTP timestamps sent, in Hz."""
        return self._clock_rate_hz

    def configure(self, plan: MediaPlan) -> None:
        """Sets what is sent from now on. A codec with another RTP clock begins a new SSRC: a receiver cannot
        tell timestamps of two clocks in one SSRC apart (RFC 7160)."""
        codec = plan.codec
        if codec != self._codec:
            if self._codec is not None and codec.clock_rate_hz != self._clock_rate_hz:
                self._begin_source()
            self._encoder = encoder(codec)
            self._silence = silent_payload(codec)
            same = codec.rate_hz == self.rate_hz
            self._resampler = None if same else Resampler(self.rate_hz, codec.rate_hz)
        self._codec = codec
        self._clock_rate_hz = codec.clock_rate_hz
        self._step = codec.clock_rate_hz * FRAME_MS // 1000
        self._payload_type = plan.send_payload_type
        self._dtmf = plan.dtmf_send
        self._dtmf_rate_hz = plan.dtmf_clock_rate_hz
        if plan.sends and not self._sends:
            self._marker = MARKER
        self._sends = plan.sends

    def key(self, digits: str, done: Callable[[bool], None]) -> None:
        """Queues `digits` (checked already) to be sent in place of audio; `done(True)` when the last was
        sent, `done(False)` when the stream closed first. Raises LocalError when too many wait."""
        if len(self._keyed) + len(digits) > MAX_KEYED:
            raise LocalError(f"more than {MAX_KEYED} DTMF digits waiting to be sent")
        for index, digit in enumerate(digits):
            last = index == len(digits) - 1
            self._keyed.append(_Keyed(self._steps(digit), done if last else None))

    def close(self) -> None:
        """Drops the digits that wait."""
        keyed = list(self._keyed)
        self._keyed.clear()
        for digit in keyed:
            if digit.done is not None:
                digit.done(False)

    def timestamp_at(self, now: float) -> int:
        """Returns the RTP timestamp at `now`, for sender reports."""
        since = int((now - self._ticked_s) * self._clock_rate_hz) - self._step
        return (self._timestamp + since) & 0xFFFFFFFF

    def tick(self, now: float) -> None:
        """Sends the packet that is due. Raises nothing for faults of the network or a codec."""
        self._ticked_s = now
        pace = self.pace
        if pace is not None and pace.skipped:
            self._timestamp = (self._timestamp + pace.skipped * self._step) & 0xFFFFFFFF
            self._marker = MARKER
            pace.skipped = 0
        if not self._sends:
            self._mode = Mode.SILENT
            self._timestamp = (self._timestamp + self._step) & 0xFFFFFFFF
            return
        if self._keyed:
            self._send_keyed()
            return
        source = self.source
        frame = source.read() if source is not None else None
        if frame is None or source is None:
            self._mode = Mode.SILENT
            if pace is not None:
                pace.relax()
            self._send_silence()
            return
        if self._mode is Mode.SILENT:
            self._mode = Mode.TALKING
            self._marker = MARKER
        self._send_frame(frame)
        source.sent(self._time())

    def _send_silence(self) -> None:
        silence = self._silence
        if silence is None:
            self._send_frame(self._silent_frame)
            return
        end = HEADER_BYTES + len(silence)
        self._packet[HEADER_BYTES:end] = silence
        self._send(end, self._payload_type, self._timestamp)
        self._timestamp = (self._timestamp + self._step) & 0xFFFFFFFF

    def _send_frame(self, frame: Pcm) -> None:
        size = 0
        encode = self._encoder
        if len(frame) == self._samples and encode is not None:
            if self._resampler is not None:
                frame = self._resampler(frame)
            try:
                size = encode.encode(frame, self._payload)
            except BadPayload:
                size = 0
        if size:
            self._send(HEADER_BYTES + size, self._payload_type, self._timestamp)
        else:
            self.errors += 1
        self._timestamp = (self._timestamp + self._step) & 0xFFFFFFFF

    def _send(self, size: int, payload_type: int, timestamp: int) -> None:
        address = self.address
        if address is None:
            return
        self._packet[1] = payload_type | self._marker
        self._marker = 0
        _COUNTERS.pack_into(self._packet, 2, self._sequence, timestamp)
        self._sequence = (self._sequence + 1) & 0xFFFF
        try:
            self._wire.sendto(self._view[:size], address)
        except OSError:  # refused by ICMP, no buffer, no route: signalling decides whether the call ends
            self.errors += 1
            return
        self.packets += 1
        self.octets += size - HEADER_BYTES

    def _send_keyed(self) -> None:
        """Sends one tick of the current DTMF digit; the source is not read meanwhile."""
        keyed = self._keyed[0]
        self._mode = Mode.SILENT
        step = keyed.steps.popleft()
        if isinstance(step, bytes):
            self._send_event(keyed, step)
        elif step is None:
            self._send_silence()
        else:
            self._send_frame(step)
        if not keyed.steps:
            self._keyed.popleft()
            if keyed.done is not None:
                keyed.done(True)

    def _send_event(self, keyed: _Keyed, payload: bytes) -> None:
        if self._dtmf is None:  # no longer negotiated, in the middle of a digit
            self._send_silence()
            return
        if keyed.timestamp < 0:
            keyed.timestamp = self._timestamp
            self._marker = MARKER
        end = HEADER_BYTES + len(payload)
        self._packet[HEADER_BYTES:end] = payload
        self._send(end, self._dtmf, keyed.timestamp)
        self._timestamp = (self._timestamp + self._step) & 0xFFFFFFFF

    def _steps(self, digit: str) -> deque[bytes | Pcm | None]:
        """Returns the ticks of a digit: events where these were negotiated, else tones. Repeated end packets
        fall into the pause."""
        frames = (TONE_MS + PAUSE_MS) // FRAME_MS
        steps: deque[bytes | Pcm | None] = deque()
        if self._dtmf is not None:
            steps.extend(event_payloads(digit, self._dtmf_rate_hz))
        else:
            sound = tone(digit, self.rate_hz, TONE_MS, _TONE_DBFS)
            steps.extend(sound[at : at + self._samples] for at in range(0, len(sound), self._samples))
        steps.extend([None] * (frames - len(steps)))
        return steps

    def _begin_source(self) -> None:
        self.ssrc = self._rng.getrandbits(32)
        self._timestamp = self._rng.getrandbits(32)
        self._marker = MARKER
        HEADER.pack_into(self._packet, 0, PLAIN, 0, 0, 0, self.ssrc)
