"""Turns with pauses: read as they are written, and spoken with the pauses where they belong."""

from __future__ import annotations

import numpy as np
import pytest

from bench.conversation.pauses import (
    OTHER_PROGRAM,
    OTHER_VOICES,
    TUNING_VOICES,
    Place,
    Turn,
    Voice,
    moments,
    read,
    speak,
)

TAXI = Turn("Where to?", ("To", "the", "old", "station,", "please."), ((2, Place.INSIDE), (4, Place.CLAUSE)))
TWICE = Turn("", ("It", "is", "late.", "I", "am", "tired."), ((3, Place.SENTENCE),))


@pytest.mark.parametrize("voice", [Voice("en-gb", 160), Voice("rms")])
def test_a_pause_is_cut_where_its_word_ends(voice: Voice) -> None:
    if not voice.is_there:
        pytest.skip("flite is not installed")
    sounds = speak([TAXI], [voice])
    first, second, end = moments([TAXI], sounds)
    assert [each.evidence.words for each in (first, second, end)] == [
        "to the",
        "to the old station",
        "to the old station please",
    ]
    assert [each.place for each in (first, second, end)] == [Place.INSIDE, Place.CLAUSE, None]
    lengths = [len(each.evidence.audio) for each in (first, second, end)]
    assert lengths == sorted(lengths)
    assert np.array_equal(first.evidence.audio[8000:9000], end.evidence.audio[8000:9000])


def test_a_pause_between_sentences_follows_one_that_was_read_by_itself() -> None:
    voice = Voice("en-us", 165)
    (sound,) = speak([TWICE], [voice])
    (alone,) = speak([Turn("", ("It", "is", "late."), ())], [voice])
    first, _ = moments([TWICE], [sound])
    assert first.place is Place.SENTENCE
    assert abs(len(first.evidence.audio) - 9600 - alone.samples.size) < 800


def test_nothing_was_tuned_on_that_is_held_out() -> None:
    tuned = {turn.text for turn in read("tuned_on_en.txt") if len(turn.words) > 4}
    held_out = read("held_out_en.txt")
    assert not tuned & {turn.text for turn in held_out}
    assert not {*TUNING_VOICES} & {*OTHER_VOICES, *OTHER_PROGRAM}
    assert len(held_out) >= 300


@pytest.mark.parametrize(
    "name", ["held_out_en.txt", "tuned_on_en.txt", "full_stops_en.txt", "held_out_ar.txt"]
)
def test_pauses_lie_inside_turns(name: str) -> None:
    for turn in read(name):
        assert turn.words
        assert turn.asked
        assert all(0 < at < len(turn.words) for at, _ in turn.pauses), turn.text
