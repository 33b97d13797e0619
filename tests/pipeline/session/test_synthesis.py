"""How a text is cut for a voice."""

from __future__ import annotations

import pytest

from pipeline.session.synthesis import sentences


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("We saw Dr. Jones and then Prof. Smith. He was well, as always.", 2),
        ("They live in the house no. 7 in this street. Do you know it?", 2),
        ("Yes. No. Well. I think so. It is on its way, and it comes on monday.", 2),
        ("One without an end", 1),
        ("... !", 0),
    ],
)
def test_a_text_is_cut_at_its_sentences(text: str, pieces: int) -> None:
    made = sentences(text)
    assert len(made) == pieces
    assert " ".join(made) == (text if pieces else "")


def test_a_text_of_abbreviations_keeps_no_call_waiting() -> None:
    text = "a. " * 60_000
    assert "".join(sentences(text)).split() == text.split()
