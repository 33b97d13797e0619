"""The expression with which `pipeline.text.normalise` finds figures, signs and abbreviations: a named group
for each kind.

Every repetition is bounded, so that no text makes matching slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pipeline.text.arabic import MONTHS as ARABIC_MONTHS
from pipeline.text.arabic import Arabic
from pipeline.text.english import MONTHS as ENGLISH_MONTHS
from pipeline.text.english import English

VULGAR: Final = MappingProxyType(
    {
        "½": "1/2",
        "⅓": "1/3",
        "⅔": "2/3",
        "¼": "1/4",
        "¾": "3/4",
        "⅛": "1/8",
        "⅜": "3/8",
        "⅝": "5/8",
        "⅞": "7/8",
    }
)
_VULGAR: Final = "".join(VULGAR)

PLAIN: Final = re.compile(rf"[^\d@$€£¥₹%&#*`°+={_VULGAR}]*")
"""Text in which only abbreviations and weekdays may need words."""
_DAY: Final = r"(?:Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)"
WEEKDAYS: Final = re.compile(rf"\b{_DAY}\.?\s?[-–]\s?{_DAY}\b")
"""A range of abbreviated weekdays ("Mon-Fri")."""

FIGURES: Final = str.maketrans("٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹٫٬٪−", "01234567890123456789.,%-")

SIGNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "usd": "USD", "eur": "EUR", "gbp": "GBP",
        "sar": "SAR", "aed": "AED", "egp": "EGP", "kwd": "KWD", "qar": "QAR", "jpy": "JPY", "inr": "INR",
        "﷼": "SAR", "ر.س": "SAR", "ريال": "SAR", "ريالات": "SAR", "ريالاً": "SAR", "ريالا": "SAR",
        "د.إ": "AED", "درهم": "AED", "درهما": "AED", "دراهم": "AED", "دولار": "USD", "دولارا": "USD",
        "دولارات": "USD", "يورو": "EUR", "جنيه": "EGP", "جنيها": "EGP", "جنيهات": "EGP", "ج.م": "EGP",
        "دينار": "KWD", "دينارا": "KWD", "دنانير": "KWD", "د.ك": "KWD", "ر.ق": "QAR",
    }
)  # fmt: skip
_SYMBOL: Final = r"[$€£¥₹﷼]"
_CODE: Final = (
    r"(?:USD|EUR|GBP|SAR|AED|EGP|KWD|QAR|JPY|INR|ر\.س|د\.إ|ج\.م|د\.ك|ر\.ق|ريالات|ريالاً|ريالا|ريال|دراهم"
    r"|درهما|درهم|دولارات|دولارا|دولار|يورو|جنيهات|جنيها|جنيه|دنانير|دينارا|دينار)(?!\w)"
)
AMOUNT: Final = (
    r"(?:(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,2}(?:,\d{2}){1,5},\d{3}(?!\d)|\d{1,15})(?:\.\d{1,8})?"
    r"|(?<![\w.])\.\d{1,8})"
)
"""An amount in groups of three, in Indian groups (12,34,567), or without groups."""
LARGE: Final = MappingProxyType(
    {"k": 1000, "thousand": 1000, "m": 10**6, "million": 10**6, "bn": 10**9, "b": 10**9, "billion": 10**9}
)


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_UNIT_SIGNS: Final = _listed(
    "km cm mm mi ft kg mg lb oz ml km/h mph kwh kb mb gb tb hz khz mhz ghz mbps gbps m² km² ft² m³ ° °c °f "
    "min ms"
)
UNIT_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{name: name for name in _UNIT_SIGNS},
        "sqm": "m²", "sq ft": "ft²", "sqft": "ft²",
        "m": "m", "g": "g", "l": "l", "h": "h", "s": "s", "lbs": "lb", "mins": "min", "hr": "h", "hrs": "h",
        "sec": "s", "secs": "s", "كم": "km", "كلم": "km", "سم": "cm", "مم": "mm", "كجم": "kg", "كغ": "kg",
        "غ": "g", "جم": "g", "مل": "ml", "كم/س": "km/h", "دقيقة": "min", "دقائق": "min", "ساعة": "h",
        "ساعات": "h", "ثانية": "s", "ثواني": "s", "درجة": "°", "درجات": "°", "متر": "m", "أمتار": "m",
    }
)  # fmt: skip
_UNIT: Final = (
    "(?:" + "|".join(re.escape(name) for name in sorted(UNIT_NAMES, key=len, reverse=True)) + r")(?!\w)"
)

MONTHS: Final[Mapping[str, int]] = MappingProxyType(
    {name.lower(): place for place, name in enumerate(ENGLISH_MONTHS, 1)}
    | {name[:3].lower(): place for place, name in enumerate(ENGLISH_MONTHS, 1) if name != "May"}
    | {"sept": 9}
    | {name: place for place, name in enumerate(ARABIC_MONTHS, 1)}
    | {"ابريل": 4, "اغسطس": 8, "اكتوبر": 10}
)
_VERBS: Final = ("may", "march", "mar")  # months only with a capital letter
_MONTH: Final = (
    r"(?:(?-i:May|March|Mar)|"
    + "|".join(sorted(MONTHS.keys() - set(_VERBS), key=len, reverse=True))
    + r")\b\.?"
)
_HALF: Final = r"(?:\s?(?:[ap]\.m\.(?!\w)|[ap]m\b|صباحا\b|صباحاً|مساء\b|مساءً|ظهرا\b|ظهراً|[صم]\b))"
_MINUS: Final = r"(?:(?<![\w.])-|\b)"
_CLOCK: Final = r"\d{1,2}(?::\d{2})?"
_SPAN: Final = (
    rf"{_SYMBOL}\s?{AMOUNT}\s?[-–](?=\s?{_SYMBOL}?\s?\d)"
    rf"|\b{AMOUNT}\s?[-–](?=\s?{AMOUNT}\s?(?:%|{_SYMBOL}|{_CODE}|{_UNIT}))"
    rf"|\b{_CLOCK}\s?[-–](?=\s?{_CLOCK}{_HALF})"
)
"""The first part of "$5-10", "10-20%", "5-10 km", "9-11am", where one unit belongs to both parts."""
_UNTIL: Final = (
    r"(?:(?<=noon)|(?<=midnight)|(?<=\dst)|(?<=\dnd)|(?<=\drd)|(?<=\dth)"
    r"|(?<=\d[ap]m)|(?<=\d [ap]m)|(?<=[ap]\.m\.)|(?<=:\d\d)|(?<=%)|(?<=[€£$¥₹﷼])|(?<=°[cf])|(?<=\d°)"
    r"|(?<=\d[صم])|(?<=\d [صم]))\s?[-–](?=\s?[$€£¥₹﷼]?\s?\d)"
)
"""The dash between two values that have a unit each."""
_DAY_NUMBER: Final = r"\d{1,2}(?:st|nd|rd|th)?"
_FREE: Final = "(?:800|833|844|855|866|877|888)"
"""Area codes of North America's toll-free numbers, which are often written as words."""
_CODES: Final = "|".join(
    rf"(?<={word}{link})"
    for word in (
        *("pin", "code", "zip", "id", "extension", "ending in", "الرمز"),
        *(f"{what} number" for what in ("account", "order", "reference", "confirmation", "tracking")),
    )
    for link in (" ", ": ", " is ")
)
_PER: Final = (
    "month|mo|week|wk|day|night|hour|hr|minute|min|second|year|yr|person|item|user|شهر|أسبوع|يوم|ساعة|سنة|شخص"
)
_TOP: Final = "com|org|net|edu|gov|io|ai|co|uk|de|fr|sa|ae|eg|qa|kw|info|app|dev"
_ABBREVIATIONS: Final = "|".join(
    re.escape(name)
    for name in sorted(
        {name for language in (English, Arabic) for name in language.abbreviations}, key=len, reverse=True
    )
)

_PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "email": r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}",
        "url": rf"https?://[^\s<>]{{1,200}}|www\.[^\s<>]{{1,200}}|\b[\w-]{{1,63}}\.(?:{_TOP})\b(?:/[^\s<>]{{0,200}})?",
        "iso": r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?Z?)?(?![\d-])|\b\d{4}/\d{1,2}/\d{1,2}\b",
        "slashed": r"\b\d{1,2}[/.]\d{1,2}[/.]\d{4}\b|\b\d{1,2}/\d{1,2}/\d{2}\b",
        "vanity": (
            rf"(?-i:\b1[ -]{_FREE}-(?:\d{{3}}-)?[A-Z][A-Z\d]{{1,11}}(?:-[A-Z\d]{{1,12}}){{0,3}}\b"
            rf"|(?:\b(?:1[ -])?{_FREE}[ -]|\({_FREE}\)\s?)(?:\d{{3}}-)?[A-Z]{{4,12}}"
            r"(?:-[A-Z\d]{1,12}){0,3}\b"
            r"|\(\d{3}\)\s?\d{3}-[A-Z]{4}\b)"
        ),
        "grouped": (
            r"\b1[ -]\d{3}[ -]\d{3}[ -]\d{4}\b|\b\d{3}\.\d{3}\.\d{4}\b"
            r"|\b\d\d-\d\d-\d\d\b(?!-)"
        ),
        "until": _UNTIL,
        "european": (
            r"€\s?\d{1,3}(?:\.\d{3}){1,4}(?:,\d{1,2})?\b|€\s?\d{1,9},\d{1,2}\b(?!,)"
            r"|\b\d{1,3}(?:\.\d{3}){1,4},\d{1,2}\b(?:\s?€)?|\b\d{1,9},\d{1,2}\s?€"
        ),
        "span": _SPAN,
        "decade": r"\b(?:1[1-9]|20)\d0s\b|(?<=the )[2-9]0s\b|['’][2-9]0s\b",
        "weekdays": rf"(?-i:{WEEKDAYS.pattern})",
        "days": (
            rf"\b{_MONTH}\s{_DAY_NUMBER}\s?[-–]\s?{_DAY_NUMBER}\b(?:,?\s\d{{4}}\b)?"
            rf"|\b{_DAY_NUMBER}\s?[-–]\s?{_DAY_NUMBER}\s(?:of\s)?{_MONTH}(?:,?\s\d{{4}}\b)?"
        ),
        "day_month": rf"\b\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s|من\s)?{_MONTH}(?:,?\s\d{{4}}\b)?",
        "month_day": rf"\b{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?\b(?!:)(?:,?\s\d{{4}}\b)?",
        "time": (
            rf"(?:\bالساعة\s)?\b(?:\d{{1,2}}:\d{{2}}(?::\d{{2}})?(?:{_HALF}|\b)"
            rf"|\d{{1,2}}(?:\.\d{{2}})?{_HALF})|\bالساعة\s\d{{1,2}}\b(?!\s?[-–:])"
        ),
        "money": (
            rf"(?:(?<![\w.])-)?{_SYMBOL}\s?{AMOUNT}(?:\s?(?:million|billion|thousand|bn|[kmb])\b)?"
            r"|\b\d{1,3}\s?¢"
            rf"|\b(?:USD|EUR|GBP|SAR|AED|EGP|KWD|QAR|JPY|INR|ر\.س|د\.إ)\s?{AMOUNT}"
            rf"|\b{AMOUNT}(?:\s?(?:million|billion|thousand|bn|[kmb]))?\s?(?:{_SYMBOL}|{_CODE})"
        ),
        "percent": rf"(?:{_MINUS}|(?=\.)){AMOUNT}\s?%",
        "phone": (
            r"\+\d{1,3}(?:[ .()-]{0,2}\d{1,12}){1,6}|\(\d{2,4}\)\s?\d{2,4}[ .-]\d{2,4}(?:[ .-]\d{2,4})?"
            r"|\b\d{2,4}(?:[ -]\d{3,4}){2,6}\b|\b0\d(?:[ -]\d{2}){3,5}\b|\b\d{3}-\d{2}-\d{4}\b"
            r"|\b\d{3}[ -]\d{4}\b|\b\d{5}-\d{4}\b|\b\d(?:-\d){2,9}\b"
            r"|\b0\d{2,31}\b|\b\d{7,200}\b(?![,.]\d)|(?<=call )\d{3}\b|(?<=dial )\d{3}\b"
        ),
        "code": rf"(?-i:#?\b[A-Z]{{1,4}}-?\d{{3,15}}\b)|(?:{_CODES})\d{{3,12}}\b(?!\s?%|[.,]\d)",
        "keys": r"(?<!\S)\*\d{2,4}(?:\*\d{1,4})?(?:#|\b)(?!\w)",
        "network": r"\b(?-i:[2-6]G)\b",
        "ordinal": r"\b\d{1,9}(?:st|nd|rd|th)\b|\bالـ?\d{1,2}\b",
        "scaled": rf"(?-i:\b{AMOUNT}\s?M\b)",
        "unit": rf"{_MINUS}{AMOUNT}\s?{_UNIT}",
        "duration": r"\b\d{1,2}h\s?\d{1,2}m(?:in)?\b|\b\d{1,2}['’′]\s?\d{1,2}[\"”″](?!\w)",
        "version": r"\b\d{1,4}(?:\.\d{1,4}){2,4}\b",
        "mixed": rf"\b\d{{1,3}}\s\d{{1,2}}/\d{{1,2}}\b(?!/)|(?:\b\d{{1,3}}\s?)?[{_VULGAR}]",
        "of": r"\b\d{1,3}(?:\.\d{1,2})?/(?:10|100)\b(?!/)|\b\d{1,3}\.\d{1,2}/\d{1,3}\b",
        "fraction": r"\b24/7/365\b|\b\d{1,3}/\d{1,3}\b",
        "ratio": r"\b\d{1,3}:\d{1,3}\b(?!:)",
        "times": r"\b\d{1,4}[xX×]\b",
        "per": rf"(?<=\S) ?/ ?(?:{_PER})(?![^\W\d_])",
        "range": r"\b\d{1,9}\s?[-–]\s?\d{1,9}\b",
        "year": r"(?i:\b(?:in|since|until|year|from|by|عام|سنة|في|"
        rf"{_MONTH}|spring|summer|autumn|fall|winter)\s)"
        r"(?:1[1-9]|20)\d{2}\b(?![,.]\d)|(?<=Q[1-4]\s)20\d{2}\b",
        "hash": r"[#№]\s?\d{1,15}\b|\b(?:No|no|رقم)\.\s?\d{1,15}\b",
        "number": rf"(?<![\w.])-{AMOUNT}|{AMOUNT}|\d+",
        "by": r"(?<=\d)\s?[×*](?=\s?\d)",
        "star": r"(?<=\s)\*(?=[.,;:!?)]|\s|\Z)",
        "sign": r"(?<=\s)[+=](?=\s)|[&@]|(?<=\d)\+(?![\w+])|[<>]=?(?=\s?\d)|[≤≥±≈~](?=\s?\d)"
        r"|(?<!\S)#(?=[.,;:!?)]|\s\S|\Z)|(?<=\d)#(?!\w)|№|[*`]{1,200}|(?m:^\s{0,8}#{1,6}\s)|°",
        "short": rf"(?i:(?<!\w)(?:{_ABBREVIATIONS}))",
    }
)  # fmt: skip
ANY: Final = re.compile("|".join(f"(?P<{name}>{part})" for name, part in _PARTS.items()), re.IGNORECASE)
SHORT: Final = re.compile(_PARTS["short"])
ENDINGS: Final = re.compile(r"(?:[^./]|\.(?=\s|\Z))*+")
"""Text whose dots end words, in sentences or abbreviations."""
