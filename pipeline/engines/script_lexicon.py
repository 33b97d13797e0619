"""What the words of an answer mean, per language: yes and no, digits, numbers, words of dates and times.

English and Arabic; another language gets English figures ("12") and no words. The Arabic lists hold the
spellings that recognisers write, with and without hamza, and no diacritics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lexicon:
    """One language. `units` and `tens` are number words with their values; `hundred` scales what precedes."""

    yes: frozenset[str] = frozenset()
    no: frozenset[str] = frozenset()
    units: dict[str, int] | None = None
    tens: dict[str, int] | None = None
    hundred: frozenset[str] = frozenset()
    thousand: frozenset[str] = frozenset()
    repeats: dict[str, int] | None = None
    """"double" and "triple" before a digit."""
    date: frozenset[str] = frozenset()
    """Words of which one makes a date."""
    date_phrase: re.Pattern[str] | None = None
    """Dates made of words that say something else alone ("the second", "may first")."""
    date_glue: frozenset[str] = frozenset()
    """Words that may stand inside a date."""
    time: frozenset[str] = frozenset()
    time_glue: frozenset[str] = frozenset()
    name_openings: tuple[str, ...] = ()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _numbered(text: str, *, first: int, step: int = 1) -> dict[str, int]:
    return {word: first + step * index for index, word in enumerate(text.split())}


ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
    "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth thirtieth"
)
MONTHS = "january february march april june july august september october november december"
_ORDINAL = ORDINALS.replace(" ", "|")
WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday"

ENGLISH = Lexicon(
    yes=_words(
        "yes yeah yep yup sure correct right okay ok absolutely certainly definitely exactly course fine"
    ),
    no=_words("no nope nah not wrong incorrect never don't can't cannot won't isn't"),
    units={
        "oh": 0,
        "o": 0,
        **_numbered(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
            "sixteen seventeen eighteen nineteen",
            first=0,
        ),
    },
    tens=_numbered("twenty thirty forty fifty sixty seventy eighty ninety", first=20, step=10),
    hundred=_words("hundred"),
    thousand=_words("thousand"),
    repeats={"double": 2, "triple": 3},
    date=_words(f"{MONTHS} {WEEKDAYS} today tomorrow tonight weekend"),
    date_phrase=re.compile(
        rf"\bthe ({_ORDINAL})\b|\bmay (the )?({_ORDINAL}|\d+(st|nd|rd|th)?|one|two|t\w+)\b|\bof may\b"
    ),
    date_glue=_words(
        f"the of next this on at day after week morning afternoon evening in past half o'clock may {ORDINALS}"
    ),
    time=_words("o'clock noon midnight morning afternoon evening am pm half quarter"),
    time_glue=_words("at past to in the"),
    name_openings=("my name is", "this is", "it is", "it's", "i am", "i'm", "the name is"),
)

ARABIC = Lexicon(
    yes=_words("نعم أجل اجل أيوه ايوه إيه ايه طبعا أكيد اكيد صحيح تمام موافق"),
    no=_words("لا كلا مش غير خطأ ليس"),
    units={
        **_numbered("صفر واحد اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة عشرة", first=0),
        **_numbered("واحدة اثنين ثلاث اربعة خمس ست سبع ثمان تسع عشر", first=1),
        "أربع": 4,
        "اربع": 4,
    },
    tens=_numbered("عشرين ثلاثين أربعين خمسين ستين سبعين ثمانين تسعين", first=20, step=10),
    hundred=_words("مئة مائة ميه"),
    thousand=_words("ألف الف"),
    date=_words(
        "يناير فبراير مارس أبريل ابريل مايو يونيو يوليو أغسطس اغسطس سبتمبر أكتوبر اكتوبر نوفمبر ديسمبر "
        "الأحد الاحد الاثنين الثلاثاء الأربعاء الاربعاء الخميس الجمعة السبت اليوم غدا بكرة",
    ),
    date_glue=_words("يوم من في القادم القادمة شهر صباحا مساء الساعة"),
    time=_words("الساعة صباحا مساء ظهرا ليلا"),
    time_glue=_words("و والنصف والربع إلا الا نصف ربع"),
    name_openings=("اسمي", "أنا", "انا"),
)


def lexicon(language: str) -> Lexicon:
    """The lexicon of `language` ("en", "en-GB", "ar"); an empty one where there is none."""
    return {"en": ENGLISH, "ar": ARABIC}.get(language.lower().split("-")[0], Lexicon())
