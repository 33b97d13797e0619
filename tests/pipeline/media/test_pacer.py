"""Does every stream get its packet each 20 ms, the first word at once, and nobody a burst?"""

from __future__ import annotations

from itertools import pairwise

import pytest

from pipeline.media.pacer import CATCH_UP_FRAMES, PERIOD_S, SLOT_S, SLOTS, Pace, Pacer
from tests.support.speech.media import VirtualClock


class Stream:
    """Counts its ticks; says what it is told to say."""

    def __init__(self, pacer: Pacer, clock: VirtualClock, *, silent: bool = False) -> None:
        self.times: list[float] = []
        self.silent = silent
        self.pace: Pace = pacer.add(self.tick, clock.time())

    def tick(self, now: float) -> None:
        self.times.append(now)
        if self.silent:
            self.pace.relax()

    @property
    def gaps_ms(self) -> list[float]:
        return [round((b - a) * 1000, 6) for a, b in pairwise(self.times)]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def pacer(clock: VirtualClock) -> Pacer:
    return Pacer(clock)


def test_a_stream_ticks_every_20_ms_without_drift(clock: VirtualClock, pacer: Pacer) -> None:
    stream = Stream(pacer, clock)
    clock.advance(600)
    assert len(stream.times) == pytest.approx(30_000, abs=1)
    assert (stream.times[-1] - stream.times[0]) / PERIOD_S == pytest.approx(len(stream.times) - 1, abs=1e-3)


def test_the_first_tick_comes_within_a_period(clock: VirtualClock, pacer: Pacer) -> None:
    for _ in range(8):
        clock.advance(0.0137)
        started = clock.time()
        stream = Stream(pacer, clock)
        clock.advance(PERIOD_S)
        assert started <= stream.times[0] <= started + PERIOD_S + 1e-9
        stream.pace.remove()


def test_streams_are_spread_evenly_over_the_slots(clock: VirtualClock, pacer: Pacer) -> None:
    streams = [Stream(pacer, clock) for _ in range(100)]
    clock.advance(PERIOD_S)
    moments = [round(stream.times[0] / SLOT_S) % SLOTS for stream in streams]
    assert sorted(moments.count(slot) for slot in range(SLOTS)) == [25, 25, 25, 25]


def test_places_of_streams_that_left_are_taken_first(clock: VirtualClock, pacer: Pacer) -> None:
    streams = [Stream(pacer, clock) for _ in range(2 * SLOTS)]
    for gone in (streams[1], streams[1 + SLOTS]):
        gone.pace.remove()
    clock.advance(PERIOD_S)
    newcomers = [Stream(pacer, clock) for _ in range(2)]
    clock.advance(PERIOD_S)
    slot_of_the_gone = round(streams[0].times[0] / SLOT_S + 1) % SLOTS
    assert [round(s.times[0] / SLOT_S) % SLOTS for s in newcomers] == [slot_of_the_gone] * 2


def test_one_timer_serves_all_and_none_is_left_without_streams(clock: VirtualClock, pacer: Pacer) -> None:
    streams = [Stream(pacer, clock) for _ in range(50)]
    clock.advance(1)
    assert clock.armed == 1
    assert len(pacer) == 50
    for stream in streams:
        stream.pace.remove()
        stream.pace.remove()
    counts = [len(stream.times) for stream in streams]
    clock.advance(1)
    assert [len(stream.times) for stream in streams] == counts
    assert clock.armed == 0
    assert len(pacer) == 0


def test_a_wake_ticks_at_once_and_the_next_follows_a_frame_later(clock: VirtualClock, pacer: Pacer) -> None:
    for after_ms in (0.5, 3.0, 7.5, 12.0, 19.5):
        stream = Stream(pacer, clock)
        clock.advance(0.1)
        clock.advance(stream.pace.due_s - clock.time())
        clock.advance(after_ms / 1000)
        ticks = len(stream.times)
        stream.pace.wake()
        assert len(stream.times) == ticks + 1
        assert stream.times[-1] == clock.time()
        woken_s = clock.time()
        clock.advance(PERIOD_S)
        assert PERIOD_S - SLOT_S - 1e-6 <= stream.times[-1] - woken_s <= PERIOD_S + 1e-6
        stream.pace.remove()


