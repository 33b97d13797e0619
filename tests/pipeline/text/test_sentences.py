"""Texts cut where a voice can begin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.text.sentences import sentences, shortened


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("We saw Dr. Jones and then Prof. Smith. He was well, as always.", 2),
        ("They live in the house no. 7 in this street. Do you know it?", 2),
        ("Yes. No. Well. I think so. It is on its way, and it comes on monday.", 2),
        ("One without an end", 1),
        ('He told us "it is on its way." And then he left us alone.', 2),
        ("آپ کا آرڈر کل پہنچ جائے گا۔ کیا یہ ٹھیک ہے؟", 2),
        ("The visit is on Mon. or on Tue. of the week, approx. at 9 a.m. sharp. Is it fine?", 2),
        ("", 0),
    ],
)
def test_a_text_is_cut_at_its_sentences(text: str, pieces: int) -> None:
    made = list(sentences(text, shortest=24))
    assert len(made) == pieces
    assert " ".join(made) == text


def test_a_text_of_abbreviations_keeps_no_call_waiting() -> None:
    text = "a. " * 60_000
    assert "".join(sentences(text, shortest=24)).split() == text.split()


def test_a_text_of_marks_keeps_no_call_waiting() -> None:
    """As a model writes them whose weights are damaged."""
    text = "!" * 400_000
    assert list(sentences(text, shortest=24)) == [text]


@given(st.text(alphabet="ab3 .,;:!?…؟۔،؛—\"'”’)]\n", max_size=80), st.integers(5, 30))
def test_nothing_but_spaces_is_lost(text: str, longest: int) -> None:
    parts = [part for sentence in sentences(text) for part in shortened(sentence, longest)]
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part) <= longest for part in parts)
