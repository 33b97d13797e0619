"""The meanings of words in answers, by language: yes and no, digits, numbers, words of dates and times.

The languages are English and Arabic, the latter standard and as spoken from Egypt to the Gulf; other
languages have figures ("12") and no words. Arabic is compared without hamza, ta marbuta and vowel signs,
whose use varies between recognisers and writers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from pipeline.text.english import MONTHS as MONTH_NAMES
from pipeline.text.english import SMALL, TENS, English
from pipeline.text.english import WEEKDAYS as WEEKDAY_NAMES
from pipeline.text.fold import folded

Meant: TypeAlias = tuple[tuple[str, re.Pattern[str]], ...]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The words of one language; every word is `pipeline.text.fold.folded`."""

    yes: frozenset[str] = frozenset()
    no: frozenset[str] = frozenset()
    meant: Meant = ()
    """Idioms and their meanings: "no problem" is a yes, "absolutely not" a no, "not sure" neither ("")."""
    whole_yes: frozenset[str] = frozenset()
    """Phrases that mean yes as the whole answer ("i can", but not "i can hear you")."""
    units: Mapping[str, int] = field(default_factory=dict)
    """Words for 0 to 19."""
    tens: Mapping[str, int] = field(default_factory=dict)
    hundreds: Mapping[str, int] = field(default_factory=dict)
    """Single words for several hundreds or thousands (Arabic)."""
    scales: Mapping[str, int] = field(default_factory=dict)
    """Words that multiply the number before them: "hundred", "thousand"."""
    teen_marks: frozenset[str] = frozenset()
    """Words that make the unit before them a number from 11 to 19 (Arabic)."""
    joins: frozenset[str] = frozenset()
    """Words like "and"."""
    joining_prefix: str = ""
    """The prefix that means "and" (Arabic)."""
    units_first: bool = False
    """Whether the unit precedes the ten ("five-and-twenty")."""
    repeats: Mapping[str, int] = field(default_factory=dict)
    """Words before a digit that repeat it: "double", "triple"."""
    again: Mapping[str, int] = field(default_factory=dict)
    """Words after a digit that repeat it: "twice"."""
    ordinals: Mapping[str, str] = field(default_factory=dict)
    """Ordinal numbers in figures ("2nd") and their words."""
    corrections: frozenset[str] = frozenset()
    """Words after which digits replace the last ones."""
    digit_glue: frozenset[str] = frozenset()
    """Words that people say between digits."""
    go_on: str = ""
    """What is said to somebody who has dictated a part."""
    did_you_say: str = ""
    """What is asked about words that are doubtful: they stand for "{}"."""
    no_more_calls: re.Pattern[str] | None = None
    """What somebody says who is not to be called again ("take me off your list")."""
    not_again: str = ""
    """What is said to them."""
    date: frozenset[str] = frozenset()
    """Words of which a single one makes a date."""
    date_phrase: re.Pattern[str] | None = None
    """Dates made of words that have other meanings too ("the second", "may first")."""
    date_glue: frozenset[str] = frozenset()
    """Words that may stand inside a date."""
    time: frozenset[str] = frozenset()
    time_glue: frozenset[str] = frozenset()
    name_openings: tuple[str, ...] = ()
    excluding: frozenset[str] = frozenset()
    """Words that exclude the date or time after them ("not monday")."""
    nameless: frozenset[str] = frozenset()
    """Words that are no name ("sorry what")."""


def _words(text: str) -> frozenset[str]:
    return frozenset(folded(text).split())


def _meant(*, yes: str, no: str, neither: str) -> Meant:
    """Pairs of a meaning and the pattern of its phrases, the longest phrase first."""
    listed = (("", neither), ("no", no), ("yes", yes))
    return tuple((meaning, _listed(phrases)) for meaning, phrases in listed)


def _listed(phrases: str) -> re.Pattern[str]:
    return _any_of(phrases.split(", "))


def _any_of(phrases: Sequence[str]) -> re.Pattern[str]:
    longest = sorted(map(folded, phrases), key=len, reverse=True)
    return re.compile(rf"(?<!\S)(?:{'|'.join(map(re.escape, longest))})(?!\S)")


def _numbered(text: str, *, first: int = 0, step: int = 1) -> dict[str, int]:
    """Words of rising numbers; spellings of one number are joined by "/"."""
    spelled = enumerate(folded(text).split())
    return {word: first + step * index for index, words in spelled for word in words.split("/")}


_SPOKEN: Final = [English(month_first=True).ordinal(day).replace("-", " ") for day in range(1, 32)]
"""The ordinal numbers of the days of a month."""

ORDINALS: Final = " ".join(ordinal for ordinal in _SPOKEN if " " not in ordinal)
MONTHS: Final = " ".join(MONTH_NAMES).lower().replace(" may ", " ")
"""The months except May, which is a verb too."""
_ORDINAL = ORDINALS.replace(" ", "|") + r"|\d{1,2}(?:st|nd|rd|th)"
WEEKDAYS: Final = " ".join(WEEKDAY_NAMES.values()).lower()
_ENDS: Final = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}


