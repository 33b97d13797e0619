"""The record of what is answered before the end of the turn."""

from __future__ import annotations

import pytest

from pipeline.turns.events import FinalTranscript, PartialTranscript
from pipeline.turns.speculation import MAX_WRONG_GUESSES, Speculation


@pytest.mark.parametrize(
    ("heard_until", "now", "whole"),
    [(10.0, 0.17, False), (10.0, 0.19, True), (0.14, 0.19, False), (0.18 - 1e-9, 0.3, True)],
)
def test_a_partial_result_is_whole_after_silence_that_the_recogniser_heard(
    heard_until: float, now: float, whole: bool
) -> None:
    assert Speculation().is_whole(PartialTranscript(1, "yes", heard_until), 0.0, now) == whole


def test_a_recogniser_that_was_wrong_twice_in_a_row_is_not_believed() -> None:
    speculation = Speculation(answered="yes")
    for _ in range(MAX_WRONG_GUESSES):
        assert speculation.is_whole(PartialTranscript(1, "yes"), 0.0, 1.0)
        assert not speculation.confirms(FinalTranscript(1, "yes please", 0.9))
    assert not speculation.is_whole(PartialTranscript(1, "yes"), 0.0, 1.0)
    assert speculation.confirms(FinalTranscript(1, "yes", 0.9))
    assert speculation.is_whole(PartialTranscript(1, "yes"), 0.0, 1.0)


@pytest.mark.parametrize(
    ("final", "confirmed"),
    [
        (FinalTranscript(1, "yes", 0.9), True),
        (FinalTranscript(1, "yes", 0.2), False),
        (FinalTranscript(1, "no", 0.9), False),
        (FinalTranscript(1, "", failed=True), True),
    ],
)
def test_sure_and_equal_words_confirm_a_guess_as_does_a_broken_recogniser(
    final: FinalTranscript, confirmed: bool
) -> None:
    assert Speculation(answered="yes").confirms(final) == confirmed


@pytest.mark.parametrize(("text", "older"), [("i want", True), ("i want tea", False), ("you want", False)])
def test_final_words_that_begin_what_is_answered_are_older(text: str, older: bool) -> None:
    assert Speculation(answered="i want tea").is_older(FinalTranscript(1, text)) == older
