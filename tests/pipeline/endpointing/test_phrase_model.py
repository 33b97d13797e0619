"""What the words of a turn say about whether it goes on, as learnt."""

from __future__ import annotations

import pytest

from pipeline.endpointing.phrase_model import WEIGHTS, Wording, traits, wording
from pipeline.text.word_lists import plain

HELP = "How can I help you?"


def odds(words: str, asked: str = HELP) -> float:
    return wording().odds(plain(words), asked)


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("I'd like to book a table for", "I'd like to book a table for two"),
        ("can I speak to the", "can I speak to the manager"),
        ("I was told to call my", "I was told to call my doctor"),
        ("I think it was the", "I think it was the green one"),
    ],
)
def test_words_that_want_another_weigh_less_than_the_whole(part: str, whole: str) -> None:
    assert odds(part) < odds(whole) - 1.0


def test_what_was_asked_says_what_is_an_answer() -> None:
    assert odds("yes", "Is that correct?") > odds("yes", HELP) + 0.5
    assert odds("I would like to come in", HELP) > odds("I would like to come in", "When is best?") + 0.5


def test_numbers_weigh_alike_however_they_are_written() -> None:
    assert odds("twelve people", "How many?") == odds("12 people", "How many?")
    assert odds("don't know") == odds("dont know")


def test_a_story_is_not_over_for_its_length() -> None:
    last = "and then on the Monday he told me that they had no more of the green ones"
    once, thrice = f"i was in the shop {last}", f"i was in the shop {last} {last} {last}"
    assert odds(once) == odds(thrice)


def test_weights_are_of_traits_that_can_be_found() -> None:
    lines = [line.partition(" ") for line in WEIGHTS.read_text(encoding="ascii").splitlines()]
    known = {trait for _, _, trait in lines}
    assert len(known) == len(lines) > 1000
    found = traits("id like to book a table for two", HELP)
    assert len(found & known) > len(found) // 2
    assert Wording({}).odds("yes", HELP) == 0.0


def test_words_of_other_languages_say_little() -> None:
    assert abs(odds("اريد ان احجز")) < 3.0