ENGLISH = Lexicon(
    yes=_words(
        "yes yeah yep yup sure correct right okay ok absolutely certainly definitely exactly course fine"
    ),
    no=_words("no nope nah not wrong incorrect never don't can't cannot won't isn't dont cant wont isnt"),
    meant=_meant(
        yes="no problem, no problem at all, not a problem, no worries, no objection, no objections, uh huh, "
        "mm hm, mm hmm, alright, all right, go ahead, sounds good, that works, please do, by all means, "
        "i think so, i guess so, i suppose so, i believe so",
        no="absolutely not, certainly not, definitely not, of course not, course not, no way, i think not, "
        "i guess not",
        neither="i don't know, i dont know, i do not know, don't know, dont know, no idea, no clue, "
        "not sure, not certain, not quite sure, not so sure, not entirely sure, can't say, cannot say, "
        "can't tell, can't remember, don't remember, don't understand, dont understand, "
        "do not understand, did not understand, didn't understand, can't hear you, cannot hear you",
    ),
    whole_yes=frozenset(
        ("i do", "i can", "i will", "i would", "i am", "i have", "it is", "we can", "we do", "why not")
    ),
    units={"oh": 0, "o": 0, **{word: number for number, word in enumerate(SMALL)}},
    tens={word: 10 * number for number, word in enumerate(TENS) if number > 1},
    scales={"hundred": 100, "thousand": 1000, "million": 1_000_000},
    joins=_words("and"),
    repeats={"double": 2, "triple": 3, "treble": 3},
    again={"twice": 2},
    ordinals={f"{day}{_ENDS.get(day, 'th')}": said for day, said in enumerate(_SPOKEN, 1)},
    corrections=_words("no sorry actually correction rather oops"),
    digit_glue=_words(
        "it's its is it that's then and the my number um uh er hmm well so with by okay ok yes a please "
        "digits digit starts ends first next last code followed dash space"
    ),
    go_on="Go on, please.",
    did_you_say="Did you say {}?",
    no_more_calls=re.compile(
        r"\b(?:stop|quit) (?:calling|phoning|ringing|contacting|bothering)\b"
        r"|\b(?:don't|dont|do not|never|not to)(?: you)?(?: ever| dare)? (?:call|phone|ring|contact)"
        r"(?: (?:me|us|here|him|her|this number|my number))?(?: (?:ever )?again| any ?more| ever|$)"
        r"|\b(?:take|remove|delete|get) (?:me|us|my name|my number|this number) (?:off|from|out of)\b"
        r"|\bdo not call list\b|\bno more calls\b|\blose (?:my|this) number\b"
    ),
    not_again="You will not be called again. Goodbye.",
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
    excluding=_words("not except excluding"),
    nameless=_words(
        "what what's whats sorry pardon excuse me huh hello hi hey who who's is this that are you your can "
        "could would repeat say said again please um uh er hmm thanks thank fine good why do don't i know "
        "understand want to tell my name the it's it i'm one moment minute second wait hold on"
    ),
)

