"""Expected answers that a recogniser has spelt as it heard them."""

from __future__ import annotations

import pytest

from pipeline.stt.whisper.rules import believed
from pipeline.stt.whisper.sound_alike import sounding_like
from pipeline.stt.whisper.wire import Decoded

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


@pytest.mark.parametrize(
    ("heard", "phrases"),
    [
        ("i can't come", ("i can come", "another day")),
        ("i can come", ("i can't come", "another day")),
        ("i don't want to cancel it", ("i want to cancel it", "keep it")),
        ("i haven't paid", ("i have paid", "i will call back")),
        ("i havent paid", ("i have paid", "i will call back")),
        ("sunday", ("monday", "tuesday")),
        ("sun day", ("monday", "tuesday")),
        ("june", ("july",)),
        ("the third", ("the first",)),
        ("extension fifty", ("extension fifteen",)),
        ("unlock my card", ("lock my card", "lost card")),
        ("unlocked my card", ("lock my card", "lost card")),
        ("decrease", ("increase",)),
        ("inbound", ("outbound",)),
        ("unsubscribe", ("subscribe", "help")),
        ("unconfirmed", ("confirmed", "cancelled")),
        ("incorrect", ("correct",)),
        ("turn on", ("turn off",)),
    ],
)
def test_an_answer_is_never_taken_for_its_opposite_or_another_day(
    heard: str, phrases: tuple[str, ...]
) -> None:
    assert sounding_like(heard, phrases, "en") == ""
    for log_probability in (-0.1, -0.7):  # 0.90 and 0.50
        decoded = Decoded(f"{heard}.", log_probability, 0.1)
        assert believed(decoded, language="en", min_confidence=0.4, phrases=phrases).text == heard


@pytest.mark.parametrize(
    ("heard", "log_probability", "text"),
    [
        ("limit", -0.6, "minute"),  # 0.55
        ("limit", -0.45, "limit"),  # 0.64
        ("we moved", -0.45, "removed"),  # one sound of six, a near one
        ("we moved", -0.2, "we moved"),  # 0.82
    ],
)
def test_what_the_model_is_sure_of_is_what_was_said(heard: str, log_probability: float, text: str) -> None:
    decoded = Decoded(heard, log_probability, 0.1)
    assert believed(decoded, language="en", min_confidence=0.4, phrases=PHRASES).text == text


@pytest.mark.parametrize(
    ("heard", "phrase"),
    [
        ("lower case", "lowercase"),
        ("in valid choice", "invalid choice"),
        ("press 1 4", "press one for"),
        ("12", "twelfth"),
    ],
)
def test_another_spelling_of_an_expected_answer_is_it_however_sure_the_model_is(
    heard: str, phrase: str
) -> None:
    decoded = Decoded(heard, -0.1, 0.1)
    assert believed(decoded, language="en", min_confidence=0.4, phrases=(phrase, "golf")).text == phrase


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
