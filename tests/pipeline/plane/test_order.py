"""Are packets heard in their order, once each, within the patience, whatever the network did to them?"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.support.stepped_stream import SteppedStream
from pipeline.audio import Pcm
from pipeline.plane.reception.order import forget_order
from pipeline.plane.rows import HEARD, HELD, SPARE
from sip.rtp.packet import RtpPacket
from tests.support.speech.media import RecordingListener, feed, plan

PATIENCE_MS = 40
FRAME = 160
MOST = HEARD - SPARE
"""Frames that one call may make: more than these `sip.rtp.heard` drops, for the ring may be written over."""


def octets_of(sequence: int) -> bytes:
    """20 ms of mu-law that say `sequence`: each of its 16 bits is a sample, loud above or below zero."""
    bits = [0x00 if sequence >> bit & 1 else 0x80 for bit in range(16)]
    return bytes(bits) * (FRAME // 16)


def number_of(frame: Pcm) -> int:
    """The number that `octets_of` put into the frame. Its end says it: a made-up frame fades into it."""
    return sum(1 << bit for bit in range(16) if frame[FRAME - 16 + bit] < 0)


class Row:
    """A row of the plane to which packets come by hand; writes down the numbers of the packets it heard."""

    def __init__(self, *, patience_ms: int = PATIENCE_MS, ms: int = 20) -> None:
        self.stream = SteppedStream(plan(), rate_hz=8000, now=0.0)
        self.line, self.ms = self.stream.line, ms
        self.line["patience_ns"] = patience_ms * 1_000_000
        self.stream.listener = self.recorder = RecordingListener()
        self.most_made = 0

    def push(self, sequence: int, now_ms: float = 0.0) -> None:
        """The packet `sequence` arrives."""
        stamp = sequence * 8 * self.ms & 0xFFFFFFFF
        packet = RtpPacket(0, sequence & 0xFFFF, stamp, 7, octets_of(sequence) * (self.ms // 20))
        before = self.count("frames")
        feed(self.stream, packet, now_ms / 1000)
        self.most_made = max(self.most_made, self.count("frames") - before)

    def flush(self, now_ms: float) -> None:
        """A tick."""
        before = self.count("frames")
        self.stream.due(now_ms / 1000)
        self.most_made = max(self.most_made, self.count("frames") - before)

    @property
    def waits(self) -> bool:
        return self.count("held") > 0

    @property
    def heard(self) -> list[int]:
        """The numbers that the frames say which were not made up."""
        told = zip(self.recorder.frames, self.recorder.concealed, strict=True)
        return [number_of(frame) for frame, made_up in told if not made_up]

    @property
    def numbers(self) -> list[int]:
        """Of the packets that were heard, each once for the frames it had."""
        step, heard = self.ms // 20, self.heard
        assert all(len(set(heard[at : at + step])) == 1 for at in range(0, len(heard), step))
        return heard[::step]

    def count(self, name: str) -> int:
        return int(self.line[name])


def fed(sequences: Iterable[int], *, patience_ms: int = PATIENCE_MS, ms: int = 20) -> Row:
    """A row to which the packets came at one moment."""
    row = Row(patience_ms=patience_ms, ms=ms)
    for sequence in sequences:
        row.push(sequence)
    return row


def test_packets_in_order_pass_at_once_and_nothing_waits() -> None:
    row = Row()
    for sequence in range(1000, 1100):
        row.push(sequence)
        assert row.heard[-1] == sequence
        assert not row.waits
    assert row.heard == list(range(1000, 1100))


def test_a_swapped_pair_is_heard_in_order() -> None:
    row = fed([1, 3, 2, 4])
    assert row.heard == [1, 2, 3, 4]
    assert row.count("lost") == row.count("late") == row.count("concealed") == 0


def test_a_missing_packet_holds_up_the_others_for_the_patience_and_no_longer() -> None:
    row = Row()
    row.push(1, 0)
    row.push(3, 40)
    row.push(4, 60)
    assert (row.heard, row.waits) == ([1], True)
    row.flush(79.9)
    assert row.heard == [1]
    row.flush(80)
    assert (row.heard, row.waits) == ([1, 3, 4], False)
    assert row.count("lost") == row.count("concealed") == 1
    row.push(5, 80)
    assert row.heard[-1] == 5


def test_a_missing_packet_that_comes_within_the_patience_is_heard() -> None:
    row = Row()
    row.push(1, 0)
    row.push(3, 20)
    row.flush(59.9)
    row.push(2, 59.9)
    assert (row.heard, row.waits) == ([1, 2, 3], False)
    assert row.count("lost") == row.count("late") == 0


def test_the_next_packet_ends_the_wait_without_a_flush() -> None:
    row = Row()
    row.push(1, 0)
    row.push(3, 20)
    row.push(4, 60)
    assert (row.heard, row.count("lost")) == ([1, 3, 4], 1)


def test_the_second_gap_has_its_own_patience() -> None:
    row = Row()
    for sequence, now_ms in ((1, 0), (3, 10), (5, 40)):
        row.push(sequence, now_ms)
    row.flush(51)
    assert (row.heard, row.waits) == ([1, 3], True)
    row.flush(81)
    assert (row.heard, row.waits) == ([1, 3, 5], False)
    assert row.count("lost") == 2


def test_what_comes_after_it_was_given_up_is_late_once_and_never_heard() -> None:
    row = fed([1, 3, 2, 2, 3, 1], patience_ms=0)
    assert row.heard == [1, 3]
    assert (row.count("lost"), row.count("late")) == (1, 1)


@pytest.mark.parametrize(
    "sequences", [[1, 1, 2, 3, 4], [1, 3, 3, 2, 4], [1, 2, 3, 4, 2, 3], [1, 3, 2, 3, 4, 4]], ids=str
)
def test_a_packet_that_comes_twice_is_heard_once(sequences: list[int]) -> None:
    row = fed(sequences)
    assert row.heard == [1, 2, 3, 4]
    assert row.count("lost") == row.count("late") == 0


def test_numbers_wrap() -> None:
    row = fed([65533, 65535, 65534, 65536, 65538, 65537, 65539])
    assert row.heard == [65533, 65534, 65535, 0, 1, 2, 3]
    assert row.count("lost") == 0


def test_a_loss_across_the_wrap_is_counted_right() -> None:
    row = fed([65534, 65537], patience_ms=0)
    assert (row.heard, row.count("lost"), row.count("concealed")) == ([65534, 1], 2, 2)


@pytest.mark.parametrize("stray", [40_000, 62_000])
def test_one_stray_packet_from_far_away_is_not_believed(stray: int) -> None:
    row = fed([1, 2, stray, 3, stray, 4, stray + 2, 5])
    assert row.heard == [1, 2, 3, 4, 5]
    assert row.count("lost") == 0


@pytest.mark.parametrize(
    ("before", "jump"), [([1, 2, 4], 40_000), ([30_000, 30_001, 30_003], 20_000), ([3000, 3001], 2)], ids=str
)
def test_a_sender_that_starts_again_elsewhere_is_followed_from_its_first_packet(
    before: list[int], jump: int
) -> None:
    row = fed([*before, jump, jump + 1, jump + 2])
    assert row.heard == [*before, jump, jump + 1, jump + 2]
    assert (row.count("lost"), row.waits) == (0, False)


def test_a_new_agreement_of_the_source_takes_whatever_comes_next() -> None:
    row = fed([1, 3])
    forget_order(row.line)
    row.push(777)
    row.push(778)
    assert (row.heard, row.count("lost"), row.waits) == ([1, 777, 778], 0, False)


def test_no_more_than_the_capacity_ever_waits() -> None:
    row = Row()
    row.push(0)
    for sequence in range(2, 2000, 2):  # every other packet is missing, and no time passes
        row.push(sequence)
        assert row.count("held") < HELD
    assert row.heard == list(range(0, 2 * len(row.heard), 2))
    assert row.count("lost") == len(row.heard) - 1
    assert len(row.heard) + row.count("held") == 1000


def test_thirty_per_cent_loss_and_jitter_leave_order_and_a_true_count() -> None:
    rng = random.Random(11)
    arrivals = sorted((20 * i + rng.uniform(0, 60), 65000 + i) for i in range(5000) if rng.random() > 0.3)
    row = Row()
    for now_ms, sequence in arrivals:
        row.push(sequence, now_ms)
    row.flush(1e6)
    numbers = [(number - 65000) & 0xFFFF for number in row.heard]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + row.count("late") == len(arrivals)
    assert len(numbers) + row.count("lost") == numbers[-1] - numbers[0] + 1
    assert row.count("late") < 0.02 * len(arrivals)


# The ring of heard frames -----------------------------------------------------------------------------------


def drained(row: Row, now_ms: float) -> None:
    """The ticks that follow, until nothing waits."""
    for _ in range(10):
        if not row.waits:
            return
        row.flush(now_ms)
    raise AssertionError("packets wait for ever")


@pytest.mark.parametrize("ms", [20, 60, 180])
@pytest.mark.parametrize("first", [65_000, 65_520])
def test_a_jump_behind_many_packets_overruns_no_frame_and_loses_none(first: int, ms: int) -> None:
    """Where the sender jumps while 31 packets wait, what does not fit the ring follows in the next ticks."""
    waiting = range(first + 2, first + 1 + HELD)
    jump = (first & 0xFFFF) - 20_000
    row = fed([first, *reversed(waiting), jump], ms=ms)
    assert row.count("held") == HELD - 1
    row.push(jump + 1)
    assert row.most_made <= MOST
    drained(row, 1)
    assert row.most_made <= MOST
    row.push(jump + 2)
    assert row.numbers == [each & 0xFFFF for each in (first, *waiting, jump, jump + 1, jump + 2)]
    assert (row.count("lost"), row.waits) == (0, False)


@pytest.mark.parametrize("ms", [20, 60, 180])
def test_the_packet_that_was_missing_before_many_overruns_no_frame(ms: int) -> None:
    row = fed([0, *range(2, HELD + 1), 1], ms=ms)
    drained(row, 1)
    assert row.most_made <= MOST
    assert row.numbers == list(range(HELD + 1))


def test_a_packet_that_waits_for_room_and_comes_again_is_heard_once() -> None:
    row = fed([0, *range(2, HELD + 1), 1], ms=180)
    assert row.waits
    again = row.numbers[-1] + 1
    for sequence in (again, again + 1, HELD + 1):
        row.push(sequence)
    drained(row, 1)
    assert row.numbers == list(range(HELD + 2))
    assert row.count("lost") == 0


# Whatever arrives -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    start=st.integers(0, 65535),
    order=st.permutations(range(60)),
    copies=st.lists(st.integers(0, 2), min_size=60, max_size=60),
    reach=st.integers(0, 60),
    pace=st.tuples(st.sampled_from([20, 60, 180]), st.sampled_from([0, 1, 10])),
)
def test_permutations_with_losses_and_copies_are_heard_once_and_forwards(
    start: int, order: list[int], copies: list[int], reach: int, pace: tuple[int, int]
) -> None:
    """Each of 60 packets comes 0 to 2 times, at most `reach` places from its own."""
    arrivals = [
        number for number, _ in sorted(enumerate(order), key=lambda each: each[0] + each[1] * reach / 60)
        for _ in range(copies[number])
    ]  # fmt: skip
    ms, step_ms = pace
    row = Row(ms=ms)
    for place, number in enumerate(arrivals):
        row.push(start + number, place * step_ms)
    for _ in range(10):
        row.flush(10_000)
    assert not row.waits
    assert row.most_made <= MOST
    places = [(number - start) & 0xFFFF for number in row.numbers]
    assert places == sorted(set(places))
    assert set(places) <= set(arrivals)
    if places:
        assert len(places) + row.count("lost") == places[-1] - places[0] + 1


@settings(deadline=None)
@given(
    start=st.integers(0, 65535),
    moves=st.lists(st.tuples(st.integers(-130, 130), st.floats(0, 50)), max_size=200),
)
def test_any_walk_of_numbers_is_heard_forwards(start: int, moves: list[tuple[int, float]]) -> None:
    row, at, now_ms, jumps = Row(), start, 0.0, 0
    for move, wait_ms in moves:
        at, now_ms = at + move, now_ms + wait_ms
        before = row.count("restart")
        row.push(at % 0x10000, now_ms)
        jumps += row.count("restart") < 0 <= before
    row.flush(now_ms + 1000)
    assert not row.waits
    if not jumps:
        ahead = [(after - number) & 0xFFFF for number, after in pairwise(row.heard)]
        assert all(0 < each < 0x8000 for each in ahead)
        assert row.count("lost") == sum(ahead) - len(ahead)
