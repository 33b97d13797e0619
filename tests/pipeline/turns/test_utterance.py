"""The record of what the caller is saying."""

from __future__ import annotations

import pytest

from pipeline.turns.events import FinalTranscript
from pipeline.turns.utterance import CallerUtterance


def spoken(*words: tuple[float, str]) -> CallerUtterance:
    """An utterance that began at 1 s, with its partial results."""
    utterance = CallerUtterance(0.0)
    utterance.begin(1.0)
    for moment, text in words:
        utterance.note_words(text, moment)
    return utterance


def test_a_new_utterance_forgets_the_words_of_the_last_one() -> None:
    utterance = spoken((1.5, "i want"))
    utterance.words = FinalTranscript(1, "i want tea")
    utterance.begin(4.0)
    assert (utterance.known, utterance.text, utterance.heard_since) == ("", "", 4.0)


def test_a_voice_that_goes_on_keeps_the_partial_result_and_not_the_answer() -> None:
    utterance = spoken((1.5, "i want"))
    utterance.words = FinalTranscript(1, "i want")
    utterance.go_on(3.0)
    assert (utterance.partial, utterance.text) == ("i want", "")
    assert (utterance.heard_since, utterance.voice_since) == (1.0, 3.0)


def test_a_voice_is_wordless_since_its_last_word_or_since_the_pause_before_it() -> None:
    utterance = spoken((1.5, "i want"))
    assert utterance.wordless_s(2.0) == 0.5
    utterance.go_on(3.0)
    assert utterance.wordless_s(3.25) == 0.25


@pytest.mark.parametrize(("text", "more"), [("i want tea", True), ("we want", False), ("", False)])
def test_only_a_longer_text_says_more(text: str, more: bool) -> None:
    assert spoken((1.5, "i want")).is_more(text) == more


@pytest.mark.parametrize(
    ("answer", "known"),
    [(None, "i want"), ("i", "i want"), ("i want tea", "i want tea")],
)
def test_what_is_known_is_the_longer_of_partial_result_and_answer(answer: str | None, known: str) -> None:
    utterance = spoken((1.5, "i want"))
    utterance.words = FinalTranscript(1, answer) if answer is not None else None
    assert utterance.known == known


@pytest.mark.parametrize(
    ("words", "empty"),
    [
        (None, False),
        (FinalTranscript(1, ""), True),
        (FinalTranscript(1, "", failed=True), False),
        (FinalTranscript(1, "yes"), False),
    ],
)
def test_only_an_answer_without_words_is_empty(words: FinalTranscript | None, empty: bool) -> None:
    utterance = spoken()
    utterance.words = words
    assert utterance.is_empty == empty


def test_words_of_another_turn_are_not_understood_in_this_one() -> None:
    utterance = spoken()
    utterance.words = FinalTranscript(3, "yes")
    assert utterance.is_understood(3)
    assert not utterance.is_understood(4)


def test_a_question_from_before_the_pause_was_not_about_the_voice_after_it() -> None:
    utterance = spoken()
    utterance.asked_at = 2.0
    assert utterance.is_asked_whole
    utterance.go_on(3.0)
    assert not utterance.is_asked_whole
