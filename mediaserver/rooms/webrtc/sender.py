"""Sends Opus: a frame is read from `Playout` on the shared pacer's tick, encoded and sent in the same call.

aiortc runs a task per track, encodes on a thread pool as 48 kHz stereo and sends at its own pace. Here
nothing is sent while the agent is silent: timestamps go on, the first packet after the silence carries the
marker, and a receiver takes the silence for discontinuous transmission (RFC 7587 section 3.1.3). Sans-IO:
packets go to `wire`."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import Final

from pipeline.audio.opus import CLOCK_HZ, OpusEncoder
from pipeline.leg import AudioSource
from pipeline.media.pacer import Pace
from sip.rtp.packet import HEADER, MARKER, PLAIN

STEP: Final = CLOCK_HZ // 50

Wire = Callable[[bytes], bool]
"""Encrypts and sends an RTP packet; False: it could not be sent."""


class Mode(Enum):
    """Whether the last tick sent a frame."""

    SILENT = "silent"
    TALKING = "talking"


class OpusSender:
    """Sends the agent's audio to one participant. `wire` None: the connection is not up, and nothing is read
    from the source."""

    __slots__ = (
        "_encoder",
        "_marker",
        "_mode",
        "_sequence",
        "_ticked_s",
        "_time",
        "_timestamp",
        "errors",
        "octets",
        "pace",
        "packets",
        "payload_type",
        "source",
        "ssrc",
        "wanted",
        "wire",
    )

    def __init__(self, *, time: Callable[[], float], rng: random.Random | None = None) -> None:
        rng = rng or random.SystemRandom()
        self.source: AudioSource | None = None
        self.wire: Wire | None = None
        self.pace: Pace | None = None
        self.wanted = True
        """Whether the participant wants to hear the agent: else frames are read from the source and not
        sent."""
        self.payload_type = 111
        self.ssrc = 0
        self.packets = self.octets = self.errors = 0
        self._time = time
        self._encoder: OpusEncoder | None = None
        # The lower half: a sequence number that wraps before the first report upsets SRTP's roll-over
        # counter.
        self._sequence = rng.randrange(0x8000)
        self._timestamp = rng.getrandbits(32)
        self._marker = MARKER
        self._mode = Mode.SILENT
        self._ticked_s = 0.0

    @property
    def silent(self) -> bool:
        """Whether the last tick had nothing to send while the connection is up."""
        return self._mode is Mode.SILENT and self.wire is not None

    def timestamp_at(self, now: float) -> int:
        """Returns the RTP timestamp at `now`, for sender reports (RFC 3550 section 6.4.1)."""
        return (self._timestamp + int((now - self._ticked_s) * CLOCK_HZ) - STEP) & 0xFFFFFFFF

    def tick(self, now: float) -> None:
        """Sends the frame that is due, if the source has one."""
        self._ticked_s = now
        pace = self.pace
        if pace is not None and pace.skipped:
            self._timestamp = (self._timestamp + pace.skipped * STEP) & 0xFFFFFFFF
            self._marker = MARKER
            pace.skipped = 0
        source, wire = self.source, self.wire
        frame = source.read() if source is not None and wire is not None else None
        if frame is None or source is None or wire is None:
            self._mode = Mode.SILENT
            self._marker = MARKER
            if pace is not None:
                pace.relax()
        else:
            self._mode = Mode.TALKING
            if self._encoder is None:
                self._encoder = OpusEncoder()  # not for a participant without an agent
            if self.wanted:
                self._send(self._encoder.encode(frame), wire)
            else:
                self._marker = MARKER
            source.sent(self._time())
        self._timestamp = (self._timestamp + STEP) & 0xFFFFFFFF

    def _send(self, payload: bytes, wire: Wire) -> None:
        second = self.payload_type | self._marker
        header = HEADER.pack(PLAIN, second, self._sequence, self._timestamp, self.ssrc)
        self._marker = 0
        self._sequence = (self._sequence + 1) & 0xFFFF
        if wire(header + payload):
            self.packets += 1
            self.octets += len(payload)
        else:
            self.errors += 1
