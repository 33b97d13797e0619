"""RTCP (RFC 3550 section 6): serialises and parses reports, and times them (6.3).

Sans-IO: datagrams in, datagrams out, `now` in seconds of the loop's clock."""

from __future__ import annotations

import base64
import random
import secrets
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pipeline.plane.setup import timestamp_at
from sip.rtp.packet import MalformedPacket
from sip.rtp.reception_stats import Reception, ReportBlock

_RANDOM: Final = random.SystemRandom()  # one of its own would be 2.5 KiB of a call

_SR: Final = 200
_RR: Final = 201
_SDES: Final = 202
_BYE: Final = 203
PACKET_TYPES: Final = range(192, 224)
"""The second byte of an RTCP packet, by which rtcp-mux tells RTCP from RTP (RFC 5761 section 4)."""

_COMMON: Final = struct.Struct("!BBH")
_SENDER: Final = struct.Struct("!QIII")
_CNAME: Final = 1
_UNITS: Final = 65536  # LSR and DLSR count 1/65536 s
_NTP_EPOCH_S: Final = 2_208_988_800  # 1970 seen from 1900

INTERVAL_S: Final = 5.0
FIRST_S: Final = 1.0
_RECONSIDERATION: Final = 1.21828  # e - 3/2, RFC 3550 6.3.1


@dataclass(frozen=True, slots=True)
class SenderReport:
    """An RTCP sender report: SR, RFC 3550 6.4.1. `ntp` is the 64-bit timestamp."""

    ssrc: int
    ntp: int
    timestamp: int
    packets: int
    octets: int
    blocks: tuple[ReportBlock, ...] = ()

    def to_bytes(self) -> bytes:
        """Serialises the RTCP packet of RFC 3550 6.4.1."""
        figures = _SENDER.pack(self.ntp, self.timestamp, self.packets & 0xFFFFFFFF, self.octets & 0xFFFFFFFF)
        body = self.ssrc.to_bytes(4, "big") + figures
        return _packet(_SR, len(self.blocks), body + b"".join(block.to_bytes() for block in self.blocks))


@dataclass(frozen=True, slots=True)
class ReceiverReport:
    """An RTCP receiver report: RR, RFC 3550 6.4.2."""

    ssrc: int
    blocks: tuple[ReportBlock, ...] = ()

    def to_bytes(self) -> bytes:
        """Serialises the RTCP packet of RFC 3550 6.4.2."""
        blocks = b"".join(block.to_bytes() for block in self.blocks)
        return _packet(_RR, len(self.blocks), self.ssrc.to_bytes(4, "big") + blocks)


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """An RTCP source description: SDES with CNAME, its one mandatory item (RFC 3550 6.5)."""

    ssrc: int
    cname: str

    def to_bytes(self) -> bytes:
        """Serialises the packet; the name is cut at 255 bytes."""
        name = self.cname.encode()[:255]
        chunk = self.ssrc.to_bytes(4, "big") + bytes((_CNAME, len(name))) + name
        return _packet(_SDES, 1, chunk + bytes(4 - len(chunk) % 4))


