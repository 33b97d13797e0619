"""RTP packets (RFC 3550 section 5): header, payload span, and arithmetic modulo 2**16 and 2**32.

The media path does not build objects: it unpacks `HEADER` from its receive buffer and calls `payload_span`
only for packets with CSRCs, an extension or padding. `RtpPacket` is for code off the media path."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from sip.errors import SipError

HEADER: Final = struct.Struct("!BBHII")
"""Version to CSRC count, marker and payload type, sequence number, timestamp, SSRC."""

HEADER_BYTES: Final = 12
PLAIN: Final = 0x80
"""The first byte of a packet without padding, extension and CSRCs, as nearly every packet has it."""

MARKER: Final = 0x80
COMFORT_NOISE: Final = 13
"""Static payload type of comfort noise (RFC 3389), at 8000 Hz."""


class MalformedPacket(SipError):
    """Not an RTP or RTCP packet."""


@dataclass(frozen=True, slots=True)
class RtpPacket:
    """One RTP packet, without padding and extension."""

    payload_type: int
    sequence: int
    timestamp: int
    ssrc: int
    payload: bytes
    marker: bool = False

    def to_bytes(self) -> bytes:
        """Serialises the packet without padding, extension and CSRCs."""
        second = self.payload_type | (MARKER if self.marker else 0)
        return HEADER.pack(PLAIN, second, self.sequence, self.timestamp, self.ssrc) + self.payload

    @classmethod
    def parse(cls, data: bytes) -> RtpPacket:
        """Parses an RTP packet, without CSRCs, extension and padding. Raises `MalformedPacket`."""
        span = payload_span(data, len(data))
        if span is None:
            raise MalformedPacket("not an RTP packet")
        _, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
        start, end = span
        return cls(second & 0x7F, sequence, timestamp, ssrc, data[start:end], bool(second & MARKER))


def payload_span(data: bytes | bytearray | memoryview, size: int) -> tuple[int, int] | None:
    """Returns start and end of the payload in the first `size` bytes of `data`; None where these are not RTP:
    another version, or CSRCs, extension or padding that do not fit (RFC 3550 A.1)."""
    if size < HEADER_BYTES or data[0] >> 6 != 2:
        return None
    first = data[0]
    start, end = HEADER_BYTES + 4 * (first & 0x0F), size
    if first & 0x10:
        if start + 4 > size:
            return None
        start += 4 + 4 * int.from_bytes(data[start + 2 : start + 4], "big")
    if start > size:
        return None
    if first & 0x20:
        padding = data[size - 1]
        end = size - padding
        if not padding or end < start:
            return None
    return start, end


def sequence_delta(later: int, earlier: int) -> int:
    """Returns `later - earlier` of 16-bit sequence numbers, in -32768 to 32767."""
    return ((later - earlier + 0x8000) & 0xFFFF) - 0x8000


def timestamp_delta(later: int, earlier: int) -> int:
    """Returns `later - earlier` of 32-bit timestamps, in -2**31 to 2**31 - 1."""
    return ((later - earlier + 0x80000000) & 0xFFFFFFFF) - 0x80000000
