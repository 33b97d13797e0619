"""The circuit breaker: time is a number here."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.engines.breaker import Breaker, BreakerSettings, BreakerState

SETTINGS = BreakerSettings(failures=3, pause_s=5, longest_s=20, probe_s=30)


def test_it_opens_after_failures_in_a_row_and_not_before() -> None:
    breaker = Breaker(SETTINGS)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.failed(0.0)
        assert breaker.admits(0.0)
        breaker.succeeded()
    for _ in range(3):
        assert breaker.admits(1.0)
        breaker.failed(1.0)
    assert not breaker.admits(1.0)
    assert breaker.is_open(5.9)


def test_one_missed_deadline_is_enough() -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0, slow=True)
    assert breaker.is_open(4.9)
    assert not breaker.is_open(5.0)


def test_an_engine_gets_the_peace_that_it_asks_for() -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0, rest_s=100)
    assert not breaker.admits(99.9)
    assert breaker.admits(100.0)


def test_after_the_pause_one_request_is_let_through_and_decides() -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0, slow=True)
    assert breaker.admits(5.0)
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.admits(5.1)
    assert breaker.is_open(5.1)
    breaker.succeeded()
    assert breaker.admits(5.2)
    assert breaker.admits(5.2)


def test_the_pause_doubles_up_to_its_limit_and_is_short_again_after_a_success() -> None:
    breaker, now, pauses = Breaker(SETTINGS), 0.0, []
    for _ in range(5):
        breaker.failed(now)
        breaker.failed(now)
        breaker.failed(now)
        began = now
        while not breaker.admits(now):
            now += 0.5
        pauses.append(now - began)
    assert pauses == [5, 10, 20, 20, 20]
    breaker.succeeded()
    breaker.failed(now, slow=True)
    assert not breaker.admits(now + 4.9)
    assert breaker.admits(now + 5)


def test_a_probe_that_never_comes_back_is_given_up() -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0, slow=True)
    assert breaker.admits(5.0)
    assert not breaker.admits(34.9)
    assert breaker.admits(35.0)


def test_a_probe_that_was_abandoned_leaves_room_for_the_next() -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0, slow=True)
    assert breaker.admits(5.0)
    breaker.abandoned()
    assert breaker.admits(5.1)


def test_late_answers_of_requests_sent_before() -> None:
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0, slow=True)
    breaker.failed(4.0, slow=True)
    assert breaker.admits(5.0)  # the second failure did not begin the pause anew
    breaker = Breaker(SETTINGS)
    breaker.failed(0.0, slow=True)
    breaker.succeeded()
    assert breaker.admits(0.1)


SIGNS = st.sampled_from(["ask", "succeed", "fail", "slow", "abandon"])


@given(st.lists(st.tuples(SIGNS, st.floats(0, 40)), max_size=60))
def test_whatever_happens_it_asks_again_in_the_end(steps: list[tuple[str, float]]) -> None:
    breaker, now = Breaker(SETTINGS), 0.0
    for sign, later in steps:
        now += later
        if sign == "ask":
            assert breaker.is_open(now) is not breaker.admits(now)
        elif sign == "succeed":
            breaker.succeeded()
            assert breaker.state is BreakerState.CLOSED
        elif sign == "abandon":
            breaker.abandoned()
        else:
            breaker.failed(now, slow=sign == "slow")
    assert breaker.admits(now + max(SETTINGS.longest_s, SETTINGS.probe_s))
