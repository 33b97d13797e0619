"""How much one caller may ask for."""

from __future__ import annotations

import pytest

from mediaserver.admission.rate_limits import BURST_S, CALLERS_LIMIT, Places, RateLimit
from mediaserver.errors import TooMany


def test_a_caller_gets_a_burst_and_then_its_rate() -> None:
    limit = RateLimit(60)
    assert [limit.take("a", 100.0) for _ in range(BURST_S)] == [0.0] * BURST_S
    wait_s = limit.take("a", 100.0)
    assert 0 < wait_s <= 1.0
    assert limit.take("a", 100.0 + wait_s - 0.01) > 0
    assert limit.take("a", 100.0 + wait_s + 0.01) == 0.0
    assert limit.take("b", 100.0) == 0.0


def test_over_a_long_time_it_is_the_rate() -> None:
    limit = RateLimit(30)
    passed = sum(limit.take("a", step / 10) == 0.0 for step in range(6000))  # ten minutes
    assert 300 <= passed <= 300 + 30 * BURST_S / 60 + 1


def test_a_rate_below_one_in_a_burst_still_lets_one_through() -> None:
    limit = RateLimit(1)
    assert limit.take("a", 0.0) == 0.0
    assert limit.take("a", 1.0) == pytest.approx(59.0)


def test_a_flood_of_callers_is_forgotten_and_the_busy_one_is_not() -> None:
    limit = RateLimit(1)
    limit.take("busy", 0.0)
    for number in range(CALLERS_LIMIT - 1):
        limit.take(str(number), 1.0)
    assert limit.take("busy", 2.0) > 0  # refused, and seen: it is not the quietest now
    for number in range(CALLERS_LIMIT - 1):
        limit.take(f"more {number}", 3.0)
    assert limit.take("busy", 4.0) > 0


def test_places_are_given_back_also_when_a_request_fails() -> None:
    places = Places(2)
    with (
        places.taken("a"),
        places.taken("a"),
        places.taken("b"),
        pytest.raises(TooMany),
        places.taken("a"),
    ):
        pass
    with pytest.raises(ValueError, match="failed"), places.taken("a"):
        raise ValueError("failed")
    with places.taken("a"), places.taken("a"):
        pass
