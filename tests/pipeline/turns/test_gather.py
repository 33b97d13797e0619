"""The record of the keys of an answer."""

from __future__ import annotations

import pytest

from pipeline.speech import Expected
from pipeline.text.word_lists import word_lists
from pipeline.turns.gather import MAX_KEYS, Gather
from pipeline.turns.noise import WORDLESS_S

LISTS = word_lists("en")


def gathering(keys: str = "", expected: Expected | None = None, *, masked: bool = False) -> Gather:
    """Keys that wait for the next one for 2 s, all pressed at 0 s."""
    gather = Gather(2.0)
    gather.expect(expected, masked=masked)
    for key in keys:
        gather.press(key, 0.0)
    return gather


def test_all_digits_are_an_answer_and_fewer_wait_for_the_next() -> None:
    gather = gathering(expected=Expected(digits=2))
    assert gather.press("4", 0.0) == 2.0
    assert gather.press("7", 1.0) == 1.0
    assert gather.take() == "47"
    assert not gather.has_begun


def test_a_terminator_ends_an_answer_and_is_none_of_its_keys() -> None:
    gather = gathering("12", Expected(digits=9, terminator="#"))
    assert gather.press("#", 1.0) == 1.0
    assert gather.take() == "12"


def test_a_choice_is_whole_unless_another_begins_with_it() -> None:
    gather = gathering(expected=Expected(choices=("1", "12", "3")))
    assert gather.press("3", 0.0) == 0.0
    gather.take()
    assert gather.press("1", 1.0) == 3.0


def test_a_key_that_is_stuck_ends() -> None:
    assert gathering("5" * (MAX_KEYS - 1)).press("5", 1.0) == 1.0


@pytest.mark.parametrize(("keys", "digits"), [("", 4), ("1", 3), ("12345", 1)])
def test_what_is_awaited_is_the_rest_of_what_has_begun(keys: str, digits: int) -> None:
    awaited = gathering(keys, Expected(digits=4)).awaited
    assert awaited is not None
    assert awaited.digits == digits


def test_nothing_is_awaited_where_nothing_is_expected() -> None:
    assert gathering("1").awaited is None


@pytest.mark.parametrize(
    ("text", "said"),
    [("four seven", True), ("um four seven", True), ("four", True), ("five", False), ("help", False)],
)
def test_who_reads_aloud_what_they_key_says_no_more(text: str, said: bool) -> None:
    assert gathering("47").is_said_by(text, LISTS) == said


def test_a_terminator_behind_an_answer_belongs_to_that_answer_once() -> None:
    gather = gathering("47", Expected(digits=2, terminator="#"))
    assert not gather.is_trailing_key("#", 0.5)  # it ends the keys that have begun
    gather.take()
    assert gather.is_trailing_key("#", 0.5)
    assert not gather.is_trailing_key("#", 0.6)


def test_a_digit_too_many_of_a_masked_number_belongs_to_it() -> None:
    gather = gathering("47", Expected(digits=2), masked=True)
    gather.take()
    assert gather.is_trailing_key("9", 0.5)
    assert not gather.is_trailing_key("9", 5.0)


def test_a_voice_keeps_keys_waiting_after_their_time_and_a_second_of_its_own() -> None:
    gather = gathering("4")
    assert not gather.is_kept_waiting(0.0, 1.9)
    assert gather.is_kept_waiting(0.0, 2.0)
    assert not gather.is_kept_waiting(1.5, 2.0)
    assert gather.is_kept_waiting(1.5, 1.5 + WORDLESS_S)
    gather.forget()
    assert not gather.is_kept_waiting(0.0, 9.0)
