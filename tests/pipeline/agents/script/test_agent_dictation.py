"""Digits said and keyed in parts, put right, confirmed and hidden; a script that changes its language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agent import (
    Expect,
    HangUp,
    Say,
    SendDigits,
    SwitchLanguage,
    UserKeyed,
    UserSaid,
)
from pipeline.errors import SettingsRefused
from pipeline.text.fold import plain_words
from pipeline.text.lexicon import lexicon
from pipeline.text.redaction import MASK
from pipeline.text.spoken_numbers import gathered, spoken_digits
from tests.support.http.llm import words
from tests.support.script_talk import joined, talk, told

SIX = """
start = "code"
[[step]]
id = "code"
say = "What is your code?"
expect = { digits = 6, key_timeout_s = 5.0, terminator = "*" }
collect = "code"
partial = "And then?"
next = "done"
[[step]]
id = "done"
say = "Thank you: {{code}}."
action = "hang_up"
"""

CARD = """
start = "card"
[[step]]
id = "card"
say = "What is your card number?"
expect = { digits = 16 }
collect = "card"
mask = true
confirm = "It ends in {{card.last4}}, yes?"
next = "pay"
[[step]]
id = "pay"
say = "Thank you."
action = "send_digits"
digits = "{{card}}"
next = "bye"
[[step]]
id = "bye"
action = "hang_up"
"""


@pytest.mark.parametrize(
    ("said", "digits"),
    [
        ("four hundred and five", "405"),
        ("four hundred five", "405"),
        ("one eight hundred five five five one two", "180055512"),
        ("five thousand", "5000"),
        ("triple two, five twice", "22255"),
        ("nineteen eighty four", "1984"),
        ("oh seven double nine", "0799"),
    ],
)
def test_english_digits_are_understood_as_people_say_them(said: str, digits: str) -> None:
    assert spoken_digits(plain_words(said), lexicon("en")) == digits


@pytest.mark.parametrize(
    ("said", "digits"),
    [
        ("خمسة وعشرون", "25"),
        ("خَمْسَةٌ ثَلاثَة", "53"),
        ("خمسه عشر", "15"),
        ("ثلاثمئة وخمسة وأربعون", "345"),
        ("واحد اتنين تلاتة اربعة", "1234"),
        ("سبعة مرتين", "77"),
        ("٠٥٠ ١٢٣", "050123"),
        ("ألفين وستة وعشرين", "2026"),
    ],
)
def test_arabic_digits_are_understood_however_they_are_spelt(said: str, digits: str) -> None:
    assert spoken_digits(plain_words(said), lexicon("ar")) == digits


@given(st.text("0123456789", min_size=2, max_size=16))
def test_digits_said_one_by_one_are_those_digits(figures: str) -> None:
    for language, names in (
        ("en", "zero one two three four five six seven eight nine"),
        ("ar", "صفر واحد اثنان ثلاثة أربعة خمسة ستة سبعة ثمانية تسعة"),
    ):
        said = " ".join(names.split()[int(figure)] for figure in figures)
        assert gathered(said, lexicon(language), wanted=len(figures)) == figures


@given(st.text(st.sampled_from("one hundred thousand and twenty double no 5 مئة و عشر ") | st.characters()))
def test_anything_can_be_said_for_digits(said: str) -> None:
    for language in ("en", "ar", "xx"):
        known = gathered(plain_words(said), lexicon(language), before="12")
        assert known == "" or known.isdecimal()


async def test_digits_may_come_in_parts_and_only_the_rest_is_asked_for() -> None:
    conversation = joined(SIX)
    acts = await talk(conversation, "it's four one five")
    assert words(acts) == "And then?"
    assert isinstance(acts[0], Expect)
    assert acts[0].expected.digits == 3
    assert words(await told(conversation, "nine two six")) == "Thank you: 4 1 5 9 2 6."


async def test_what_was_said_last_can_be_put_right() -> None:
    conversation = joined(SIX)
    await talk(conversation, "four one five nine two", "no, nine three")
    assert words(await told(conversation, "six")) == "Thank you: 4 1 5 9 3 6."


async def test_a_part_may_be_keyed() -> None:
    conversation = joined(SIX)
    await talk(conversation, "four one five", UserKeyed("92"))
    assert words(await told(conversation, UserKeyed("6"))) == "Thank you: 4 1 5 9 2 6."


async def test_the_whole_number_replaces_a_part() -> None:
    acts = await talk(joined(SIX), "four one", "four one five nine two six")
    assert words(acts) == "Thank you: 4 1 5 9 2 6."


async def test_words_that_are_no_digits_are_no_part_of_them() -> None:
    assert words(await talk(joined(SIX), "one moment please")) == "What is your code?"


async def test_a_half_answer_that_went_on_is_one_answer() -> None:
    conversation = joined(SIX)
    await talk(conversation, "four one five")
    whole = UserSaid("four one five nine two six", 0.9, continues=True)
    assert words(await told(conversation, whole)) == "Thank you: 4 1 5 9 2 6."


async def test_keys_end_as_the_script_says() -> None:
    acts = await talk(joined(SIX))
    assert isinstance(acts[0], Expect)
    assert (acts[0].expected.terminator, acts[0].expected.key_timeout_s) == ("*", 5.0)


async def test_a_masked_answer_is_confirmed_by_its_end_and_told_to_nobody() -> None:
    conversation = joined(CARD)
    acts = await talk(conversation, UserKeyed("4111111111111234"))
    assert isinstance(acts[0], Expect)
    assert acts[0].masked
    assert words(acts) == "It ends in 1 2 3 4, yes?"
    acts = await told(conversation, "no, six")
    assert words(acts) == "It ends in 1 2 3 6, yes?"
    acts = await told(conversation, "yes")
    assert SendDigits("4111111111111236") in acts
    assert acts[-1] == HangUp("completed")
    report = conversation.report()
    assert report.answers == {"card": MASK}
    assert "4111" not in report.summary


async def test_an_answer_that_is_not_right_is_asked_for_again() -> None:
    conversation = joined(CARD)
    acts = await talk(conversation, UserKeyed("4111111111111234"), "no")
    assert words(acts) == "What is your card number?"
    assert conversation.report().answers == {}


def test_a_script_that_would_say_what_it_hides_is_refused() -> None:
    with pytest.raises(SettingsRefused, match="masked"):
        joined(CARD.replace("Thank you.", "Thank you: {{card}}."))


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('collect = "code"\n', "mask = true\n", "mask"),
        ("expect = { digits = 6,", 'expect = { kinds = ["digits"],', "partial"),
        ('terminator = "*"', 'terminator = "x"', "terminator"),
        ('collect = "code"\n', 'collect = "code"\nlanguage = "arabic!"\n', "language"),
    ],
)
def test_mistakes_are_named(old: str, new: str, key: str) -> None:
    with pytest.raises(SettingsRefused, match=key):
        joined(SIX.replace(old, new).replace("{{code}}", ""))


async def test_a_script_can_change_the_language_and_back() -> None:
    conversation = joined(
        """
        start = "which"
        [[step]]
        id = "which"
        say = "English or Arabic?"
        answers = { arabic = ["arabic"], english = ["english"] }
        on = { arabic = "رقم", english = "bye" }
        [[step]]
        id = "رقم"
        language = "ar"
        say = "ما هو رقمك؟"
        expect = { digits = 4 }
        collect = "number"
        next = "bye"
        [[step]]
        id = "bye"
        language = "en"
        say = "Goodbye."
        action = "hang_up"
        """
    )
    acts = await talk(conversation, "arabic please")
    assert acts[0] == SwitchLanguage("ar")
    assert isinstance(acts[1], Expect)
    assert words(acts) == "ما هو رقمك؟"
    assert words(await told(conversation, "خمسة وعشرون")) == "تفضل، أكمل."
    acts = await told(conversation, "سبعة مرتين")
    assert acts == [SwitchLanguage("en"), Say("Goodbye."), HangUp("completed")]
    assert conversation.report().answers == {"number": "2577"}


async def test_arabic_is_matched_however_it_is_spelt() -> None:
    conversation = joined(
        """
        start = "day"
        [[step]]
        id = "day"
        say = "متى؟"
        answers = { sunday = ["يوم الأحد"], later = ["في المرة القادمة"] }
        on = { sunday = "bye", later = "later" }
        [[step]]
        id = "later"
        action = "hang_up"
        disposition = "later"
        [[step]]
        id = "bye"
        action = "hang_up"
        disposition = "sunday"
        """,
        "ar",
    )
    assert (await talk(conversation, "يَوْم الاحد من فضلك"))[-1] == HangUp("sunday")
