"""Do the reports say what happened, and do we understand those of others?"""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.support.stepped_stream import SteppedStream
from sip.rtp.packet import MalformedPacket, RtpPacket
from sip.rtp.reception_stats import Reception, ReportBlock
from sip.rtp.rtcp import (
    FIRST_S,
    Bye,
    ReceiverReport,
    RtcpPacket,
    RtcpSession,
    SenderReport,
    Sent,
    SourceDescription,
    parse,
)
from tests.support.speech.media import plan

US, THEM = 0x11111111, 0x22222222
BLOCK = ReportBlock(US, 64, -3, 0x1FFFF, 17, 0xAABBCCDD, 65536)


class Source:
    """A source of G.711 that the media plane receives, and what is reported of it."""

    def __init__(self, ssrc: int = THEM) -> None:
        self._ssrc = ssrc
        self._stream = SteppedStream(plan(), rate_hz=8000, now=0.0)
        self.reception = Reception(self._stream.line)

    def packet(self, sequence: int, timestamp: int = 0, now: float = 0.0) -> None:
        packet = RtpPacket(0, sequence & 0xFFFF, timestamp & 0xFFFFFFFF, self._ssrc, b"\xff")
        self._stream.datagram(packet.to_bytes(), now)


def heard(count: int, *, start: int = 0, ssrc: int = THEM) -> tuple[Source, Reception]:
    source = Source(ssrc)
    for i in range(count):
        source.packet(start + i)
    return source, source.reception


def test_packets_survive_the_round_trip() -> None:
    compound: list[RtcpPacket] = [
        SenderReport(THEM, 0x0123456789ABCDEF, 0xFFFFFFFF, 5, 800, (BLOCK, BLOCK)),
        ReceiverReport(THEM, (BLOCK,)),
        SourceDescription(THEM, "a-name"),
        Bye((THEM, US)),
    ]
    assert parse(b"".join(packet.to_bytes() for packet in compound)) == compound


@pytest.mark.parametrize("length", range(9))
def test_names_of_every_length_are_padded_to_words(length: int) -> None:
    data = SourceDescription(US, "x" * length).to_bytes()
    assert len(data) % 4 == 0
    assert parse(data) == [SourceDescription(US, "x" * length)]


def test_a_sender_report_has_the_layout_of_rfc_3550() -> None:
    data = SenderReport(0x01020304, 0x05060708090A0B0C, 0x0D0E0F10, 17, 18).to_bytes()
    assert data.hex() == "80c80006" + "01020304" + "05060708090a0b0c" + "0d0e0f10" + "00000011" + "00000012"


def test_types_that_we_do_not_speak_are_passed_over() -> None:
    app = struct.pack("!BBH", 0x80, 204, 2) + bytes(8)
    feedback = struct.pack("!BBH", 0x81, 205, 2) + bytes(8)
    assert parse(app + Bye((THEM,)).to_bytes() + feedback) == [Bye((THEM,))]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x40\xc9\x00\x01" + bytes(4),  # version 1
        b"\x80\xc9\x00\x02" + bytes(4),  # longer than it is
        b"\x80\x00\x00\x01" + bytes(4),  # RTP
        b"\x81\xc9\x00\x01" + bytes(4),  # a block that is not there
        b"\x80\xc8\x00\x01" + bytes(4),  # half a sender report
        b"\x9f\xcb\x00\x01" + bytes(4),  # 31 sources in four bytes
        b"\xa0\xc9\x00\x01" + b"\x00\x00\x00\xff",  # padding longer than the packet
        b"\x81\xca\x00\x02" + bytes(4) + b"\x01\xff\x41\x41",  # a name that goes on behind the end
    ],
)
def test_what_is_not_rtcp_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedPacket):
        parse(data)


@given(st.binary(max_size=120))
def test_any_bytes_are_reports_or_refused(data: bytes) -> None:
    session = RtcpSession(wall_offset_s=0, rng=random.Random(1))
    for prefix in (b"", b"\x81\xc8", b"\x81\xc9\x00\x07", b"\x81\xca\x00\x03", b"\x82\xcb\x00\x02"):
        try:
            session.receive(prefix + data, US, 10.0)
        except MalformedPacket:
            continue


def test_losses_are_counted_and_the_fraction_is_since_the_last_report() -> None:
    source = Source()
    reception = source.reception
    for sequence in range(100):
        if sequence % 4 != 3:
            source.packet(sequence)
    block = reception.block(0, 0)
    assert (block.lost, block.highest_sequence) == (24, 98)  # 99 itself was lost: nobody knows of it yet
    assert block.fraction_lost == 24 * 256 // 99
    for sequence in range(100, 200):
        source.packet(sequence)
    later = reception.block(0, 0)
    assert later.lost == 25
    assert later.fraction_lost == 256 // 101


def test_duplicates_make_the_loss_negative_not_the_fraction() -> None:
    source, reception = heard(10)
    source.packet(9)
    block = reception.block(0, 0)
    assert (block.lost, block.fraction_lost) == (-1, 0)
    assert ReportBlock.parse(block.to_bytes()).lost == -1


