"""Calling windows: hours of the week in which people may be called, in the called party's own local time.

A number tells its time zone, often only roughly: a toll-free or a mobile number may be in any zone of its
country. Such a number may be called only while a window is open in *all* of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import product
from zoneinfo import ZoneInfo

import phonenumbers
from phonenumbers import timezone

from mediaserver.numbers.e164 import calling_code

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_TEXT = re.compile(r"(?P<days>[a-z,*-]+) (?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)")

_DAY_MINUTES = 24 * 60

_LOOK_AHEAD_DAYS = 8
"""Days looked ahead, a week and a day: every window recurs within them, whatever clock changes there are."""

_UNKNOWN = "Etc/Unknown"


@dataclass(frozen=True, slots=True)
class Window:
    """A window on some days, in minutes of the day; `days` are counted from Monday, 0."""

    days: frozenset[int]
    start_min: int
    end_min: int

    def holds(self, moment: datetime) -> bool:
        """Whether the local time `moment` lies in the window."""
        minute = moment.hour * 60 + moment.minute
        return moment.weekday() in self.days and self.start_min <= minute < self.end_min


@lru_cache(maxsize=1024)
def parse_window(text: str) -> Window:
    """Parses "mon-fri 09:00-20:00", "sat,sun 10:00-14:00" or "* 08:00-24:00". Raises ValueError."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError('must be days and hours such as "mon-fri 09:00-20:00" or "* 08:00-21:00"')
    window = Window(_days(match["days"]), _minutes(match["start"]), _minutes(match["end"]))
    if window.start_min >= window.end_min:
        raise ValueError(f"{match['start']} must be before {match['end']}")
    return window


def _days(text: str) -> frozenset[int]:
    if text == "*":
        return frozenset(range(7))
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            raise ValueError(f"{part!r}: days are {', '.join(DAYS)}")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        days.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return frozenset(days)


def _minutes(text: str) -> int:
    hours, minutes = int(text[:2]), int(text[3:])
    total = hours * 60 + minutes
    if minutes > 59 or total > _DAY_MINUTES:
        raise ValueError(f"{text} is no time of day")
    return total


@lru_cache(maxsize=4096)
def zones_of(number: str, country: str = "") -> tuple[str, ...]:
    """Returns the time zones that an E.164 `number` may be in; those of `country` where the number tells
    none."""
    parsed = phonenumbers.parse(number)
    for candidate in (parsed, _example(parsed.country_code or 0), _example_of(country)):
        zones = timezone.time_zones_for_number(candidate) if candidate is not None else ()
        if zones and zones != (_UNKNOWN,):
            return tuple(zones)
    return ("UTC",)


def local_zones(number: str, country: str) -> tuple[str, ...]:
    """Returns the time zones of an E.164 `number`, or of `country` where `number` is ""."""
    if number:
        return zones_of(number, country)
    example = _example_of(country)
    zones = timezone.time_zones_for_number(example) if example is not None else ()
    return tuple(zones) if zones and zones != (_UNKNOWN,) else ("UTC",)


def overlap(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether a moment of the week is in a window of both, by the same clock."""
    pairs = product(map(parse_window, one), map(parse_window, other))
    return any(
        mine.days & theirs.days and mine.start_min < theirs.end_min and theirs.start_min < mine.end_min
        for mine, theirs in pairs
    )


def _example(country_code: int) -> phonenumbers.PhoneNumber | None:
    return _example_of(phonenumbers.region_code_for_country_code(country_code))


def _example_of(region: str) -> phonenumbers.PhoneNumber | None:
    return phonenumbers.example_number(region) if region and calling_code(region) != "0" else None


def next_open_ms(windows: Sequence[str], zones: Iterable[str], at_ms: int) -> int | None:
    """Returns the first moment from `at_ms` on at which a window is open in all `zones`: `at_ms` itself where
    one is, None where none ever is. Without windows every moment is open."""
    if not windows:
        return at_ms
    parsed = [parse_window(text) for text in windows]
    clocks = _clocks(zones, at_ms)
    openings = {opening for clock in clocks for opening in _openings(parsed, clock, at_ms)}
    moments = sorted({at_ms, *(moment for moment in openings if moment > at_ms)})
    return next((moment for moment in moments if _open(parsed, clocks, moment)), None)


def _clocks(zones: Iterable[str], at_ms: int) -> list[ZoneInfo]:
    """Returns one zone for each group of zones whose clocks agree until the end of the days looked at."""
    end_ms = at_ms + _LOOK_AHEAD_DAYS * _DAY_MINUTES * 60_000
    different: dict[tuple[timedelta | None, timedelta | None], ZoneInfo] = {}
    for name in zones:
        clock = ZoneInfo(name)
        different.setdefault((_local(at_ms, clock).utcoffset(), _local(end_ms, clock).utcoffset()), clock)
    return list(different.values())


def _openings(windows: Sequence[Window], clock: ZoneInfo, at_ms: int) -> Iterable[int]:
    midnight = _local(at_ms, clock).replace(hour=0, minute=0, second=0, microsecond=0)
    for ahead in range(_LOOK_AHEAD_DAYS + 1):
        day = midnight + timedelta(days=ahead)
        for window in windows:
            if day.weekday() in window.days:
                opening = day.replace(hour=window.start_min // 60, minute=window.start_min % 60)
                yield int(opening.timestamp() * 1000)


def _open(windows: Sequence[Window], clocks: Sequence[ZoneInfo], at_ms: int) -> bool:
    return all(any(window.holds(_local(at_ms, clock)) for window in windows) for clock in clocks)


def _local(at_ms: int, clock: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, clock)
