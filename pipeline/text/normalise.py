"""Puts written text into spoken words: figures, dates, money, addresses and abbreviations.

Voices differ in how they read "$3.50" and "3/4/2026", and the transcript must have the words that the caller
heard. The text is therefore put into words before a voice gets it.

`verbalize` makes one pass with one expression whose repetitions are all bounded, so the time is linear in the
text. Text without figures and signs is returned unchanged, and so is the result of an earlier call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pipeline.text.arabic import Arabic
from pipeline.text.codes import code, email, keys, phone, url, vanity
from pipeline.text.english import English
from pipeline.text.patterns import (
    AMOUNT,
    ANY,
    ENDINGS,
    FIGURES,
    LARGE,
    MONTHS,
    PLAIN,
    SHORT,
    SIGNS,
    UNIT_NAMES,
    VULGAR,
    WEEKDAYS,
)
from pipeline.text.spoken_forms import Reading

_READINGS: Final[Mapping[str, Reading]] = MappingProxyType(
    {"en": English(month_first=True), "en-gb": English(month_first=False), "ar": Arabic()}
)
_DAY_FIRST: Final = frozenset(("en-gb", "en-au", "en-ie", "en-in", "en-nz", "en-za", "en-ae", "en-sa"))

_NUMBER: Final = re.compile(AMOUNT)
_RUNS: Final = re.compile(r"\d+")
_TOO_LARGE: Final = 10**15

_TITLES: Final = frozenset(("dr.", "mr.", "mrs.", "ms.", "prof.", "د.", "أ.", "م."))
_SENTENCE_ENDS: Final = re.compile(r"\s*$|\s+[A-Z]")


def verbalize(text: str, language: str) -> str:
    """Puts figures, signs and abbreviations of `text` into words of `language` ("en", "en-GB", "ar"). For
    other languages only converts Arabic figures to ASCII ones. Never raises."""
    reading = _reading(language)
    if reading is None:
        return text.translate(FIGURES)
    plain = PLAIN.fullmatch(text) is not None and "www." not in text and "://" not in text
    if plain and WEEKDAYS.search(text) is None and ("." not in text or _only_ends_sentences(text)):
        return text
    figures = text.translate(FIGURES)
    return ANY.sub(lambda match: _read(match, reading), figures)


def _only_ends_sentences(text: str) -> bool:
    """Whether no dot of a text without figures and signs belongs to an address or an abbreviation; found out
    in a tenth of the time that `ANY` takes to match nothing."""
    return text.isascii() and ENDINGS.fullmatch(text) is not None and SHORT.search(text) is None


def _reading(language: str) -> Reading | None:
    name = language.lower().replace("_", "-")
    return _READINGS.get("en-gb" if name in _DAY_FIRST else name.split("-")[0])


def _read(match: re.Match[str], reading: Reading) -> str:
    """The words of a match, with the spaces that separate them from the text around; keeps a dot that ends
    the sentence."""
    written, kind = match[0], match.lastgroup or ""
    spoken = _READERS[kind](written, reading)
    if not spoken:
        return ""
    if written.endswith(".") and kind in ("short", "time") and written.lower() not in _TITLES:
        spoken += "." if _SENTENCE_ENDS.match(match.string, match.end()) else ""
    before = match.string[match.start() - 1 : match.start()]
    after = match.string[match.end() : match.end() + 1]
    apart = before.isalnum() or before in ("-", "–") or kind in ("until", "per")
    if kind in ("until", "span"):  # the text after a dash gets its own space
        return f"{' ' * apart}{spoken}"
    return f"{' ' * apart}{spoken}{' ' * after.isalnum()}"


def _iso(written: str, reading: Reading) -> str:
    year, month, day, *clock = (int(run) for run in _RUNS.findall(written))
    spoken = _date(day, month, year, reading)
    if spoken and clock:
        hour, minute = clock[:2]
        time = reading.time(hour, minute, "") if hour < 24 and minute < 60 else ""
        return f"{spoken}, {time}" if time else spoken
    return spoken or phone(written, reading)


def _slashed(written: str, reading: Reading) -> str:
    first, second, *years = (int(run) for run in _RUNS.findall(written))
    year = next((each if each > 99 else 2000 + each for each in years), None)
    month_first = reading.month_first and "/" in written
    if first > 12 or second > 12:
        month_first = second > 12
    day, month = (second, first) if month_first else (first, second)
    return _date(day, month, year, reading) or _plainly(written, reading)


def _date(day: int, month: int, year: int | None, reading: Reading) -> str:
    """Reads a date; "" for an invalid one."""
    return reading.date(day, month, year) if 1 <= month <= 12 and 1 <= day <= 31 else ""


def _named_date(written: str, reading: Reading) -> str:
    numbers = [int(run) for run in _RUNS.findall(written)]
    word = next(word for word in re.findall(r"[^\W\d]+", written) if word.lower() in MONTHS)
    year = numbers[1] if len(numbers) > 1 else None
    tail = "." if written.endswith(".") else ""
    return (_date(numbers[0], MONTHS[word.lower()], year, reading) or _plainly(written, reading)) + tail


def _days(written: str, reading: Reading) -> str:
    """ "January 5-7, 2026", "5-7 January"."""
    first, last, *years = (int(run) for run in _RUNS.findall(written))
    word = next(word for word in re.findall(r"[^\W\d]+", written) if word.lower() in MONTHS)
    month = MONTHS[word.lower()]
    begin, end = _date(first, month, None, reading), _date(last, month, next(iter(years), None), reading)
    return f"{begin} {reading.words['to']} {end}" if begin and end else _plainly(written, reading)


def _european(written: str, reading: Reading) -> str:
    """Reads a number with a point between thousands and a comma before decimals."""
    plain = written.replace(".", "").replace(",", ".")
    return _money(plain, reading) if "€" in plain else _number(plain, reading)


def _span(written: str, reading: Reading) -> str:
    first = written.rstrip().rstrip("-–").rstrip()
    if first[0] in SIGNS:
        return f"{_money(first, reading)} {reading.words['to']}"
    said = _time(first, reading) if ":" in first else _number(first, reading)
    return f"{said} {reading.words['to']}"


def _until(written: str, reading: Reading) -> str:
    return reading.words["to"]


def _decade(written: str, reading: Reading) -> str:
    year = int(_RUNS.findall(written)[0])
    return reading.decade(year, whole=year >= 100)


def _weekdays(written: str, reading: Reading) -> str:
    first, last = (reading.weekday(day[:3].lower()) for day in re.findall(r"[A-Z][a-z]+", written))
    return f"{first} {reading.words['to']} {last}"


_MORNING: Final = ("a", "ص")


def _time(written: str, reading: Reading) -> str:
    hour, minute, *_ = (*(int(run) for run in _RUNS.findall(written)), 0)
    letters = re.sub(r"^.*\d\s*", "", written, flags=re.DOTALL).lower()
    half = "" if not letters else "am" if letters.startswith(_MORNING) else "pm"
    if hour > 24 or minute > 59 or (half and not 1 <= hour <= 12 and hour < 13):
        return _plainly(written, reading)
    return reading.time(hour % 24, minute, half)


def _duration(written: str, reading: Reading) -> str:
    """ "1h30m", "5'10\""."""
    units = ("ft", "in") if "h" not in written.lower() else ("h", "min")
    counts = [int(run) for run in _RUNS.findall(written)]
    return " ".join(
        reading.unit(reading.cardinal(count), unit, one=count == 1, whole=count)
        for count, unit in zip(counts, units, strict=True)
    )


def _money(written: str, reading: Reading) -> str:
    if written.startswith("-"):
        return f"{reading.words['minus']} {_money(written[1:], reading)}"
    if written.endswith("¢"):
        return reading.money(0, int(written.rstrip("¢")), "USD")
    amount = _NUMBER.search(written)
    assert amount is not None
    beside = (written[: amount.start()] + " " + written[amount.end() :]).lower().split()
    names = [part for piece in beside for part in (piece, piece[-1:], piece[:1])]
    currency = next(SIGNS[name] for name in names if name in SIGNS)
    bare = [piece.strip("$€£¥₹﷼") for piece in beside]
    large = next((LARGE[piece] for piece in bare if piece in LARGE), 1)
    whole, hundredths = _split(amount[0])
    if len(amount[0].partition(".")[2]) > 2 or whole * large >= _TOO_LARGE or (large > 1 and hundredths):
        scale = f" {reading.cardinal(large).split(' ')[-1]}" if large > 1 else ""
        return f"{_number(amount[0], reading)}{scale} {reading.currency(currency)}"
    return reading.money(whole * large, hundredths, currency)


def _split(amount: str) -> tuple[int, int]:
    whole, _, fraction = amount.replace(",", "").partition(".")
    return int(whole or 0), int(f"{fraction}00"[:2])


def _percent(written: str, reading: Reading) -> str:
    return f"{_number(written.rstrip('%').rstrip(), reading)} {reading.words['percent']}"


def _network(written: str, reading: Reading) -> str:
    return f"{reading.cardinal(int(written[0]))} G"


def _ordinal(written: str, reading: Reading) -> str:
    number = int(_RUNS.findall(written)[0])
    return reading.ordinal(number)


def _unit(written: str, reading: Reading) -> str:
    if written.startswith("-"):
        return f"{reading.words['minus']} {_unit(written[1:], reading)}"
    amount = _NUMBER.match(written)
    assert amount is not None
    unit = UNIT_NAMES[written[amount.end() :].strip().lower()]
    figures = amount[0].replace(",", "")
    whole = int(figures) if "." not in figures else None
    return reading.unit(_number(amount[0], reading), unit, one=figures == "1", whole=whole)


def _version(written: str, reading: Reading) -> str:
    numbers = (reading.cardinal(int(run)) for run in _RUNS.findall(written))
    return f" {reading.words['dot']} ".join(numbers)


def _scaled(written: str, reading: Reading) -> str:
    million = reading.cardinal(10**6).split(" ")[-1]
    return f"{_number(written.rstrip('M').rstrip(), reading)} {million}"


def _of(written: str, reading: Reading) -> str:
    """ "8/10", "4.5/5"."""
    value, _, best = written.partition("/")
    return f"{_number(value, reading)} {reading.words['of']} {_number(best, reading)}"


def _fraction(written: str, reading: Reading) -> str:
    above, below, *more = (int(run) for run in written.split("/"))
    if (above, below) == (24, 7):
        always = f"{reading.cardinal(24)} {reading.cardinal(7)}"
        return " ".join((always, *map(reading.cardinal, more)))
    if above == below:
        return f"{reading.cardinal(above)} {reading.cardinal(below)}"
    if written.startswith("0"):
        return _slashed(written, reading)
    return reading.fraction(above, below) or (
        f"{reading.cardinal(above)} {reading.words['slash']} {reading.cardinal(below)}"
    )


def _mixed(written: str, reading: Reading) -> str:
    """ "2 1/2", "3½", "½"."""
    glyph = written[-1]
    whole, part = (written[:-1], VULGAR[glyph]) if glyph in VULGAR else written.rsplit(None, 1)
    said = _fraction(part, reading)
    return reading.mixed(int(whole), said) if whole.strip() else said


def _ratio(written: str, reading: Reading) -> str:
    return f" {reading.words['to']} ".join(_number(run, reading) for run in _RUNS.findall(written))


def _times(written: str, reading: Reading) -> str:
    return f"{_number(written.rstrip('xX×'), reading)} {reading.words['fold']}"


_SHORT_SPANS: Final = MappingProxyType(
    {"mo": "month", "hr": "hour", "wk": "week", "yr": "year", "min": "minute"}
)


def _per(written: str, reading: Reading) -> str:
    name = written.strip("/ ")
    return f"{reading.words['per']} {_SHORT_SPANS.get(name.lower(), name)}"


def _range(written: str, reading: Reading) -> str:
    runs = _RUNS.findall(written)
    years = all(len(run) == 4 and 1500 <= int(run) < 2100 for run in runs)
    said = reading.year if years else reading.cardinal
    return f" {reading.words['to']} ".join(said(int(run)) for run in runs)


def _year(written: str, reading: Reading) -> str:
    return f"{written[:-4]}{reading.year(int(written[-4:]))}"


def _hash(written: str, reading: Reading) -> str:
    return f"{reading.words['number']} {_number(_RUNS.findall(written)[0], reading)}"


def _number(written: str, reading: Reading) -> str:
    sign, figures = written.startswith("-"), written.lstrip("-").replace(",", "")
    whole, _, fraction = figures.partition(".")
    whole = whole or "0"
    spoken = (
        reading.digits(whole)
        if len(whole) > 15 or (len(whole) > 1 and whole.startswith("0"))
        else reading.cardinal(int(whole))
    )
    if fraction:
        spoken += f" {reading.words['point']} {reading.digits(fraction)}"
    return f"{reading.words['minus']} {spoken}" if sign else spoken


_SIGNS: Final = MappingProxyType(
    {
        "&": "and", "+": "plus", "=": "equals", "@": "at", "<": "less", ">": "more", "≤": "most",
        "<=": "most", "≥": "least", ">=": "least", "±": "plus_minus", "≈": "about", "~": "about",
        "#": "hash",
        "№": "number",
    }
)  # fmt: skip


def _sign(written: str, reading: Reading) -> str:
    if written == "&" and reading.words["and"] == "و":
        return "و"
    return reading.words[_SIGNS[written]] if written in _SIGNS else ""


def _by(written: str, reading: Reading) -> str:
    return reading.words["times"]


def _star(written: str, reading: Reading) -> str:
    return reading.words["star"]


def _short(written: str, reading: Reading) -> str:
    return reading.abbreviations.get(written.lower(), written)


def _plainly(written: str, reading: Reading) -> str:
    """Reads each run of figures as a number; the text between is unchanged."""
    return _RUNS.sub(lambda run: _number(run[0], reading), written)


_READERS: Final[Mapping[str, Callable[[str, Reading], str]]] = MappingProxyType(
    {
        "email": email,
        "url": url,
        "iso": _iso,
        "slashed": _slashed,
        "vanity": vanity,
        "grouped": phone,
        "until": _until,
        "european": _european,
        "span": _span,
        "decade": _decade,
        "weekdays": _weekdays,
        "days": _days,
        "day_month": _named_date,
        "month_day": _named_date,
        "time": _time,
        "money": _money,
        "percent": _percent,
        "phone": phone,
        "code": code,
        "keys": keys,
        "network": _network,
        "duration": _duration,
        "ordinal": _ordinal,
        "unit": _unit,
        "version": _version,
        "scaled": _scaled,
        "mixed": _mixed,
        "of": _of,
        "fraction": _fraction,
        "ratio": _ratio,
        "times": _times,
        "per": _per,
        "range": _range,
        "year": _year,
        "hash": _hash,
        "number": _number,
        "by": _by,
        "star": _star,
        "sign": _sign,
        "short": _short,
    }
)
