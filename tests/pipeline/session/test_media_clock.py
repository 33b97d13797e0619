"""The media clock against jitter, drift and jumps."""

from __future__ import annotations

import random

import pytest

from pipeline.session.kept_audio import MediaClock

RATE_HZ = 8000


def run(
    clock: MediaClock, seconds: float, *, start: int = 0, drift: float = 0.0, seed: int = 1
) -> tuple[int, float]:
    """Packets every 20 ms with up to 60 ms of jitter, one in ten without; a second of position is 1+drift
    s."""
    dice = random.Random(seed)
    position, sent = start, 100.0
    for index in range(int(seconds * 50)):
        position = start + index * 160
        sent = 100.0 + index * 0.02 * (1 + drift)
        clock.observe(position, sent + (0.0 if dice.random() < 0.1 else dice.uniform(0.0, 0.06)))
    return position, sent


def test_jitter_is_filtered_out() -> None:
    clock = MediaClock(RATE_HZ)
    position, sent = run(clock, 5)
    assert clock.time_of(position) == pytest.approx(sent, abs=0.0005)
    assert clock.time_of(position - 800) == pytest.approx(sent - 0.1, abs=0.0005)


@pytest.mark.parametrize("drift", [100e-6, -100e-6])
def test_a_drifting_clock_is_followed(drift: float) -> None:
    clock = MediaClock(RATE_HZ)
    position, sent = run(clock, 600, drift=drift)
    assert clock.time_of(position) == pytest.approx(sent, abs=0.0025)


def test_the_first_packet_may_be_late() -> None:
    clock = MediaClock(RATE_HZ)
    clock.observe(0, 100.2)
    clock.observe(160, 100.02)
    assert clock.time_of(0) == pytest.approx(100.0)


def test_a_second_of_late_packets_moves_nothing_whenever_it_comes() -> None:
    for begins in range(400, 700, 10):  # across the edge of a window
        clock = MediaClock(RATE_HZ)
        for index in range(begins + 50):
            clock.observe(index * 160, 100.0 + index * 0.02 + (0.3 if index >= begins else 0.0))
        assert clock.time_of(0) == pytest.approx(100.0)


def test_a_clock_that_stood_still_during_a_hold_begins_anew() -> None:
    clock = MediaClock(RATE_HZ)
    position, sent = run(clock, 25)
    clock.observe(position + 160, sent + 30.0)
    assert clock.time_of(position + 160) == pytest.approx(sent + 30.0)


def test_a_jump_ahead_of_the_far_ends_clock() -> None:
    clock = MediaClock(RATE_HZ)
    run(clock, 5)
    clock.observe(8_000_000, 200.0)
    assert clock.time_of(8_000_000) == pytest.approx(200.0)


def test_before_any_frame_nothing_is_known() -> None:
    assert MediaClock(RATE_HZ).time_of(0) == float("inf")
