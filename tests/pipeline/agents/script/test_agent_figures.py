"""A script's phrases and a recogniser's figures: "option 2" says "option two", "the 23rd" says its words."""

from __future__ import annotations

import pytest

from pipeline.agents.script.position import label_in
from pipeline.text.answers import value_of
from pipeline.text.fold import plain_words
from pipeline.text.lexicon import lexicon


@pytest.mark.parametrize(
    ("phrase", "heard"),
    [
        ("option two", "Option 2."),
        ("two", "2"),
        ("2", "two"),
        ("tomorrow at three thirty", "Tomorrow at 3:30, please."),
        ("three thirty", "330"),
        ("twenty five", "25."),
        ("one hundred", "100"),
        ("nine to five", "9 to 5"),
        ("the twenty third of march", "The 23rd of March."),
        ("december twelfth", "December 12th"),
        ("january first nineteen eighty five", "January 1st, 1985."),
        ("two", "two two"),
        ("oh no", "oh no"),
    ],
)
def test_a_phrase_is_found_in_either_spelling(phrase: str, heard: str) -> None:
    text = plain_words(heard)
    assert label_in(text, {plain_words(phrase): "label"}, lexicon("en")) == "label"


@pytest.mark.parametrize(
    ("phrase", "heard"),
    [
        ("two", "1 2 3"),
        ("two", "22"),
        ("twenty", "25"),
        ("for", "4"),
        ("option two", "option 21"),
    ],
)
def test_a_phrase_is_not_found_in_another_number(phrase: str, heard: str) -> None:
    assert label_in(heard, {phrase: "label"}, lexicon("en")) == ""


def test_arabic_phrases_have_both_spellings_too() -> None:
    assert label_in("٢٥", {"خمسة وعشرون": "label"}, lexicon("ar")) == "label"


@pytest.mark.parametrize(
    ("heard", "digits"), [("5550142", "5550142"), ("555-0142", "5550142"), ("7 7 3 0", "7730")]
)
def test_digits_are_taken_as_a_model_may_write_them(heard: str, digits: str) -> None:
    assert value_of("digits", plain_words(heard), lexicon("en"), digits=len(digits)) == digits


@pytest.mark.parametrize("heard", ["the 3rd", "March 5th", "may 1st", "monday the 23rd"])
def test_a_date_may_be_written_in_figures(heard: str) -> None:
    assert value_of("date", plain_words(heard), lexicon("en"))
