"""Puts figures into English words."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


SMALL: Final = _listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
TENS: Final = _listed("zero ten twenty thirty forty fifty sixty seventy eighty ninety")
_SCALES: Final = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"))
_ORDINALS: Final = MappingProxyType(
    {
        "one": "first",
        "two": "second",
        "three": "third",
        "five": "fifth",
        "eight": "eighth",
        "nine": "ninth",
        "twelve": "twelfth",
    }
)
MONTHS: Final = _listed(
    "January February March April May June July August September October November December"
)

WEEKDAYS: Final = MappingProxyType(
    {name[:3].lower(): name for name in _listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")}
)

_CURRENCIES: Final = MappingProxyType(
    {
        "USD": ("dollar", "dollars", "cent", "cents"),
        "EUR": ("euro", "euros", "cent", "cents"),
        "GBP": ("pound", "pounds", "penny", "pence"),
        "SAR": ("riyal", "riyals", "halala", "halalas"),
        "QAR": ("riyal", "riyals", "dirham", "dirhams"),
        "AED": ("dirham", "dirhams", "fils", "fils"),
        "EGP": ("Egyptian pound", "Egyptian pounds", "piastre", "piastres"),
        "KWD": ("dinar", "dinars", "fils", "fils"),
        "JPY": ("yen", "yen", "", ""),
        "INR": ("rupee", "rupees", "paisa", "paise"),
    }
)
_UNITS: Final = MappingProxyType(
    {
        "km": ("kilometre", "kilometres"),
        "m": ("metre", "metres"),
        "cm": ("centimetre", "centimetres"),
        "mm": ("millimetre", "millimetres"),
        "mi": ("mile", "miles"),
        "ft": ("foot", "feet"),
        "kg": ("kilogram", "kilograms"),
        "g": ("gram", "grams"),
        "mg": ("milligram", "milligrams"),
        "lb": ("pound", "pounds"),
        "oz": ("ounce", "ounces"),
        "l": ("litre", "litres"),
        "ml": ("millilitre", "millilitres"),
        "km/h": ("kilometre per hour", "kilometres per hour"),
        "mph": ("mile per hour", "miles per hour"),
        "kwh": ("kilowatt hour", "kilowatt hours"),
        "in": ("inch", "inches"),
        "m²": ("square metre", "square metres"),
        "km²": ("square kilometre", "square kilometres"),
        "ft²": ("square foot", "square feet"),
        "m³": ("cubic metre", "cubic metres"),
        "mbps": ("megabit per second", "megabits per second"),
        "gbps": ("gigabit per second", "gigabits per second"),
        "mhz": ("megahertz", "megahertz"),
        "ghz": ("gigahertz", "gigahertz"),
        "kb": ("kilobyte", "kilobytes"),
        "mb": ("megabyte", "megabytes"),
        "gb": ("gigabyte", "gigabytes"),
        "tb": ("terabyte", "terabytes"),
        "hz": ("hertz", "hertz"),
        "khz": ("kilohertz", "kilohertz"),
        "°": ("degree", "degrees"),
        "°c": ("degree Celsius", "degrees Celsius"),
        "°f": ("degree Fahrenheit", "degrees Fahrenheit"),
        "h": ("hour", "hours"),
        "min": ("minute", "minutes"),
        "s": ("second", "seconds"),
        "ms": ("millisecond", "milliseconds"),
    }
)


class English:
    """Figures in English words; a `pipeline.text.spoken_forms.Reading`. `month_first`: 12/3 is the third of
    December."""

    _WORDS = MappingProxyType(
        {
            "dot": "dot", "at": "at", "dash": "dash", "underscore": "underscore", "slash": "slash",
            "colon": "colon", "plus": "plus", "minus": "minus", "point": "point", "percent": "percent",
            "and": "and", "number": "number", "to": "to", "equals": "equals", "less": "less than",
            "more": "more than", "most": "at most", "least": "at least", "about": "about",
            "plus_minus": "plus or minus", "times": "times", "fold": "times", "of": "out of", "per": "per",
            "star": "star",
        }
    )  # fmt: skip
    abbreviations = MappingProxyType(
        {
            "dr.": "Doctor", "mr.": "Mister", "mrs.": "Missus", "ms.": "Miz", "prof.": "Professor",
            "e.g.": "for example", "i.e.": "that is", "etc.": "and so on", "vs.": "versus",
            "approx.": "approximately", "a.m.": "AM", "p.m.": "PM", "ext.": "extension",
        }
    )  # fmt: skip

    def __init__(self, *, month_first: bool) -> None:
        self.month_first = month_first
        self.words = MappingProxyType({**self._WORDS, "hash": "pound" if month_first else "hash"})

    def cardinal(self, number: int) -> str:
        """Reads a whole number from 0 to 10**15 - 1."""
        for scale, name in _SCALES:
            if number >= scale:
                head, rest = divmod(number, scale)
                tail = f" {'and ' if rest < 100 else ''}{self.cardinal(rest)}" if rest else ""
                return f"{self.cardinal(head)} {name}{tail}"
        if number >= 100:
            head, rest = divmod(number, 100)
            return f"{SMALL[head]} hundred" + (f" and {self.cardinal(rest)}" if rest else "")
        if number >= 20:
            ten, unit = divmod(number, 10)
            return TENS[ten] + (f"-{SMALL[unit]}" if unit else "")
        return SMALL[number]

    def ordinal(self, number: int) -> str:
        """Reads an ordinal number below 10**15: 21 is "twenty-first"."""
        words = self.cardinal(number)
        cut = max(words.rfind(" "), words.rfind("-")) + 1
        last = words[cut:]
        ending = _ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
        return words[:cut] + ending

    def digits(self, figures: str) -> str:
        """Reads figures one by one: 15 is "one five"."""
        return " ".join(SMALL[int(figure)] for figure in figures)

    def year(self, year: int) -> str:
        """Reads a year, such as "twenty twenty-six" or "nineteen oh five"."""
        century, rest = divmod(year, 100)
        if not 1100 <= year < 2100 or 2000 <= year < 2010:
            return self.cardinal(year)
        if not rest:
            return f"{self.cardinal(century)} hundred"
        return f"{self.cardinal(century)} {'oh ' if rest < 10 else ''}{self.cardinal(rest)}"

    def decade(self, year: int, *, whole: bool) -> str:
        """Reads a decade: "nineteen nineties", "twenty tens", "nineteen hundreds". `whole`: with the century;
        else "nineties"."""
        century, ten = divmod(year, 100)
        if not ten:
            return f"{self.year(year)}s"
        plural = "tens" if ten == 10 else f"{TENS[ten // 10][:-1]}ies"
        return f"{self.cardinal(century)} {plural}" if whole else plural

    def weekday(self, short: str) -> str:
        """Names the day of the week, from "mon" to "sun"."""
        return WEEKDAYS[short]

    def date(self, day: int, month: int, year: int | None) -> str:
        """Reads a date: "March third, twenty twenty-six", or "the third of March, …" where days come
        first."""
        name, ordinal = MONTHS[month - 1], self.ordinal(day)
        spoken = f"{name} {ordinal}" if self.month_first else f"the {ordinal} of {name}"
        return spoken if year is None else f"{spoken}, {self.year(year)}"

    def time(self, hour: int, minute: int, half: str) -> str:
        """Reads a time of day. `half`: "am", "pm" or ""; with "", hours above 12 are read with "PM" and 0
        with "AM"."""
        if not half and (hour > 12 or hour == 0):
            half = "pm" if hour else "am"
        spoken = self.cardinal(hour % 12 or 12)
        if minute:
            spoken += f" {'oh ' if minute < 10 else ''}{self.cardinal(minute)}"
        elif not half:
            spoken += " o'clock"
        return f"{spoken} {half.upper()}" if half else spoken

    def money(self, whole: int, hundredths: int, currency: str) -> str:
        """Reads an amount, such as "three dollars and fifty cents"."""
        one, many, part, parts = _CURRENCIES[currency]
        spoken = f"{self.cardinal(whole)} {one if whole == 1 else many}"
        small = f"{self.cardinal(hundredths)} {part if hundredths == 1 else parts}"
        if not hundredths or not part:
            return spoken
        return f"{spoken} and {small}" if whole else small

    def currency(self, currency: str) -> str:
        """Names the currency after a large or a decimal amount ("million dollars")."""
        return _CURRENCIES[currency][1]

    def unit(self, number: str, unit: str, *, one: bool, whole: int | None) -> str:
        """Adds the unit to `number`, which is in words; `one`: in the singular."""
        return f"{number} {_UNITS[unit][0 if one else 1]}"

    def fraction(self, above: int, below: int) -> str:
        """Reads a fraction, such as "three quarters"; gives "" where there is no word."""
        names = {
            2: ("half", "halves"),
            3: ("third", "thirds"),
            4: ("quarter", "quarters"),
            8: ("eighth", "eighths"),
        }
        if below not in names or not 0 < above < below:
            return ""
        return f"{self.cardinal(above)} {names[below][0 if above == 1 else 1]}"

    def mixed(self, whole: int, part: str) -> str:
        """Reads a whole number with a fraction: 2 ½ is "two and one half"."""
        return f"{self.cardinal(whole)} and {part}"

    def pause(self, groups: Sequence[str]) -> str:
        """Joins groups of a number with commas, at which a voice pauses."""
        return ", ".join(groups)
