"""Reception statistics of one RTP source (RFC 3550): A.1 (sequence numbers), A.3 (losses), A.8 (jitter)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

from pipeline.plane.reception.statistics import JITTER_UNIT

_BLOCK: Final = struct.Struct("!IIIIII")


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
    """The packets, losses and jitter of one source, as its row on the media plane counts them."""

    __slots__ = ("_expected_before", "_line", "_received_before", "_runs")

    def __init__(self, line: Any) -> None:
        """`line`: a record of `pipeline.plane.rows.LINE`."""
        self._line = line
        self._expected_before = self._received_before = self._runs = 0

    @property
    def ssrc(self) -> int:
        """The identifier of the source (RFC 3550)."""
        return int(self._line["ssrc"])

    @property
    def received(self) -> int:
        """Packets that arrived, duplicates among them."""
        return int(self._line["received"])

    @property
    def jitter(self) -> float:
        """The interarrival jitter of RFC 3550 6.4.1, in units of the RTP clock."""
        return float(self._line["jitter"]) / JITTER_UNIT

    @property
    def jitter_ms(self) -> float:
        """The interarrival jitter of RFC 3550 6.4.1, in milliseconds."""
        return self.jitter * 1000 / max(1, int(self._line["clock_hz"]))

    @property
    def highest(self) -> int:
        """The extended highest sequence number."""
        return int(self._line["cycles"] + self._line["highest"])

    @property
    def lost(self) -> int:
        """Packets expected and not received; below 0 where duplicates arrived (A.3)."""
        return self._expected - self.received if self.received else 0

    @property
    def _expected(self) -> int:
        return self.highest - int(self._line["base"]) + 1

    def block(self, last_report: int, since_last_report: int) -> ReportBlock:
        """The report since the one before."""
        expected, received = self._expected, self.received
        if self._runs != self._line["runs"]:  # another run of numbers, and another count
            self._expected_before = self._received_before = 0
            self._runs = int(self._line["runs"])
        expected_now = expected - self._expected_before
        lost_now = expected_now - (received - self._received_before)
        self._expected_before, self._received_before = expected, received
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
