"""Whose audio is it? Nobody takes a call by a stray packet, and nobody loses one for a NAT."""

from __future__ import annotations

from dataclasses import replace

from pipeline.plane.address import Address
from sip.rtp.latch import (
    MOST_SOURCES,
    NEAR_PACKETS,
    SILENT_S,
    STRANGE_PACKETS,
    STRANGE_S,
    STRANGE_SILENT_S,
    Latch,
)
from sip.rtp.packet import RtpPacket
from tests.support.speech.media import packets

NAMED, PEER, STRANGER = "203.0.113.7", "203.0.113.1", "198.51.100.66"
NEVER = 0.0
START = 100.0


def latch() -> Latch:
    made = Latch()
    made.aim(frozenset((NAMED, PEER)), left=None, now=START)
    return made


def said(count: int, ssrc: int = 1, **where: int) -> list[RtpPacket]:
    return packets([b"\x55" * 160] * count, ssrc=ssrc, **where)


def proved(
    judge: Latch,
    stream: list[RtpPacket],
    address: Address,
    *,
    at: float = START,
    heard_at: float = NEVER,
    every: float = 0.02,
) -> int | None:
    """After how many packets the source is believed; None: not at all."""
    for number, packet in enumerate(stream, 1):
        now = at + (number - 1) * every
        kept = judge.judge(packet.to_bytes(), address, now, clock_hz=8000, heard_at=heard_at)
        if kept:
            assert [data for data, _ in kept][-1] == packet.to_bytes()
            return number
    return None


def test_the_host_that_sdp_or_the_signalling_names_needs_few_packets() -> None:
    for host in (NAMED, PEER):
        assert proved(latch(), said(10), (host, 61234)) == NEAR_PACKETS


def test_one_packet_of_a_stranger_owns_nothing() -> None:
    judge = latch()
    assert proved(judge, said(1, ssrc=66), (STRANGER, 9)) is None
    assert proved(judge, said(10), (NAMED, 61234)) == NEAR_PACKETS


def test_a_stranger_who_goes_on_is_believed_and_none_of_it_is_lost() -> None:
    judge, stream = latch(), said(30)
    for number, packet in enumerate(stream):
        kept = judge.judge(
            packet.to_bytes(), (STRANGER, 9), START + number / 50, clock_hz=8000, heard_at=NEVER
        )
        if kept:
            break
    assert number + 1 >= STRANGE_PACKETS
    assert STRANGE_S <= number / 50 < STRANGE_S + 0.05
    assert [data for data, _ in kept] == [packet.to_bytes() for packet in stream[: number + 1]]


def test_a_stranger_waits_while_one_that_we_know_of_is_about_to_prove_itself() -> None:
    judge = latch()
    for number, (theirs, ours) in enumerate(zip(said(40, ssrc=66), said(40), strict=True)):
        now = START + number / 50
        assert not judge.judge(theirs.to_bytes(), (STRANGER, 9), now, clock_hz=8000, heard_at=NEVER)
        lame = replace(ours, sequence=ours.sequence + number * 20)  # each too far from the one before
        assert not judge.judge(lame.to_bytes(), (NAMED, 61234), now, clock_hz=8000, heard_at=NEVER)


def test_never_away_from_one_that_sends() -> None:
    judge = latch()
    for number, packet in enumerate(said(500)):
        now = START + number / 50
        assert not judge.judge(packet.to_bytes(), (NAMED, 4), now, clock_hz=8000, heard_at=now - 0.02)


def test_one_that_fell_silent_is_replaced_by_another_that_proves_itself() -> None:
    heard_at = START - SILENT_S + 0.5
    assert proved(latch(), said(100), (NAMED, 4), heard_at=heard_at) in range(25 + NEAR_PACKETS, 31)
    after = proved(latch(), said(400), (STRANGER, 4), heard_at=START)
    assert after is not None
    assert STRANGE_SILENT_S * 50 < after < (STRANGE_SILENT_S + STRANGE_S) * 50 + 5


def test_packets_that_do_not_go_on_prove_nothing() -> None:
    stream = said(40)
    for wrong in (
        [replace(packet, ssrc=number) for number, packet in enumerate(stream)],
        [replace(packet, payload_type=number % 2 * 8) for number, packet in enumerate(stream)],
        [replace(packet, timestamp=7) for packet in stream],
        [
            replace(packet, timestamp=packet.timestamp + number * 80_000)
            for number, packet in enumerate(stream)
        ],
        [replace(packet, sequence=7) for packet in stream],
        [replace(packet, sequence=packet.sequence * 37 & 0xFFFF) for packet in stream],
    ):
        assert proved(latch(), wrong, (NAMED, 4)) is None
    assert proved(latch(), stream, (NAMED, 4), every=2.0) is None  # 20 ms of audio every two seconds


def test_loss_doubles_and_disorder_do_not_stand_in_the_way() -> None:
    stream = said(12)
    shaken = [stream[0], stream[2], stream[1], stream[1], stream[5], stream[4], stream[6]]
    assert proved(latch(), shaken, (NAMED, 4)) is not None


def test_numbers_and_timestamps_wrap() -> None:
    stream = said(5, sequence=0xFFFE, timestamp=0xFFFFFFFF - 100)
    assert proved(latch(), stream, (NAMED, 4)) == NEAR_PACKETS


def test_what_is_not_rtp_is_never_believed() -> None:
    judge = latch()
    for data in (b"", b"\x80", bytes(12), b"\x9f" + bytes(20)):
        assert not judge.judge(data, (NAMED, 4), START, clock_hz=8000, heard_at=NEVER)


def test_the_address_that_a_new_plan_has_left_does_not_come_back_by_its_last_packets() -> None:
    judge, old = latch(), (NAMED, 4)
    judge.aim(frozenset((NAMED, PEER)), left=old, now=START)
    assert proved(judge, said(30), old) is None
    assert proved(judge, said(30), (NAMED, 6)) == NEAR_PACKETS


def test_a_flood_of_sources_leaves_room_for_the_one_that_we_know_of() -> None:
    judge = latch()
    for number, packet in enumerate(said(NEAR_PACKETS)):
        now = START + number / 50
        for port in range(10 * MOST_SOURCES):
            flood = replace(packet, ssrc=port)
            assert not judge.judge(flood.to_bytes(), (STRANGER, port), now, clock_hz=8000, heard_at=NEVER)
        kept = judge.judge(packet.to_bytes(), (NAMED, 4), now, clock_hz=8000, heard_at=NEVER)
    assert len(kept) == NEAR_PACKETS


def test_keys_between_the_audio_are_kept_and_count_for_nothing() -> None:
    judge = latch()
    key = RtpPacket(101, 101, 5160, 1, b"\x05\x0a\x00\xa0").to_bytes()
    first, _, third, *rest = said(8)
    assert not judge.judge(first.to_bytes(), (NAMED, 4), START, clock_hz=8000, heard_at=NEVER)
    for _ in range(10):
        assert not judge.judge(key, (NAMED, 4), START + 0.02, clock_hz=0, heard_at=NEVER)
    assert not judge.judge(third.to_bytes(), (NAMED, 4), START + 0.04, clock_hz=8000, heard_at=NEVER)
    kept = judge.judge(rest[0].to_bytes(), (NAMED, 4), START + 0.06, clock_hz=8000, heard_at=NEVER)
    assert key in [data for data, _ in kept]
