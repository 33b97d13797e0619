"""Reception statistics of one RTP source (RFC 3550): A.1 (sequence numbers), A.3 (losses), A.8 (jitter)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from sip.rtp.packet import timestamp_delta

_BLOCK: Final = struct.Struct("!IIIIII")
_MAX_DROPOUT: Final = 3000
_MAX_MISORDER: Final = 100


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """A receiver's report on one sender. `fraction_lost` is in 1/256 since the report before, `jitter` in
    timestamp units, `last_report` and `since_last_report` in 1/65536 s."""

    ssrc: int
    fraction_lost: int
    lost: int
    highest_sequence: int
    jitter: int
    last_report: int
    since_last_report: int

    def to_bytes(self) -> bytes:
        """Serialises the 24 bytes of RFC 3550 6.4.1."""
        lost = max(-0x800000, min(self.lost, 0x7FFFFF)) & 0xFFFFFF
        return _BLOCK.pack(
            self.ssrc,
            self.fraction_lost << 24 | lost,
            self.highest_sequence,
            min(self.jitter, 0xFFFFFFFF),
            self.last_report,
            self.since_last_report,
        )

    @classmethod
    def parse(cls, data: bytes) -> ReportBlock:
        """Parses the report block of RFC 3550 6.4.1 from exactly 24 bytes."""
        ssrc, loss, highest, jitter, last, since = _BLOCK.unpack(data)
        lost = (loss & 0xFFFFFF ^ 0x800000) - 0x800000
        return cls(ssrc, loss >> 24, lost, highest, jitter, last, since)


class Reception:
    """Counts the packets, losses and jitter of one SSRC (RFC 3550 A.1, A.3, A.8)."""

    __slots__ = (
        "_arrival_s",
        "_bad_next",
        "_base",
        "_clock_rate_hz",
        "_cycles",
        "_expected_before",
        "_highest",
        "_received_before",
        "_timestamp",
        "jitter",
        "received",
        "ssrc",
    )

    def __init__(self, ssrc: int, clock_rate_hz: int) -> None:
        self.ssrc = ssrc
        self.received = 0
        self.jitter = 0.0
        """Interarrival jitter in units of the RTP clock."""
        self._clock_rate_hz = clock_rate_hz
        self._base = self._highest = self._cycles = 0
        self._bad_next = -1  # the sequence number that would confirm a jump (bad_seq in A.1)
        self._expected_before = self._received_before = 0
        self._arrival_s = -1.0
        self._timestamp = 0

    @property
    def jitter_ms(self) -> float:
        """The interarrival jitter of RFC 3550 6.4.1, in milliseconds."""
        return self.jitter * 1000 / self._clock_rate_hz

    @property
    def highest(self) -> int:
        """The extended highest sequence number."""
        return self._cycles + self._highest

    @property
    def lost(self) -> int:
        """Packets expected and not received; below 0 where duplicates arrived (A.3)."""
        return self.highest - self._base + 1 - self.received if self.received else 0

    def packet(self, sequence: int) -> None:
        """Counts the packet with the 16-bit number `sequence` (RFC 3550 A.1)."""
        ahead = (sequence - self._highest) & 0xFFFF
        if not self.received:
            self._begin(sequence)
        elif ahead < _MAX_DROPOUT:
            if sequence < self._highest:
                self._cycles += 0x10000
            self._highest = sequence
        elif ahead < 0x10000 - _MAX_MISORDER:
            if sequence != self._bad_next:
                self._bad_next = (sequence + 1) & 0xFFFF
                return  # a jump is accepted when the next number follows
            self._begin(sequence)
        self.received += 1

    def arrival(self, timestamp: int, now: float) -> None:
        """Updates the jitter with an audio packet. A jump of the sender's clock by a second or more is not
        jitter."""
        if self._arrival_s >= 0:
            apart = timestamp_delta(timestamp, self._timestamp)
            off = abs((now - self._arrival_s) * self._clock_rate_hz - apart)
            if off < self._clock_rate_hz:
                self.jitter += (off - self.jitter) / 16
        self._arrival_s = now
        self._timestamp = timestamp

    def block(self, last_report: int, since_last_report: int) -> ReportBlock:
        """Makes the report block for the time since the last one."""
        expected = self.highest - self._base + 1
        expected_now = expected - self._expected_before
        received_now = self.received - self._received_before
        self._expected_before, self._received_before = expected, self.received
        lost_now = expected_now - received_now
        fraction = (lost_now << 8) // expected_now if expected_now > 0 and lost_now > 0 else 0
        return ReportBlock(
            self.ssrc,
            min(fraction, 255),
            self.lost,
            self.highest & 0xFFFFFFFF,
            int(self.jitter),
            last_report,
            since_last_report,
        )

    def _begin(self, sequence: int) -> None:
        self._base = self._highest = sequence
        self._cycles = 0
        self._bad_next = -1
        self.received = 0
        self._expected_before = self._received_before = 0