def test_the_lead_never_exceeds_a_frame(clock: VirtualClock, pacer: Pacer) -> None:
    stream = Stream(pacer, clock)
    clock.advance(1)
    ticks, started_s = len(stream.times), clock.time()
    for _ in range(40):
        clock.advance(0.001)
        stream.pace.wake()
        assert 0 <= stream.pace.lead_s <= PERIOD_S + 1e-9
    sent = len(stream.times) - ticks
    assert sent <= (clock.time() - started_s) / PERIOD_S + 2


def test_talking_keeps_the_lead_and_silence_gives_it_back_gently(clock: VirtualClock, pacer: Pacer) -> None:
    stream = Stream(pacer, clock)
    clock.advance(0.1)
    clock.advance(stream.pace.due_s - clock.time())
    clock.advance(0.001)
    stream.pace.wake()
    lead_s = stream.pace.lead_s
    assert lead_s > 0.015
    clock.advance(2)
    assert stream.pace.lead_s == lead_s
    stream.silent = True
    talked = len(stream.times)
    clock.advance(2)
    assert stream.pace.lead_s == 0
    assert max(stream.gaps_ms[talked:]) <= 21.0
    assert min(stream.gaps_ms[talked:]) >= 20.0 - 0.6  # wake-ups half a millisecond apart are one


def test_after_a_whole_day_of_short_answers_no_frame_is_missing(clock: VirtualClock, pacer: Pacer) -> None:
    stream = Stream(pacer, clock, silent=True)
    clock.advance(1)
    for _ in range(1000):
        clock.advance(1.2345)
        stream.pace.wake()
    clock.advance(2)
    elapsed_s = stream.times[-1] - stream.times[0]
    assert len(stream.times) - 1 == round(elapsed_s / PERIOD_S)


def test_a_short_stall_is_caught_up(clock: VirtualClock, pacer: Pacer) -> None:
    stream = Stream(pacer, clock)
    clock.advance(1)
    before = len(stream.times)
    clock.stall(2 * PERIOD_S)
    clock.advance(PERIOD_S)
    assert len(stream.times) == before + 3
    assert stream.pace.skipped == 0


def test_a_long_stall_is_skipped_and_counted_and_the_clock_stays(clock: VirtualClock, pacer: Pacer) -> None:
    stream = Stream(pacer, clock)
    clock.advance(1)
    before = list(stream.times)
    clock.stall(1.0)
    clock.advance(0.0)
    burst = stream.times[len(before) :]
    assert len(burst) == CATCH_UP_FRAMES
    assert len(stream.times) + stream.pace.skipped == len(before) + 50
    clock.advance(1)
    assert (stream.times[-1] - stream.times[0]) / PERIOD_S == pytest.approx(
        round((stream.times[-1] - stream.times[0]) / PERIOD_S), abs=1e-6
    )
    assert pacer.worst_late_s == pytest.approx(1.0, abs=PERIOD_S)


def test_a_tick_that_raises_does_not_silence_the_other_calls(clock: VirtualClock, pacer: Pacer) -> None:
    def broken(now: float) -> None:
        raise ZeroDivisionError

    pacer.add(broken, clock.time())
    stream = Stream(pacer, clock)
    raised = 0
    while len(stream.times) < 10:
        try:
            clock.advance(0.001)
        except ZeroDivisionError:
            raised += 1
    assert raised == pytest.approx(10, abs=1)


def test_a_stream_may_leave_within_its_own_tick(clock: VirtualClock, pacer: Pacer) -> None:
    times: list[float] = []

    def once(now: float) -> None:
        times.append(now)
        pace.remove()

    pace = pacer.add(once, clock.time())
    clock.advance(1)
    assert len(times) == 1
    pace.wake()
    assert len(times) == 1
    assert clock.armed == 0


def test_a_wake_within_the_own_tick_sends_nothing_twice(clock: VirtualClock, pacer: Pacer) -> None:
    times: list[float] = []

    def eager(now: float) -> None:
        times.append(now)
        pace.wake()

    pace = pacer.add(eager, clock.time())
    clock.advance(1)
    assert len(times) == pytest.approx(50, abs=1)


def test_one_stream_may_wake_another(clock: VirtualClock, pacer: Pacer) -> None:
    listener = Stream(pacer, clock)

    def relay(now: float) -> None:
        listener.pace.wake()

    pacer.add(relay, clock.time())
    clock.advance(1)
    assert len(listener.times) == pytest.approx(51, abs=2)
