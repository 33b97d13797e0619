"""Is every header read right, and is everything else refused without harm?"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sip.rtp.packet import (
    MalformedPacket,
    RtpPacket,
    payload_span,
    sequence_delta,
    timestamp_delta,
)

PLAIN = bytes.fromhex("80000064 00001388 1234abcd".replace(" ", ""))


def test_the_header_is_that_of_rfc_3550() -> None:
    packet = RtpPacket(101, 0xFFFE, 0xFFFFFFF0, 0xDEADBEEF, b"\x01\x02", marker=True)
    assert packet.to_bytes().hex() == "80e5fffefffffff0deadbeef0102"
    assert RtpPacket.parse(packet.to_bytes()) == packet


def test_csrcs_extension_and_padding_are_left_out() -> None:
    csrcs = bytes(8)
    extension = b"\xbe\xde\x00\x01" + b"\x10\xff\x00\x00"
    data = bytes([0x80 | 0x20 | 0x10 | 2]) + PLAIN[1:] + csrcs + extension + b"voice" + b"\x00\x00\x03"
    assert RtpPacket.parse(data).payload == b"voice"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PLAIN[:11],
        b"\x00" + PLAIN[1:],  # version 0
        b"\x40" + PLAIN[1:],  # version 1
        b"\xc0" + PLAIN[1:],  # version 3
        b"\x8f" + PLAIN[1:] + bytes(20),  # 15 CSRCs that are not there
        b"\x90" + PLAIN[1:],  # an extension that is not there
        b"\x90" + PLAIN[1:] + b"\xbe\xde\xff\xff" + bytes(8),  # a longer extension than the packet
        b"\xa0" + PLAIN[1:] + b"voice\x00",  # padding of 0
        b"\xa0" + PLAIN[1:] + b"\xff",  # more padding than packet
        b"\xa0" + PLAIN[1:-1] + b"\x0c",  # padding that eats the header
    ],
)
def test_what_is_not_rtp_is_refused(data: bytes) -> None:
    assert payload_span(data, len(data)) is None
    with pytest.raises(MalformedPacket):
        RtpPacket.parse(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_packet_or_refused(data: bytes) -> None:
    try:
        packet = RtpPacket.parse(data)
    except MalformedPacket:
        return
    assert len(packet.payload) <= len(data) - 12


@given(st.integers(0, 0xFFFF), st.integers(-0x8000, 0x7FFF))
def test_sequence_numbers_wrap(earlier: int, delta: int) -> None:
    assert sequence_delta((earlier + delta) & 0xFFFF, earlier) == delta


@given(st.integers(0, 0xFFFFFFFF), st.integers(-(2**31), 2**31 - 1))
def test_timestamps_wrap(earlier: int, delta: int) -> None:
    assert timestamp_delta((earlier + delta) & 0xFFFFFFFF, earlier) == delta


def test_random_packets_survive_the_round_trip() -> None:
    rng = random.Random(7)
    for _ in range(200):
        packet = RtpPacket(
            rng.randrange(128), rng.randrange(0x10000), rng.getrandbits(32), rng.getrandbits(32),
            rng.randbytes(rng.randrange(200)), rng.random() < 0.5,
        )  # fmt: skip
        assert RtpPacket.parse(packet.to_bytes()) == packet