@dataclass(frozen=True, slots=True)
class Bye:
    """An RTCP BYE: the sources that leave (RFC 3550 6.6)."""

    ssrcs: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Serialises the RTCP packet of RFC 3550 6.6."""
        return _packet(_BYE, len(self.ssrcs), b"".join(ssrc.to_bytes(4, "big") for ssrc in self.ssrcs))


RtcpPacket: TypeAlias = SenderReport | ReceiverReport | SourceDescription | Bye


def parse(data: bytes) -> list[RtcpPacket]:
    """Parses the packets of a compound; other types (APP, feedback, XR) are skipped.

    Raises `MalformedPacket` for lengths that do not add up, another version, or counts that do not fit."""
    packets: list[RtcpPacket] = []
    for kind, count, body in _split(data):
        try:
            packet = _read(kind, count, body)
        except (struct.error, IndexError) as error:
            raise MalformedPacket("RTCP packet shorter than its count says") from error
        if packet is not None:
            packets.append(packet)
    return packets


def _packet(kind: int, count: int, body: bytes) -> bytes:
    return _COMMON.pack(0x80 | count, kind, len(body) // 4) + body


def _split(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    position = 0
    if not data:
        raise MalformedPacket("empty RTCP datagram")
    while position < len(data):
        if position + 4 > len(data):
            raise MalformedPacket("truncated RTCP header")
        first, kind, words = _COMMON.unpack_from(data, position)
        end = position + 4 + 4 * words
        if first >> 6 != 2 or kind not in PACKET_TYPES or end > len(data):
            raise MalformedPacket("not an RTCP packet")
        padding = data[end - 1] if first & 0x20 else 0
        if padding > 4 * words:
            raise MalformedPacket("RTCP padding longer than its packet")
        yield kind, first & 0x1F, data[position + 4 : end - padding]
        position = end


def _read(kind: int, count: int, body: bytes) -> RtcpPacket | None:
    if kind == _SR:
        ntp, timestamp, packets, octets = _SENDER.unpack_from(body, 4)
        return SenderReport(_ssrc(body, 0), ntp, timestamp, packets, octets, _blocks(body[24:], count))
    if kind == _RR:
        return ReceiverReport(_ssrc(body, 0), _blocks(body[4:], count))
    if kind == _BYE:
        return Bye(tuple(_ssrc(body, 4 * index) for index in range(count)))
    if kind == _SDES and count:
        return SourceDescription(_ssrc(body, 0), _cname(body[4:]))
    return None


def _ssrc(body: bytes, offset: int) -> int:
    (ssrc,) = struct.unpack_from("!I", body, offset)
    return int(ssrc)


def _blocks(body: bytes, count: int) -> tuple[ReportBlock, ...]:
    return tuple(ReportBlock.parse(body[24 * index : 24 * index + 24]) for index in range(count))


def _cname(items: bytes) -> str:
    """Returns the CNAME of the first chunk, "" without one."""
    position = 0
    while items[position]:
        length = items[position + 1]
        if items[position] == _CNAME:
            name = items[position + 2 : position + 2 + length]
            if len(name) < length:
                raise IndexError("name longer than its packet")
            return name.decode(errors="replace")
        position += 2 + length
    return ""


@dataclass(frozen=True, slots=True)
class RemoteView:
    """The far end's report on the packets sent here. `fraction_lost` is 0 to 1."""

    lost: int = 0
    fraction_lost: float = 0.0
    jitter: int = 0
    rtt_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent so far, and the RTP timestamp at the moment of the report."""

    ssrc: int
    timestamp: int
    packets: int
    octets: int

    @classmethod
    def of(cls, line: Any, now: float) -> Sent:
        """What `line` (`pipeline.plane.rows.LINE`) has sent of its source by now."""
        return cls(
            int(line["own_ssrc"]),
            timestamp_at(line, now),
            int(line["packets_sent"]) - int(line["packets_before"]),
            int(line["octets_sent"]) - int(line["octets_before"]),
        )


class RtcpSession:
    """The RTCP state of one stream: when to send which report, and what the far end reported.

    `wall_offset_s`: unix time minus the loop's clock, taken once, so that a step of the system's clock does
    not show as round-trip time."""

    def __init__(self, *, wall_offset_s: float, rng: random.Random | None = None) -> None:
        self._wall_offset_s = wall_offset_s
        self._rng = rng or _RANDOM
        # A CNAME for this call alone (RFC 7022 4.2): one for the host would identify the host to every
        # caller.
        self._cname = base64.b64encode(secrets.token_bytes(12)).decode()
        self._their_report = 0  # the middle 32 bits of the far end's last NTP timestamp
        self._their_report_s = 0.0
        self._packets_reported = 0
        self.remote = RemoteView()

    def first_due(self, now: float) -> float:
        """Returns when the first report is due: early, so that a short call has a round-trip time too."""
        return now + FIRST_S * self._rng.uniform(0.5, 1.5)

    def next_due(self, now: float) -> float:
        """Returns when the next report is due (RFC 3550 6.3.1 for two members)."""
        return now + INTERVAL_S * self._rng.uniform(0.5, 1.5) / _RECONSIDERATION

    def report(self, sent: Sent, reception: Reception | None, now: float) -> bytes:
        """Makes a compound of SDES and SR, or RR where nothing was sent since the last report."""
        blocks: tuple[ReportBlock, ...] = ()
        if reception is not None and reception.received:
            blocks = (reception.block(self._their_report, self._since_their_report(now)),)
        report: SenderReport | ReceiverReport
        if sent.packets > self._packets_reported:
            self._packets_reported = sent.packets
            report = SenderReport(
                sent.ssrc, self._ntp(now), sent.timestamp, sent.packets, sent.octets, blocks
            )
        else:
            report = ReceiverReport(sent.ssrc, blocks)
        return report.to_bytes() + SourceDescription(sent.ssrc, self._cname).to_bytes()

    def bye(self, sent: Sent, reception: Reception | None, now: float) -> bytes:
        """Makes the compound packet that ends the stream: a report, SDES and BYE (RFC 3550 6.6)."""
        return self.report(sent, reception, now) + Bye((sent.ssrc,)).to_bytes()

    def receive(self, data: bytes, our_ssrc: int, now: float) -> None:
        """Takes an RTCP datagram of the far end. Raises `MalformedPacket`."""
        for packet in parse(data):
            match packet:
                case SenderReport(ntp=ntp, blocks=blocks):
                    self._their_report = ntp >> 16 & 0xFFFFFFFF
                    self._their_report_s = now
                    self._read(blocks, our_ssrc, now)
                case ReceiverReport(blocks=blocks):
                    self._read(blocks, our_ssrc, now)

    def _read(self, blocks: tuple[ReportBlock, ...], our_ssrc: int, now: float) -> None:
        for block in blocks:
            if block.ssrc == our_ssrc:
                rtt_ms = self._rtt_ms(block, now)
                rtt_ms = self.remote.rtt_ms if rtt_ms is None else rtt_ms
                self.remote = RemoteView(block.lost, block.fraction_lost / 256, block.jitter, rtt_ms)

    def _rtt_ms(self, block: ReportBlock, now: float) -> float | None:
        """Returns A - LSR - DLSR (RFC 3550 6.4.1) in milliseconds; None where the far end has had no report
        yet, or above 60 s."""
        if not block.last_report:
            return None
        elapsed = ((self._ntp(now) >> 16) - block.last_report - block.since_last_report) & 0xFFFFFFFF
        if elapsed >= 0x80000000:  # rounded below 0
            return 0.0
        return elapsed * 1000 / _UNITS if elapsed < 60 * _UNITS else None

    def _since_their_report(self, now: float) -> int:
        if not self._their_report:
            return 0
        return min(int((now - self._their_report_s) * _UNITS), 0xFFFFFFFF)

    def _ntp(self, now: float) -> int:
        return int((now + self._wall_offset_s + _NTP_EPOCH_S) * 2**32) & 0xFFFFFFFFFFFFFFFF
