"""Expected answers that a recogniser has spelt as it heard them."""

from __future__ import annotations

import pytest

from pipeline.engines.sound_alike import sounding_like
from pipeline.engines.whisper_rules import Decoded, believed

PHRASES = (
    "minute", "call forwarding", "lowercase", "telephone number", "fourth", "seventy", "twelfth", "removed",
    "speak to a person", "fifteen", "no",
)  # fmt: skip


@pytest.mark.parametrize(
    ("heard", "phrase"),
    [
        ("limit", "minute"),
        ("call for reading", "call forwarding"),
        ("lower case", "lowercase"),
        ("caliphone number", "telephone number"),
        ("force", "fourth"),
        ("7d", "seventy"),
        ("12", "twelfth"),
        ("we moved", "removed"),
    ],
)
def test_what_sounds_like_an_expected_answer_is_it(heard: str, phrase: str) -> None:
    assert sounding_like(heard, PHRASES, "en-US") == phrase


@pytest.mark.parametrize(
    "heard",
    [
        "hello there",
        "50",  # fifteen
        "14",  # fourth
        "go",  # no
        "",
        "one minute please",  # holds an answer as it is
        "i have a question about the minute of the meeting today",
        "zxqv",
    ],
)
def test_what_does_not_is_left_as_it_is(heard: str) -> None:
    assert sounding_like(heard, PHRASES, "en") == ""


def test_what_sounds_like_two_answers_is_neither() -> None:
    assert sounding_like("fourty eight", ("forty aid", "forty ate"), "en") == ""


def test_another_language_has_no_sounds() -> None:
    assert sounding_like("limit", PHRASES, "ar") == ""


def test_an_expected_answer_is_believed_sooner_than_another_text() -> None:
    golf = Decoded("Golf.", -1.1, 0.2)  # a recorded "golf": 0.33
    assert believed(golf, language="en", min_confidence=0.4).text == ""
    assert believed(golf, language="en", min_confidence=0.4, phrases=("golf", "tennis")).text == "golf"
    gulf = Decoded("Gulf.", -1.1, 0.2)
    assert believed(gulf, language="en", min_confidence=0.4, phrases=("golf", "tennis")).text == ""


def test_the_words_are_those_of_the_answer() -> None:
    heard = believed(Decoded("Limit.", -0.6, 0.1), language="en", min_confidence=0.4, phrases=PHRASES)
    assert (heard.text, [word.text for word in heard.words]) == ("minute", ["minute"])
