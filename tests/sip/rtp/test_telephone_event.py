"""Does a key pressed once count once, whatever the network does to its packets?"""

from __future__ import annotations

import random
import struct

import pytest

from bench.support.stepped_stream import SteppedStream
from sip.rtp.packet import RtpPacket
from sip.rtp.telephone_event import DIGITS, check_digits, event_payloads
from tests.support.speech.media import RecordingListener, plan


def press(digit: str, timestamp: int, clock_rate_hz: int = 8000) -> list[tuple[int, bytes]]:
    return [(timestamp, payload) for payload in event_payloads(digit, clock_rate_hz)]


def read(events: list[tuple[int, bytes]], *, ssrcs: tuple[int, int] = (1, 1), moved_at: int = 0) -> str:
    """The digits that are heard when the events arrive in this order, from number `moved_at` on of the
    second of `ssrcs`."""
    stream, recorder = SteppedStream(plan(), rate_hz=8000, now=0.0), RecordingListener()
    stream.listener = recorder
    for number, (timestamp, payload) in enumerate(events):
        ssrc = ssrcs[number >= moved_at]
        stream.datagram(RtpPacket(101, number, timestamp, ssrc, payload).to_bytes(), number / 50)
    return "".join(recorder.digits)


def event(digit: str, duration: int, *, end: bool = False) -> bytes:
    return struct.pack("!BBH", DIGITS.index(digit), 0x8A if end else 0x0A, duration)


@pytest.mark.parametrize("clock_rate_hz", [8000, 48000])
def test_a_key_is_growing_updates_and_three_equal_ends(clock_rate_hz: int) -> None:
    step = clock_rate_hz // 50
    parsed = [struct.unpack("!BBH", payload) for payload in event_payloads("#", clock_rate_hz)]
    assert {number for number, _, _ in parsed} == {11}
    assert [bool(flags & 0x80) for _, flags, _ in parsed] == [False] * 4 + [True] * 3
    assert [duration // step for _, _, duration in parsed] == [1, 2, 3, 4, 5, 5, 5]
    assert {flags & 0x40 for _, flags, _ in parsed} == {0}


def test_every_digit_is_understood_once() -> None:
    events = [packet for i, digit in enumerate(DIGITS) for packet in press(digit, i * 1600)]
    assert read(events) == DIGITS


def test_any_one_packet_that_arrives_is_enough() -> None:
    for survivor in range(7):
        assert read([press("5", 800)[survivor]]) == "5"


def test_the_same_key_twice_counts_twice_even_without_its_ends() -> None:
    first, second = press("7", 0)[:4], press("7", 1600)[:4]
    assert read(first + second) == "77"


def test_loss_reordering_and_duplicates_change_nothing() -> None:
    keyed = "0123456789*#ABCD0011"
    for seed in range(50):
        rng = random.Random(seed)
        received = []
        for i, digit in enumerate(keyed):
            packets = [packet for packet in press(digit, i * 1600) if rng.random() > 0.3] or press(
                digit, i * 1600
            )[3:4]
            packets += rng.choices(packets, k=2)
            rng.shuffle(packets)
            received += packets
        assert read(received) == keyed


def test_stragglers_of_the_key_before_are_ignored() -> None:
    one, two = press("1", 0), press("2", 1600)
    assert read([*one[:5], *two[:2], *one[5:], *two[2:]]) == "12"


def test_a_key_held_for_half_a_minute_counts_once() -> None:
    """RFC 4733 2.5.1.3: a new segment, with its own timestamp, after 65535 units."""
    events = []
    for segment in range(4):
        start = (0xFFFF0000 + segment * 0xFFFF) & 0xFFFFFFFF
        events += [(start, event("9", duration)) for duration in range(160, 0xFFFF, 1600)]
    events.append((events[-1][0], event("9", 20000, end=True)))
    assert read(events) == "9"
    assert read([*events, *press("9", events[-1][0] + 24000)]) == "99"


def test_a_sender_that_stamps_every_packet_anew_counts_once() -> None:
    events = [(i * 160, event("3", (i + 1) * 160)) for i in range(6)]
    ends = [(960 + i * 160, event("3", 960, end=True)) for i in range(3)]
    assert read([*events, *ends]) == "3"
    assert read([*events, *ends, (2400, event("3", 160))]) == "33"


def test_flash_hook_and_modem_tones_are_no_digits() -> None:
    assert read([(0, struct.pack("!BBH", number, 10, 160)) for number in (16, 32, 66, 255)]) == ""


def test_a_far_end_that_sets_its_clock_back_can_still_key() -> None:
    assert read(press("1", 0x70000000) + press("2", 1600)) == "12"


def test_a_new_source_starts_afresh() -> None:
    one = (5000, event("1", 160))
    assert read([one] * 4) == "1"
    assert read([one] * 4, ssrcs=(1, 2), moved_at=1) == "11"  # the newcomer's first is on probation


@pytest.mark.parametrize("wrong", ["", "x", "12a", "1 2", "+49", "１"])
def test_what_no_telephone_has_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="DTMF"):
        check_digits(wrong)


def test_what_a_telephone_has_is_not() -> None:
    check_digits(DIGITS)
