"""Weights are learnt from where callers pause and where they are done."""

from __future__ import annotations

import pytest

from bench.conversation.pauses import read
from bench.training.phrase_model import LEARNT_FROM, learn
from bench.training.weights import TUNED_ON


def test_what_stands_at_ends_weighs_for_the_end_and_what_stands_before_pauses_against_it() -> None:
    found = [frozenset({"last please", "length 3"})] * 20 + [frozenset({"last the", "length 3"})] * 60
    weights = learn(found, [True] * 20 + [False] * 60)
    assert weights["last please"] > 0.5
    assert weights["last the"] < -0.5
    assert weights["length 3"] == pytest.approx(0.0, abs=0.3)  # ends count as much as pauses, though fewer


def test_what_was_hardly_seen_has_no_weight() -> None:
    found = [frozenset({"has saffron"})] * 2 + [frozenset({"last the"})] * 5
    assert set(learn(found, [True] * 2 + [False] * 5)) == {"last the"}


@pytest.mark.parametrize("name", ["held_out_en.txt", "another_hand_en.txt", "full_stops_en.txt", *TUNED_ON])
def test_no_turn_that_is_measured_or_weighed_was_learnt_from(name: str) -> None:
    """Short answers are anybody's."""
    learnt = {turn.text.lower() for turn in read(LEARNT_FROM)}
    assert not [turn for turn in read(name) if len(turn.words) > 4 and turn.text.lower() in learnt]
