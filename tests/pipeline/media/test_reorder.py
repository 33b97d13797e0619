"""Order restored within 40 ms, whatever the network did to it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.media.reorder import Gap, Packet, Reorder

Item = int | tuple[int, int]
"""What came out: a sequence number, or (first, lost) of a gap."""


def payload(sequence: int) -> bytes:
    return sequence.to_bytes(2, "big")


class Line:
    """Feeds a Reorder and writes down what came out, in order."""

    def __init__(self, **settings: int) -> None:
        self.reorder = Reorder(**settings)
        self.out: list[Item] = []

    def push(self, sequence: int, now: float = 0.0) -> None:
        sequence &= 0xFFFF
        buffer = bytearray(payload(sequence))
        if self.reorder.push(sequence, sequence * 160, memoryview(buffer), now):
            self.out.append(sequence)
        buffer[:] = b"\xee\xee"  # the receive buffer is used again at once
        if self.reorder.pending:
            self.take(now)

    def take(self, now: float) -> None:
        for item in self.reorder.take(now):
            if isinstance(item, Packet):
                assert item.payload == payload(item.sequence)
                assert item.timestamp == item.sequence * 160
                self.out.append(item.sequence)
            else:
                self.out.append((item.sequence, item.lost))


def test_packets_in_order_pass_at_once_and_nothing_waits() -> None:
    line = Line()
    for sequence in range(1000, 1100):
        line.push(sequence)
        assert line.reorder.pending == 0
        assert line.reorder.due_at() is None
    assert line.out == list(range(1000, 1100))


def test_a_swapped_pair_comes_out_in_order() -> None:
    line = Line()
    for sequence in (1, 3, 2, 4):
        line.push(sequence)
    assert line.out == [1, 2, 3, 4]
    assert line.reorder.stats.reordered == 1
    assert line.reorder.stats.lost == 0


def test_a_missing_packet_holds_up_the_others_for_forty_milliseconds_and_no_longer() -> None:
    line = Line()
    line.push(1, now=0.00)
    line.push(3, now=0.04)
    assert line.reorder.due_at() == pytest.approx(0.08)
    line.push(4, now=0.06)
    assert line.out == [1]
    line.take(0.0799)
    assert line.out == [1]
    line.take(0.0801)
    assert line.out == [1, (2, 1), 3, 4]
    assert line.reorder.due_at() is None
    line.push(5, now=0.08)
    assert line.out[-1] == 5


def test_a_gap_says_when_the_audio_goes_on() -> None:
    reorder = Reorder(patience_ms=0)
    reorder.push(10, 1600, b"", 0.0)
    reorder.push(13, 9999, b"x", 0.0)
    assert reorder.take(0.0) == [Gap(11, 2, 9999), Packet(13, 9999, b"x", 0.0)]


def test_the_second_gap_has_its_own_patience() -> None:
    line = Line()
    for sequence, now in ((1, 0.0), (3, 0.01), (5, 0.04)):
        line.push(sequence, now)
    line.take(0.051)
    assert line.out == [1, (2, 1), 3]
    assert line.reorder.due_at() == pytest.approx(0.08)
    line.take(0.081)
    assert line.out == [1, (2, 1), 3, (4, 1), 5]


def test_what_comes_after_it_was_given_up_is_late_and_what_comes_twice_is_a_duplicate() -> None:
    line = Line(patience_ms=0)
    for sequence in (1, 3, 2, 2, 3, 1):
        line.push(sequence)
    assert line.out == [1, (2, 1), 3]
    assert (line.reorder.stats.lost, line.reorder.stats.late, line.reorder.stats.duplicates) == (1, 1, 3)


def test_a_held_packet_that_comes_again_is_a_duplicate() -> None:
    line = Line()
    for sequence in (1, 3, 3, 2):
        line.push(sequence)
    assert line.out == [1, 2, 3]
    assert line.reorder.stats.duplicates == 1


def test_numbers_wrap() -> None:
    line = Line()
    for sequence in (65533, 65535, 65534, 0, 2, 1, 3):
        line.push(sequence)
    assert line.out == [65533, 65534, 65535, 0, 1, 2, 3]
    assert line.reorder.stats.lost == 0


def test_a_loss_across_the_wrap_is_counted_right() -> None:
    line = Line(patience_ms=0)
    for sequence in (65534, 1):
        line.push(sequence)
    assert line.out == [65534, (65535, 2), 1]


def test_one_stray_packet_from_far_away_is_not_believed() -> None:
    line = Line()
    for sequence in (1, 2, 40000, 3, 4):
        line.push(sequence)
    assert line.out == [1, 2, 3, 4]
    assert line.reorder.stats.restarts == 0


def test_a_sender_that_starts_again_elsewhere_is_followed_without_losing_its_first_packet() -> None:
    line = Line()
    for sequence in (1, 2, 4, 40000, 40001, 40002):
        line.push(sequence)
    assert line.out == [1, 2, 4, 40000, 40001, 40002]
    assert line.reorder.stats.restarts == 1
    assert line.reorder.pending == 0


def test_a_sender_that_goes_back_is_followed_too() -> None:
    line = Line()
    for sequence in (30000, 30001, 20000, 20001, 20002):
        line.push(sequence)
    assert line.out == [30000, 30001, 20000, 20001, 20002]


def test_a_reset_takes_whatever_comes_next() -> None:
    line = Line()
    for sequence in (1, 3):
        line.push(sequence)
    line.reorder.reset()
    assert line.reorder.pending == 0
    line.push(777)
    line.push(778)
    assert line.out == [1, 777, 778]


def test_no_more_than_the_capacity_is_ever_held() -> None:
    line = Line(capacity=4)
    line.push(0)
    for sequence in range(2, 2000, 2):  # every other packet is missing, and no time passes
        line.push(sequence)
        assert line.reorder.pending < 4
    assert line.out[:4] == [0, (1, 1), 2, (3, 1)]


@pytest.mark.parametrize("bad", [{"patience_ms": -1}, {"capacity": 0}, {"capacity": 100_000}])
def test_settings_out_of_range_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="out of range"):
        Reorder(**bad)


def test_thirty_per_cent_loss_and_jitter_leave_order_and_a_true_count() -> None:
    rng = random.Random(11)
    arrivals = sorted(
        (0.02 * i + rng.uniform(0, 0.06), (65000 + i) & 0xFFFF) for i in range(5000) if rng.random() > 0.3
    )
    line = Line()
    for now, sequence in arrivals:
        line.push(sequence, now)
    line.take(1000.0)
    numbers = [((s if isinstance(s, int) else s[0]) - 65000) & 0xFFFF for s in line.out]
    assert numbers == sorted(numbers)
    heard = sum(isinstance(item, int) for item in line.out)
    stats = line.reorder.stats
    assert heard + stats.late == len(arrivals)
    assert heard + stats.lost == numbers[-1] - numbers[0] + 1
    assert stats.late < 0.02 * len(arrivals)


@settings(deadline=None, max_examples=300)
@given(
    start=st.integers(0, 65535),
    moves=st.lists(st.tuples(st.integers(-130, 130), st.floats(0, 0.05)), max_size=200),
)
def test_whatever_arrives_nothing_comes_out_twice_or_backwards(
    start: int, moves: list[tuple[int, float]]
) -> None:
    """Any walk near the current number: every item leads on from the one before it."""
    line, at, now = Line(), start, 0.0
    for move, wait in moves:
        at, now = (at + move) & 0xFFFF, now + wait
        line.push(at, now)
    line.take(now + 1.0)
    assert line.reorder.pending == 0
    if line.reorder.stats.restarts:
        return
    expected = line.out[0] if line.out else None
    for item in line.out:
        first, count = (item, 1) if isinstance(item, int) else item
        assert first == expected
        expected = (first + count) & 0xFFFF
