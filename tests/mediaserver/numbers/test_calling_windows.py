"""Calling hours are the called party's: their zone, their days, their clock changes."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from mediaserver.numbers.calling_windows import next_open_ms, parse_window, zones_of

OFFICE = ("mon-fri 09:00-20:00", "sat 10:00-14:00")


def at(text: str, zone: str = "UTC") -> int:
    """A local time in milliseconds since 1970."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2027-01-15T09:00", "2027-01-15T09:00"),  # a Friday
        ("2027-01-15T08:59", "2027-01-15T09:00"),
        ("2027-01-15T19:59", "2027-01-15T19:59"),
        ("2027-01-15T20:00", "2027-01-16T10:00"),
        ("2027-01-16T14:00", "2027-01-18T09:00"),
        ("2027-01-17T12:00", "2027-01-18T09:00"),
    ],
)
def test_the_next_hour_at_which_an_office_may_be_called(now: str, opens: str) -> None:
    assert next_open_ms(OFFICE, ["Asia/Riyadh"], at(now, "Asia/Riyadh")) == at(opens, "Asia/Riyadh")


def test_without_windows_every_moment_is_good() -> None:
    assert next_open_ms((), ["UTC"], 123) == 123


def test_a_number_that_may_be_anywhere_waits_for_everywhere() -> None:
    zones = ["America/New_York", "America/Los_Angeles"]
    now = at("2027-01-15T09:30", "America/New_York")
    assert next_open_ms(("* 09:00-21:00",), zones, now) == at("2027-01-15T09:00", "America/Los_Angeles")
    evening = at("2027-01-15T19:00", "America/Los_Angeles")
    assert next_open_ms(("* 09:00-21:00",), zones, evening) == at("2027-01-16T09:00", "America/Los_Angeles")


def test_hours_that_never_come_together_never_open() -> None:
    assert (
        next_open_ms(("* 09:00-10:00",), ["Asia/Tokyo", "America/New_York"], at("2027-01-15T00:00")) is None
    )


def test_the_night_on_which_the_clock_changes() -> None:
    # 14 March 2027, 02:00 becomes 03:00.
    before = at("2027-03-13T23:00", "America/New_York")
    opens = next_open_ms(("sun 09:00-17:00",), ["America/New_York"], before)
    assert opens == at("2027-03-14T09:00", "America/New_York")
    assert (opens - before) / 3_600_000 == 9


@pytest.mark.parametrize(
    ("number", "zones"),
    [
        ("+966500000001", ("Asia/Riyadh",)),
        ("+14155550123", ("America/Los_Angeles",)),
        ("+441632960000", ("Europe/London",)),  # nothing is known of it but its country
    ],
)
def test_a_number_tells_its_time_zone(number: str, zones: tuple[str, ...]) -> None:
    assert set(zones) <= set(zones_of(number))


def test_a_number_of_no_country_takes_the_companys() -> None:
    assert zones_of("+88213000000", "SA") == ("Asia/Riyadh",)
    assert zones_of("+88213000000") == ("UTC",)


def test_a_toll_free_number_may_be_anywhere_in_its_country() -> None:
    zones = zones_of("+18005551234")
    assert {"America/New_York", "America/Los_Angeles"} <= set(zones)
    opens = next_open_ms(("* 08:00-21:00",), zones, at("2027-01-15T12:00", "America/New_York"))
    assert opens is not None


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("* 08:00-24:00", set(range(7))),
        ("fri-mon 08:00-09:00", {4, 5, 6, 0}),
        ("mon,wed 08:00-09:00", {0, 2}),
    ],
)
def test_days_are_written_as_people_do(text: str, days: set[int]) -> None:
    assert parse_window(text).days == days


@pytest.mark.parametrize(
    "text",
    [
        "",
        "09:00-20:00",
        "mon 9-20",
        "monday 09:00-20:00",
        "mon 20:00-09:00",
        "mon 09:00-25:00",
        "mon 09:60-10:00",
    ],
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_window(text)
