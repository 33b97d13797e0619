"""How long a pause must be, given the words."""

from __future__ import annotations

import pytest

from pipeline.endpointing.policy import Endpointing
from pipeline.settings import SessionSettings
from pipeline.speech import Expected

BASE, COMPLETE, UNFINISHED, DIGITS = 500, 300, 1100, 1200
DIGITS4 = Expected(kinds=("digits",), digits=4)
YES_NO = Expected(kinds=("yes_no",))


def delay(text: str, expected: Expected | None = None, language: str = "en") -> int:
    settings = SessionSettings(
        language=language,
        endpoint_ms=BASE,
        endpoint_complete_ms=COMPLETE,
        endpoint_unfinished_ms=UNFINISHED,
        endpoint_digits_ms=DIGITS,
    )
    return Endpointing(settings).delay_ms(text, expected)


@pytest.mark.parametrize("text", ["", "hello there", "i would like to book a table", "tomorrow"])
def test_an_ordinary_end(text: str) -> None:
    assert delay(text) == BASE


@pytest.mark.parametrize(
    "text", ["my number is", "i want the", "well um", "yes and", "hold on", "from paris to"]
)
def test_a_phrase_that_asks_for_more(text: str) -> None:
    assert delay(text) == UNFINISHED


@pytest.mark.parametrize("text", ["five five", "it is four oh seven", "my code is 4 0 7", "4071 22"])
def test_dictated_digits(text: str) -> None:
    assert delay(text) == DIGITS


def test_a_single_digit_is_an_answer_unless_digits_are_expected() -> None:
    assert delay("table for two") == BASE
    assert delay("five", DIGITS4) == DIGITS
    assert delay("to", DIGITS4) == DIGITS
    assert delay("five", Expected(kinds=("digits",))) == DIGITS


def test_all_expected_digits_are_there() -> None:
    assert delay("four oh seven", DIGITS4) == DIGITS
    assert delay("four oh seven one", DIGITS4) == COMPLETE
    assert delay("it is 4071", DIGITS4) == COMPLETE


def test_exact_phrase() -> None:
    expected = Expected(phrases=("monday", "monday morning", "no"))
    assert delay("monday morning", expected) == COMPLETE
    assert delay("no", expected) == COMPLETE
    assert delay("monday", expected) == BASE  # may go on
    assert delay("sunday", expected) == BASE


@pytest.mark.parametrize("text", ["yes", "no", "okay", "yep"])
def test_yes_and_no(text: str) -> None:
    assert delay(text, YES_NO) == COMPLETE
    assert delay(text) == BASE


def test_arabic() -> None:
    assert delay("نعم", YES_NO, "ar") == COMPLETE
    assert delay("رقمي هو", None, "ar-SA") == UNFINISHED
    assert delay("خمسة خمسة", None, "ar") == DIGITS
    assert delay("اريد موعد يوم الاثنين", None, "ar") == BASE


def test_a_language_without_lists_still_knows_figures_and_phrases() -> None:
    assert delay("c'est le", None, "fr") == BASE
    assert delay("4 0 7 1", DIGITS4, "fr") == COMPLETE
    assert delay("oui", Expected(phrases=("oui",)), "fr") == COMPLETE


def test_longer_waits_are_never_shorter_than_the_base() -> None:
    patient = Endpointing(SessionSettings(endpoint_ms=2000))
    assert patient.delay_ms("my number is", None) == 2000
    assert patient.delay_ms("five five", None) == 2000
    assert patient.base_ms == 2000
