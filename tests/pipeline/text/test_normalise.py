"""What an agent writes is said as a person would say it, in English and in Arabic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.normalise import verbalize

ENGLISH = """
Hello, how are you? | Hello, how are you?
I have 5. | I have five.
5, 6 | five, six
room 12 | room twelve
1,000,000 | one million
1,25,000 | one hundred and twenty-five thousand
₹12,34,567 | one million two hundred and thirty-four thousand five hundred and sixty-seven rupees
5,10, 15,20,25 | five,ten, fifteen,twenty,twenty-five
2026/03/04 | March fourth, twenty twenty-six
1234567 people | one two three, four five six seven people
2,048 people | two thousand and forty-eight people
115 | one hundred and fifteen
-5 | minus five
3.14 | three point one four
0.05 | zero point zero five
007 | zero zero seven
the 21st | the twenty-first
the 100th | the one hundredth
the 12th and the 40th | the twelfth and the fortieth
3.5% | three point five percent
100 % | one hundred percent
Your total is $45.20. | Your total is forty-five dollars and twenty cents.
$1 | one dollar
£0.50 | fifty pence
€1,234.56 | one thousand two hundred and thirty-four euros and fifty-six cents
$3 million | three million dollars
$1.5 million | one point five million dollars
$10k | ten thousand dollars
20 USD | twenty dollars
SAR 45 | forty-five riyals
It is 3/12/2026. | It is March twelfth, twenty twenty-six.
13/12/2026 | December thirteenth, twenty twenty-six
3.12.2026 | December third, twenty twenty-six
2026-03-04 | March fourth, twenty twenty-six
2026-03-04T15:30 | March fourth, twenty twenty-six, three thirty PM
Come on 3 March at 3 pm. | Come on March third at three PM.
March 3rd, 2009 | March third, two thousand and nine
Aug 5, 1905 | August fifth, nineteen oh five
in 1999 | in nineteen ninety-nine
May 5 | May fifth
You may 5 times | You may five times
at 9:05 a.m. today | at nine oh five AM today
Come at 5 p.m. Bring it. | Come at five PM. Bring it.
12:00 | twelve o'clock
15:30 | three thirty PM
00:15 | twelve fifteen AM
12:99 | twelve:ninety-nine
call +1 415 555 0100 | call plus one, four one five, five five five, zero one zero zero
(415) 555-0100 | four one five, five five five, zero one zero zero
415-555-0100 | four one five, five five five, zero one zero zero
555-0100 | five five five, zero one zero zero
call 911 now | call nine one one now
4111 1111 1111 1111 | four one one one, one one one one, one one one one, one one one one
order 123456789 | order one two three, four five six, seven eight nine
4 1 5 9 | four one five nine
john.smith@example.com. | john dot smith at example dot com.
jo_99@ex-a.co.uk | jo underscore nine nine at ex dash a dot co dot uk
see https://www.example.com/a-b. | see example dot com slash a dash b.
example.com is ours | example dot com is ours
5 km | five kilometres
1 kg | one kilogram
2.5kg | two point five kilograms
20°C | twenty degrees Celsius
60 mph | sixty miles per hour
on 5G | on five G
version 1.2.3 | version one dot two dot three
AB12 | AB twelve
1/2 cup | one half cup
24/7 | twenty-four seven
5-10 days | five to ten days
Dr. Smith | Doctor Smith
shoes, hats, etc. | shoes, hats, and so on.
for it, e.g. this | for it, for example this
#5 and No. 7 | number five and number seven
A & B | A and B
**very** important | very important
٤٥ and ۱۲ | forty-five and twelve
Come at 5:30pm. | Come at five thirty PM.
3.30pm | three thirty PM
9am-5pm | nine AM to five PM
9 am - 5 pm | nine AM to five PM
9-11am | nine to eleven AM
9:00-17:00 | nine o'clock to five PM
1-800-555-0123 | one, eight zero zero, five five five, zero one two three
1 800 555 0123 | one, eight zero zero, five five five, zero one two three
415.555.0123 | four one five, five five five, zero one two three
12-34-56 | one two, three four, five six
10%-20% | ten percent to twenty percent
10-20% | ten to twenty percent
-10% | minus ten percent
5-10 km | five to ten kilometres
$5-$10 | five dollars to ten dollars
US$5-10 | US five dollars to ten
-$5 | minus five dollars
5-10 SAR | five to ten riyals
€1.234,50 | one thousand two hundred and thirty-four euros and fifty cents
1.234,50 € | one thousand two hundred and thirty-four euros and fifty cents
€12,50 | twelve euros and fifty cents
€1.50 | one euro and fifty cents
-5°C | minus five degrees Celsius
−5°C–3°C | minus five degrees Celsius to three degrees Celsius
the 1990s | the nineteen nineties
the 90s | the nineties
in 30s | in thirty seconds
1900s | nineteen hundreds
the 2010s | the twenty tens
Open Mon-Fri | Open Monday to Friday
1-800-FLOWERS | one, eight zero zero, flowers
call 1-888-GO-FEDEX now | call one, eight eight eight, go fedex now
1 800 FLOWERS | one, eight zero zero, flowers
800-XKCD-99 | eight zero zero, X K C D nine nine
(415) 555-HELP | four one five, five five five, help
1-800-555-HELP | one, eight zero zero, five five five, help
800-KB | eight hundred-KB
1 800 USD | one eight hundred dollars
open 24/7/365 | open twenty-four seven three hundred and sixty-five
2 1/2 cups | two and one half cups
½ cup, 3¼ hours | one half cup, three and one quarter hours
3/8 inch | three eighths inch
03/04 | March fourth
12/25/26 | December twenty-fifth, twenty twenty-six
January 5-7, 2026 | January fifth to January seventh, twenty twenty-six
5–7 January | January fifth to January seventh
the 1st-3rd | the first to third
noon-1pm | noon to one PM
in March 2026 | in March twenty twenty-six
2025-2026 | twenty twenty-five to twenty twenty-six
rated 8/10 or 4.5/5 | rated eight out of ten or four point five out of five
50/50 | fifty fifty
a ratio of 2:1 | a ratio of two to one
№ 5 | number five
10+ years | ten plus years
<5 minutes | less than five minutes
more if >100 or >= 3 | more if more than one hundred or at least three
±2, ≤3, ≈4, ~5 | plus or minus two, at most three, about four, about five
3 × 4 = 12 | three times four equals twelve
5 * 3 | five times three
twice, 3x or 10x | twice, three times or ten times
5M users | five million users
$1.5M | one point five million dollars
99¢ | ninety-nine cents
$.99 | ninety-nine cents
.5% | zero point five percent
$100/month or $20/hr | one hundred dollars per month or twenty dollars per hour
flight BA245 | flight BA two four five
order #A-1234 | order number A one two three four
ABC123456 | ABC one two three, four five six
your PIN is 1234 | your PIN is one two three four
card ending in 4242 | card ending in four two four two
555 1234 | five five five, one two three four
9-1-1 | nine, one, one
94105-1234 | nine four one, zero five, one two three four
Press * or #. | Press star or pound.
enter 5# and dial *67 | enter five pound and dial star six seven
5'10" and 1h30m | five feet ten inches and one hour thirty minutes
20 m² at 100 Mbps | twenty square metres at one hundred megabits per second
ask @example | ask at example
v2.1 | v two point one
+44 20 7946 0958 | plus four four, two zero, seven nine four six, zero nine five eight
"""

ARABIC = """
مرحبا كيف حالك؟ | مرحبا كيف حالك؟
عندي 3 كتب | عندي ثلاثة كتب
المبلغ ٤٥ ريال | المبلغ خمسة وأربعون ريالاً
1 ريال | ريال واحد
2 ريال | ريالان
3 ريال | ثلاثة ريالات
11 ريال | أحد عشر ريالاً
100 ريال | مئة ريال
101 ريال | مئة وريال واحد
200 ريال | مئتا ريال
11000 ريال | أحد عشر ألف ريال
12.5 ريال | اثنا عشر ريالاً وخمسون هللة
ر.س 5 | خمسة ريالات
$100 | مئة دولار
5 دراهم | خمسة دراهم
٣٫٥٪ | ثلاثة فاصلة خمسة بالمئة
١٢/٣/٢٠٢٦ | الثاني عشر من مارس عام ألفين وستة وعشرين
٣ مارس 2026 | الثالث من مارس عام ألفين وستة وعشرين
21 أبريل | الحادي والعشرون من أبريل
الساعة 3:30 | الساعة الثالثة والنصف
3:15 م | الساعة الثالثة والربع مساءً
9:05 | الساعة التاسعة وخمس دقائق
15:00 | الساعة الثالثة مساءً
رقمك 0501234567 | رقمك صفر خمسة صفر، واحد اثنان ثلاثة، أربعة خمسة ستة سبعة
+966 50 123 4567 | زائد تسعة ستة ستة، خمسة صفر، واحد اثنان ثلاثة، أربعة خمسة ستة سبعة
5 كم | خمسة كيلومترات
20 دقيقة | عشرون دقيقة
3 ساعات | ثلاث ساعات
25° | خمس وعشرون درجة
john@example.com | john آت example نقطة com
د. أحمد | الدكتور أحمد
1234 | ألف ومئتان وأربعة وثلاثون
2000000 ريال | مليونا ريال
الساعة 5:30pm | الساعة الخامسة والنصف مساءً
9ص-5م | الساعة التاسعة صباحاً إلى الساعة الخامسة مساءً
1-800-555-0123 | واحد، ثمانية صفر صفر، خمسة خمسة خمسة، صفر واحد اثنان ثلاثة
10%-20% | عشرة بالمئة إلى عشرون بالمئة
5-10 ريال | خمسة إلى عشرة ريالات
-5°C | ناقص خمس درجات مئوية
0th | رقم صفر
€1.234,50 | ألف ومئتان وأربعة وثلاثون يورو وخمسون سنتاً
اتصل على 1-800-FLOWERS | اتصل على واحد، ثمانية صفر صفر، flowers
السعر 1.5M$ | السعر واحد فاصلة خمسة مليون دولار
الساعة 9 | الساعة التاسعة
10 ريال/شهر | عشرة ريالات لكل شهر
2½ كم | اثنان ونصف كم
№ 5 | رقم خمسة
اضغط * أو # | اضغط نجمة أو مربع
أكثر من 8/10 | أكثر من ثمانية من عشرة
"""


def _cases(table: str) -> list[tuple[str, str]]:
    return [(written, spoken) for written, spoken in (row.split(" | ") for row in table.strip().splitlines())]


@pytest.mark.parametrize(("written", "spoken"), _cases(ENGLISH))
def test_english_is_said_as_people_say_it(written: str, spoken: str) -> None:
    assert verbalize(written, "en") == spoken


@pytest.mark.parametrize(("written", "spoken"), _cases(ARABIC))
def test_arabic_is_said_as_people_say_it(written: str, spoken: str) -> None:
    assert verbalize(written, "ar") == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("The store is open. It closes late.", "The store is open. It closes late."),
        ("I saw Dr. Smith. Thank you.", "I saw Doctor Smith. Thank you."),
        ("Write to us at example.com.", "Write to us at example dot com."),
        ("Ten dollars/month. No more.", "Ten dollars per month. No more."),
    ],
)
def test_a_dot_ends_a_sentence_an_abbreviation_or_is_said(written: str, spoken: str) -> None:
    assert verbalize(written, "en") == spoken


def test_british_english_has_the_day_first() -> None:
    assert verbalize("3/12/2026", "en-GB") == "the third of December, twenty twenty-six"
    assert verbalize("5-7 January", "en-GB") == "the fifth of January to the seventh of January"


def test_a_key_has_its_name_by_country() -> None:
    assert verbalize("Press #.", "en-US") == "Press pound."
    assert verbalize("Press #.", "en-GB") == "Press hash."


def test_another_language_keeps_its_text_with_plain_figures() -> None:
    assert verbalize("Das sind ٣ Euro, 5 €.", "de") == "Das sind 3 Euro, 5 €."


@pytest.mark.parametrize("written", ["05\n%", "5\n–6%", "05\n-6%", "7 \n¢", "1.5\tM", "$5\n-6", "2\n1/2"])
def test_a_line_may_end_within_a_figure(written: str) -> None:
    assert not any(character.isdecimal() for character in verbalize(written, "en"))


_WRITTEN = st.text(
    st.sampled_from("0123456789٠٣٩ .,:/-–−+@#$€£%&*()ap.mTZKkGhs°abc مرساةدق\n'\"½¾№<>=~±×x¢²MQABC")
    | st.characters(),
    max_size=80,
)


@given(_WRITTEN, st.sampled_from(("en", "en-GB", "ar", "de", "")))
def test_anything_can_be_said_and_saying_it_twice_changes_nothing(written: str, language: str) -> None:
    once = verbalize(written, language)
    assert verbalize(once, language) == once
    if language in ("en", "ar"):
        assert not any(character in "0123456789٠١٢٣٤٥٦٧٨٩" for character in once)


@given(st.integers(0, 10**15 - 1), st.integers(0, 10**15 - 1))
def test_different_numbers_sound_different(one: int, other: int) -> None:
    for language in ("en", "ar"):
        if one != other:
            assert verbalize(f"{one:,}", language) != verbalize(f"{other:,}", language)


@given(st.text(st.sampled_from("abcdefghij klmn,?!'مرحباكيف"), max_size=200))
def test_plain_words_are_left_alone(words: str) -> None:
    assert verbalize(words, "en") == words
    assert verbalize(words, "ar") == words


@pytest.mark.parametrize(
    "pattern",
    [
        "1",
        "1 ",
        "a.",
        "1,",
        "$1",
        "1-",
        "a@",
        "+1 ",
        "1/",
        "aa.aa@",
        "https://",
        "12:",
        "1.234,",
        "9-",
        "€1.",
        "1-8",
        "1-800-A",
        "800-AAAA-",
        "1 1/",
        "A1",
        "*1",
        "1:",
        "1'1",
        "1M",
        "May 1-",
        "1/day",
    ],
)
def test_a_long_text_is_said_too(pattern: str) -> None:
    """An expression that goes back and forth would be at it for minutes."""
    spoken = verbalize(pattern * (40_000 // len(pattern)), "en")
    assert not any(character.isdecimal() for character in spoken)
