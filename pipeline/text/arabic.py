"""Puts figures into words of standard Arabic, with the agreement of numbers and nouns.

From three to ten, the number has the opposite gender of its noun; one and two follow the noun. The noun is
plural after three to ten, an indefinite accusative after eleven to ninety-nine, and singular after a hundred.
Voices read text without vowel signs, so the case of a number is written only where letters show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_MASCULINE: Final = _listed("صفر واحد اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة")
_FEMININE: Final = _listed("صفر واحدة اثنتان ثلاث أربع خمس ست سبع ثمان تسع عشر")
_TENS: Final = _listed("- - عشرون ثلاثون أربعون خمسون ستون سبعون ثمانون تسعون")
_HUNDREDS: Final = _listed("- مئة مئتان ثلاثمئة أربعمئة خمسمئة ستمئة سبعمئة ثمانمئة تسعمئة")
_DAYS: Final = _listed("الأول الثاني الثالث الرابع الخامس السادس السابع الثامن التاسع العاشر")
_HOURS: Final = (
    "الواحدة", "الثانية", "الثالثة", "الرابعة", "الخامسة", "السادسة", "السابعة", "الثامنة", "التاسعة",
    "العاشرة", "الحادية عشرة", "الثانية عشرة",
)  # fmt: skip
MONTHS: Final = _listed("يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر")


_WEEKDAYS: Final = MappingProxyType(
    dict(
        zip(
            _listed("sun mon tue wed thu fri sat"),
            _listed("الأحد الاثنين الثلاثاء الأربعاء الخميس الجمعة السبت"),
            strict=True,
        )
    )
)


@dataclass(frozen=True, slots=True)
class _Noun:
    """The forms of a counted noun: for one, two, three to ten, and eleven and more."""

    one: str
    two: str
    few: str
    many: str
    feminine: bool = False


def _fixed(word: str) -> _Noun:
    """A foreign word, the same in all forms."""
    return _Noun(word, word, word, word)


_THOUSAND: Final = _Noun("ألف", "ألفان", "آلاف", "ألفاً")
_SCALES: Final = (
    (10**12, _Noun("تريليون", "تريليونان", "تريليونات", "تريليوناً")),
    (10**9, _Noun("مليار", "ملياران", "مليارات", "ملياراً")),
    (10**6, _Noun("مليون", "مليونان", "ملايين", "مليوناً")),
    (1000, _THOUSAND),
)
_RIYAL: Final = _Noun("ريال", "ريالان", "ريالات", "ريالاً")
_DIRHAM: Final = _Noun("درهم", "درهمان", "دراهم", "درهماً")
_CENT: Final = _Noun("سنت", "سنتان", "سنتات", "سنتاً")
_HALALA: Final = _Noun("هللة", "هللتان", "هللات", "هللة", feminine=True)
_PIASTRE: Final = _Noun("قرش", "قرشان", "قروش", "قرشاً")
_FILS: Final = _Noun("فلس", "فلسان", "فلوس", "فلساً")
_MINUTE: Final = _Noun("دقيقة", "دقيقتان", "دقائق", "دقيقة", feminine=True)

_CURRENCIES: Final = MappingProxyType(
    {
        "USD": (_Noun("دولار", "دولاران", "دولارات", "دولاراً"), _CENT),
        "EUR": (_fixed("يورو"), _CENT),
        "GBP": (_Noun("جنيه إسترليني", "جنيهان إسترلينيان", "جنيهات إسترلينية", "جنيهاً إسترلينياً"),
                _Noun("بنس", "بنسان", "بنسات", "بنساً")),
        "SAR": (_RIYAL, _HALALA),
        "QAR": (_RIYAL, _DIRHAM),
        "AED": (_DIRHAM, _FILS),
        "EGP": (_Noun("جنيه", "جنيهان", "جنيهات", "جنيهاً"), _PIASTRE),
        "KWD": (_Noun("دينار", "ديناران", "دنانير", "ديناراً"), _FILS),
        "JPY": (_fixed("ين"), None),
        "INR": (_Noun("روبية", "روبيتان", "روبيات", "روبية", feminine=True), None),
    }
)  # fmt: skip
_METRE: Final = _Noun("متر", "متران", "أمتار", "متراً")
_METRES: Final = _Noun("متر", "متران", "مترات", "متراً")
_GRAM: Final = _Noun("غرام", "غرامان", "غرامات", "غراماً")
_DEGREE: Final = _Noun("درجة", "درجتان", "درجات", "درجة", feminine=True)
_MILE: Final = _Noun("ميل", "ميلان", "أميال", "ميلاً")


def _of(noun: _Noun, *, before: str = "", after: str = "") -> _Noun:
    """A compound ("كيلومتر", "درجة مئوية")."""
    one, two, few, many = (before + word + after for word in (noun.one, noun.two, noun.few, noun.many))
    return _Noun(one, two, few, many, feminine=noun.feminine)


_UNITS: Final = MappingProxyType(
    {
        "km": _of(_METRES, before="كيلو"),
        "m": _METRE,
        "cm": _of(_METRES, before="سنتي"),
        "mm": _of(_METRES, before="ملي"),
        "mi": _MILE,
        "ft": _Noun("قدم", "قدمان", "أقدام", "قدماً", feminine=True),
        "kg": _of(_GRAM, before="كيلو"),
        "g": _GRAM,
        "mg": _of(_GRAM, before="ملي"),
        "lb": _Noun("رطل", "رطلان", "أرطال", "رطلاً"),
        "oz": _Noun("أونصة", "أونصتان", "أونصات", "أونصة", feminine=True),
        "l": _Noun("لتر", "لتران", "لترات", "لتراً"),
        "ml": _Noun("مليلتر", "مليلتران", "مليلترات", "مليلتراً"),
        "km/h": _of(_METRES, before="كيلو", after=" في الساعة"),
        "mph": _of(_MILE, after=" في الساعة"),
        "kwh": _fixed("كيلوواط ساعة"),
        "in": _Noun("بوصة", "بوصتان", "بوصات", "بوصة", feminine=True),
        "m²": _of(_METRE, after=" مربع"),
        "km²": _of(_METRES, before="كيلو", after=" مربع"),
        "ft²": _fixed("قدم مربعة"),
        "m³": _of(_METRE, after=" مكعب"),
        "mbps": _fixed("ميغابت في الثانية"),
        "gbps": _fixed("غيغابت في الثانية"),
        "mhz": _fixed("ميغاهرتز"),
        "ghz": _fixed("غيغاهرتز"),
        "kb": _fixed("كيلوبايت"),
        "mb": _fixed("ميغابايت"),
        "gb": _fixed("غيغابايت"),
        "tb": _fixed("تيرابايت"),
        "hz": _fixed("هرتز"),
        "khz": _fixed("كيلوهرتز"),
        "°": _DEGREE,
        "°c": _of(_DEGREE, after=" مئوية"),
        "°f": _of(_DEGREE, after=" فهرنهايت"),
        "h": _Noun("ساعة", "ساعتان", "ساعات", "ساعة", feminine=True),
        "min": _MINUTE,
        "s": _Noun("ثانية", "ثانيتان", "ثوان", "ثانية", feminine=True),
        "ms": _fixed("ملي ثانية"),
    }
)


class Arabic:
    """Figures in Arabic words; a `pipeline.text.spoken_forms.Reading`. Days come before months."""

    month_first = False
    words = MappingProxyType(
        {
            "dot": "نقطة", "at": "آت", "dash": "شرطة", "underscore": "شرطة سفلية", "slash": "شرطة مائلة",
            "colon": "نقطتان", "plus": "زائد", "minus": "ناقص", "point": "فاصلة", "percent": "بالمئة",
            "and": "و", "number": "رقم", "to": "إلى", "equals": "يساوي", "less": "أقل من", "more": "أكثر من",
            "most": "على الأكثر", "least": "على الأقل", "about": "حوالي", "plus_minus": "زائد أو ناقص",
            "times": "ضرب", "fold": "أضعاف", "of": "من", "per": "لكل", "star": "نجمة", "hash": "مربع",
        }
    )  # fmt: skip
    abbreviations = MappingProxyType(
        {
            "د.": "الدكتور", "أ.": "الأستاذ", "م.": "المهندس", "ص.ب": "صندوق بريد", "ص.ب.": "صندوق بريد",
            "إلخ.": "إلى آخره", "dr.": "الدكتور", "mr.": "السيد", "mrs.": "السيدة",
        }
    )  # fmt: skip

    def cardinal(self, number: int, *, feminine: bool = False, oblique: bool = False) -> str:
        """Reads a whole number below 10**15. `feminine`: for a noun of that gender (a number alone is
        masculine); `oblique`: after a preposition or in a year ("ألفين وستة وعشرين")."""
        parts: list[str] = []
        rest = number
        for scale, noun in _SCALES:
            count, rest = divmod(rest, scale)
            if count:
                parts.append(self._counted(count, noun, alone=True))
        hundreds, rest = divmod(rest, 100)
        if hundreds:
            parts.append(_HUNDREDS[hundreds])
        if rest or not parts:
            parts.append(self._below_hundred(rest, feminine=feminine))
        spoken = " و".join(parts)
        return _oblique(spoken) if oblique else spoken

    def ordinal(self, number: int) -> str:
        """Reads an ordinal number, masculine with the article: 3 is "الثالث". For 0 and above 99, gives the
        cardinal number after "رقم"."""
        if not number:
            return f"رقم {self.cardinal(0)}"
        if number <= 10:
            return _DAYS[number - 1]
        if number < 20:
            return ("الحادي" if number == 11 else _DAYS[number - 11]) + " عشر"
        if number < 100:
            ten, unit = divmod(number, 10)
            first = "الحادي" if unit == 1 else _DAYS[unit - 1]
            return f"{first} وال{_TENS[ten]}" if unit else f"ال{_TENS[ten]}"
        return f"رقم {self.cardinal(number)}"

    def digits(self, figures: str) -> str:
        """Reads figures one by one: 15 is "واحد خمسة"."""
        return " ".join(_MASCULINE[int(figure)] for figure in figures)

    def year(self, year: int) -> str:
        """Reads a year in the form that follows "عام"."""
        return self.cardinal(year, oblique=True)

    def decade(self, year: int, *, whole: bool) -> str:
        """Reads a decade: 1990 is "التسعينيات". For the first two of a century, reads the year."""
        ten = year % 100 // 10
        return f"ال{_TENS[ten][:-2]}ينيات" if ten > 1 else f"أعوام {self.year(year)}"

    def weekday(self, short: str) -> str:
        """Names the day of the week, from "mon" to "sun"."""
        return _WEEKDAYS[short]

    def date(self, day: int, month: int, year: int | None) -> str:
        """Reads a date, such as "الثالث من مارس عام ألفين وستة وعشرين"."""
        spoken = f"{self.ordinal(day)} من {MONTHS[month - 1]}"
        return spoken if year is None else f"{spoken} عام {self.year(year)}"

    def time(self, hour: int, minute: int, half: str) -> str:
        """Reads a time of day: 15:30 is "الساعة الثالثة والنصف مساءً"."""
        if not half and (hour > 12 or hour == 0):
            half = "pm" if hour else "am"
        spoken = f"الساعة {_HOURS[(hour - 1) % 12]}"
        if minute:
            known = {15: "الربع", 30: "النصف"}
            spoken += " و" + (known.get(minute) or self._counted(minute, _MINUTE))
        return f"{spoken} {'صباحاً' if half == 'am' else 'مساءً'}" if half else spoken

    def money(self, whole: int, hundredths: int, currency: str) -> str:
        """Reads an amount: 3.50 is "ثلاثة ريالات وخمسون هللة" in riyals."""
        noun, part = _CURRENCIES[currency]
        spoken = self._counted(whole, noun)
        if not hundredths or part is None:
            return spoken
        small = self._counted(hundredths, part)
        return f"{spoken} و{small}" if whole else small

    def currency(self, currency: str) -> str:
        """Names the currency after a large or a decimal amount."""
        return _CURRENCIES[currency][0].one

    def unit(self, number: str, unit: str, *, one: bool, whole: int | None) -> str:
        """Adds the unit to `number`, which is in words; `whole`: the value of a whole number, else None."""
        noun = _UNITS[unit]
        return f"{number} {noun.one}" if whole is None else self._counted(whole, noun)

    def fraction(self, above: int, below: int) -> str:
        """Reads a half, a third, two thirds, a quarter and three quarters; gives "" for other fractions."""
        return {(1, 2): "نصف", (1, 3): "ثلث", (2, 3): "ثلثان", (1, 4): "ربع", (3, 4): "ثلاثة أرباع"}.get(
            (above, below), ""
        )

    def mixed(self, whole: int, part: str) -> str:
        """Reads a whole number with a fraction: 2 ½ is "اثنان ونصف"."""
        return f"{self.cardinal(whole)} و{part}"

    def pause(self, groups: Sequence[str]) -> str:
        """Joins groups of a number with commas, at which a voice pauses."""
        return "، ".join(groups)

    def _below_hundred(self, number: int, *, feminine: bool) -> str:
        units = _FEMININE if feminine else _MASCULINE
        if number <= 10:
            return units[number]
        ten, unit = divmod(number, 10)
        if number < 20:
            first = {11: ("أحد", "إحدى"), 12: ("اثنا", "اثنتا")}.get(number, (units[unit], units[unit]))
            return f"{first[feminine]} {'عشرة' if feminine else 'عشر'}"
        if not unit:
            return _TENS[ten]
        first_word = "إحدى" if feminine and unit == 1 else units[unit]
        return f"{first_word} و{_TENS[ten]}"

    def _counted(self, number: int, noun: _Noun, *, alone: bool = False) -> str:
        """Gives `number` with the fitting form of `noun`; `alone`: the noun is a number ("ألف"), before which
        "one" is left out."""
        last = number % 100
        if last in (1, 2) and noun.one != noun.two:
            head = f"{self.cardinal(number - last)} و" if number > last else ""
            if last == 2:
                return head + noun.two
            return head + noun.one + ("" if alone else " واحدة" if noun.feminine else " واحد")
        spoken = self.cardinal(number, feminine=noun.feminine)
        if 3 <= last <= 10:
            return f"{spoken} {noun.few}"
        return f"{_construct(spoken)} {noun.many if last >= 11 else noun.one}"


def _construct(spoken: str) -> str:
    """The form before a noun, in which a dual or an accusative loses its ending: "مئتا ريال", "ألف ريال"."""
    for ending in ("مئتان", "ألفان", "مليونان", "ملياران"):
        if spoken.endswith(ending):
            return spoken[:-1]
    return spoken.removesuffix("اً") if spoken.endswith("اً") else spoken


def _oblique(spoken: str) -> str:
    """The form after a preposition, for duals and tens."""
    return " ".join(
        word[:-2] + "ين"
        if word.endswith("ان") and word.lstrip("و") in ("اثنان", "مئتان", "ألفان")
        else word[:-2] + "ين"
        if word.lstrip("و") in _TENS[2:]
        else word
        for word in spoken.split(" ")
    )