def test_the_sequence_wraps_into_the_extended_number() -> None:
    _, reception = heard(70_000, start=65_000)
    assert reception.highest == 65_000 + 69_999
    assert reception.lost == 0


def test_misordered_packets_are_no_losses() -> None:
    source = Source()
    reception = source.reception
    for sequence in (65534, 0, 65535, 1, 3, 2):
        source.packet(sequence)
    assert (reception.lost, reception.highest) == (0, 65536 + 3)


def test_a_jump_is_believed_when_it_goes_on() -> None:
    source, reception = heard(10)
    source.packet(30_000)
    assert reception.highest == 9
    source.packet(40_000)
    source.packet(40_001)
    assert (reception.highest, reception.lost) == (40_001, 0)


def test_jitter_is_that_of_rfc_3550() -> None:
    source = Source()
    rng = random.Random(3)
    expected, before = 0.0, None
    for i in range(500):
        arrival = i * 0.02 + rng.uniform(0, 0.01)
        timestamp = (0xFFFFF000 + i * 160) & 0xFFFFFFFF
        source.packet(i, timestamp, arrival)
        transit = arrival * 8000 - i * 160
        if before is not None:
            expected += (abs(transit - before) - expected) / 16
        before = transit
    assert source.reception.jitter == pytest.approx(expected, rel=1e-3)  # counted in whole nanoseconds
    assert 2.0 < source.reception.jitter_ms < 5.0


def test_a_steady_stream_has_no_jitter_and_a_jump_of_the_clock_makes_none() -> None:
    source = Source()
    for i in range(100):
        source.packet(i, i * 160 + (3_000_000 if i > 50 else 0), i * 0.02)
    assert source.reception.jitter == pytest.approx(0, abs=1e-6)


def test_two_sides_measure_the_round_trip() -> None:
    ours = RtcpSession(wall_offset_s=1.7e9, rng=random.Random(1))
    theirs = RtcpSession(wall_offset_s=1.2e9, rng=random.Random(2))
    theirs.receive(ours.report(Sent(US, 8000, 50, 8000), None, 10.0), THEM, 10.030)
    _, reception = heard(50, ssrc=US)
    ours.receive(theirs.report(Sent(THEM, 0, 0, 0), reception, 14.5), US, 14.550)
    assert ours.remote.rtt_ms == pytest.approx(80, abs=0.1)
    assert ours.remote.lost == 0


def test_what_the_far_end_lost_is_told() -> None:
    ours = RtcpSession(wall_offset_s=0, rng=random.Random(1))
    theirs = RtcpSession(wall_offset_s=0, rng=random.Random(2))
    source = Source(US)
    reception = source.reception
    for sequence in range(0, 101, 2):
        source.packet(sequence)
    ours.receive(theirs.report(Sent(THEM, 0, 0, 0), reception, 5.0), US, 5.0)
    assert ours.remote.lost == 50
    assert ours.remote.fraction_lost == pytest.approx(0.5, abs=0.01)
    assert ours.remote.rtt_ms is None


def test_blocks_about_others_are_not_ours() -> None:
    ours = RtcpSession(wall_offset_s=0)
    ours.receive(ReceiverReport(THEM, (ReportBlock(99, 255, 1000, 1, 1, 0, 0),)).to_bytes(), US, 5.0)
    assert ours.remote.lost == 0


def test_a_listener_sends_receiver_reports_and_a_talker_sender_reports() -> None:
    session = RtcpSession(wall_offset_s=0)
    first, name = parse(session.report(Sent(US, 0, 0, 0), None, 1.0))
    assert isinstance(first, ReceiverReport)
    assert isinstance(name, SourceDescription)
    talking = parse(session.report(Sent(US, 0, 10, 1600), None, 2.0))[0]
    assert isinstance(talking, SenderReport)
    assert (talking.packets, talking.octets) == (10, 1600)
    fell_silent = parse(session.report(Sent(US, 0, 10, 1600), None, 3.0))[0]
    assert isinstance(fell_silent, ReceiverReport)
    assert parse(session.bye(Sent(US, 0, 11, 1700), None, 3.0))[-1] == Bye((US,))


def test_every_call_has_a_name_of_its_own() -> None:
    def name() -> str:
        described = parse(RtcpSession(wall_offset_s=0).report(Sent(US, 0, 0, 0), None, 1.0))[-1]
        assert isinstance(described, SourceDescription)
        return described.cname

    assert len({name() for _ in range(20)}) == 20


def test_reports_come_early_and_then_every_few_seconds_at_random() -> None:
    session = RtcpSession(wall_offset_s=0, rng=random.Random(5))
    firsts = [session.first_due(100.0) - 100 for _ in range(50)]
    gaps = [session.next_due(100.0) - 100 for _ in range(50)]
    assert all(0.5 * FIRST_S <= first <= 1.5 * FIRST_S for first in firsts)
    assert all(2.0 < gap < 6.2 for gap in gaps)
    assert len(set(gaps)) > 40