ARABIC = Lexicon(
    yes=_words("نعم أجل أيوه أيوا إيه اي طبعا أكيد صحيح تمام موافق حاضر ماشي صح بالتأكيد بلى مضبوط أوافق"),
    no=_words("لا كلا مش غير خطأ ليس مو ليست أبدا لأ غلط"),
    meant=_meant(
        yes="لا مشكلة, ما في مشكلة, مافي مشكلة, ما فيه مشكلة, مفيش مشكلة, مش مشكلة, لا مانع, لا بأس, "
        "لم لا, ليش لا, ليه لا, ما عندي مانع, لا مانع عندي",
        no="طبعا لا, أكيد لا, بالتأكيد لا, ما أقدر, ما بقدر, لا أقدر, لا أستطيع",
        neither="لا أعرف, لا أدري, لا أعلم, ما أعرف, ما أدري, ما بعرف, مش عارف, مش عارفة, مو عارف, "
        "مو متأكد, مش متأكد, مش متأكدة, غير متأكد, لست متأكدا, لست متأكدة, لا أسمعك, ما أسمعك, لا أفهم, "
        "ما فهمت, لم أفهم",
    ),
    units=_numbered(
        "صفر/زيرو واحد/واحدة/أحد/إحدى/وحدة اثنان/اثنين/اثنا/اثنتا/اتنين/اثنتان/ثنين/تنين/ثنتين/تنتين "
        "ثلاثة/ثلاث/تلاتة/تلات أربعة/أربع خمسة/خمس ستة/ست سبعة/سبع ثمانية/ثمان/ثماني/تمانية/تمان/تمنية "
        "تسعة/تسع عشرة/عشر حداشر/احداشر/حدعش/احدعش/حداعش اتناشر/اطناشر/طنعش/اطنعش/اثنعش/اتنعش "
        "تلتاشر/تلاتاشر/ثلطعش/ثلاثطعش/تلطعش/تلتعش اربعتاشر/اربعطعش/اربعتعش خمستاشر/خمسطعش/خمستعش "
        "ستاشر/سطعش/ستعش سبعتاشر/سبعطعش/سبعتعش تمنتاشر/ثمنطعش/تمنتعش/ثمانطعش تسعتاشر/تسعطعش/تسعتعش"
    ),
    tens=_numbered(
        "عشرين/عشرون ثلاثين/ثلاثون/تلاتين أربعين/أربعون خمسين/خمسون ستين/ستون سبعين/سبعون "
        "ثمانين/ثمانون/تمانين تسعين/تسعون",
        first=20,
        step=10,
    ),
    hundreds=_numbered(
        "مئتان/مائتان/مئتين/مائتين/ميتين ثلاثمئة/ثلاثمائة/تلتمية/ثلاثمية/ثلثمية "
        "أربعمئة/أربعمائة/ربعمية/اربعمية خمسمئة/خمسمائة/خمسمية ستمئة/ستمائة/ستمية سبعمئة/سبعمائة/سبعمية "
        "ثمانمئة/ثمانمائة/تمنمية/ثمنمية تسعمئة/تسعمائة/تسعمية",
        first=200,
        step=100,
    )
    | _numbered("ألفين/ألفان", first=2000),
    scales=_numbered("مئة/مائة/مية", first=100)
    | _numbered("ألف/آلاف/ألفا/تلاف", first=1000)
    | _numbered("مليون/ملايين", first=1_000_000),
    teen_marks=_words("عشر عشرة"),
    joins=_words("و"),
    joining_prefix="و",
    units_first=True,
    repeats=_numbered("دبل تربل", first=2),
    again=_numbered("مرتين/مكرر", first=2),
    corrections=_words("لا آسف عفوا أقصد قصدي بل"),
    digit_glue=_words("هو هي رقمي الرقم رقم ثم بعدين بعدها نعم يعني طيب من فضلك أوله آخره شرطة"),
    go_on="تفضل، أكمل.",
    did_you_say="هل قلت {}؟",
    no_more_calls=_listed(
        "لا تتصل, لا تتصلي, لا تتصلوا, ما تتصل, ما تتصلي, ما تتصلوا, ما تتصلش, متتصلش, متتصلوش, "
        "لا عاد تتصل, لا عاد تتصلون, لا تدق, لا تدقون, لا تكلمني, لا تكلموني, توقف عن الاتصال, "
        "توقفوا عن الاتصال, بطل تتصل, بطلوا تتصلوا, احذف رقمي, احذفوا رقمي, امسح رقمي, امسحوا رقمي, "
        "شيل رقمي, شيلوا رقمي"
    ),
    not_again="لن نتصل بك مرة أخرى. مع السلامة.",
    date=_words(
        "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر "
        "الأحد الاثنين الثلاثاء الأربعاء الخميس الجمعة السبت اليوم غدا بكرة الليلة "
        "كانون شباط آذار نيسان أيار حزيران تموز آب أيلول تشرين رمضان شعبان محرم صفر شوال رجب"
    )
    - _words("صفر"),  # the second month, Safar, is spelled like the digit zero
    date_glue=_words(
        "يوم من في القادم القادمة المقبل المقبلة شهر صباحا مساء الساعة بعد "
        "الأول الثاني الثالث الرابع الخامس السادس السابع الثامن التاسع العاشر الحادي "
        "والعشرين والعشرون العشرين العشرون والثلاثين الثلاثين عشر هذا"
    ),
    time=_words("الساعة صباحا مساء ظهرا ليلا الصباح المساء الظهر العصر المغرب العشاء الفجر"),
    time_glue=_words(
        "و والنصف والربع والثلث إلا نصف ربع ثلث بعد في الواحدة الثانية الثالثة الرابعة الخامسة السادسة "
        "السابعة الثامنة التاسعة العاشرة الحادية الثانية عشرة دقيقة دقائق تماما"
    ),
    name_openings=("اسمي هو", "اسمي", "معك", "أنا اسمي", "أنا", "انا", "إسمي"),
    excluding=_words("مش مو ليس غير إلا عدا ماعدا"),
    nameless=_words("ماذا شو ايش إيه عفوا آسف مرحبا ألو من مين معي لو سمحت أعد كرر لحظة دقيقة لماذا ليش"),
)

LEXICONS: Final[Mapping[str, Lexicon]] = MappingProxyType({"en": ENGLISH, "ar": ARABIC})
"""The lexicons by language."""


def lexicon(language: str) -> Lexicon:
    """Gives the lexicon of `language` ("en", "en-GB", "ar"), an empty one for other languages."""
    return LEXICONS.get(language.lower().split("-")[0], Lexicon())
