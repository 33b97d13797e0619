"""Words that a voice cannot read are left out."""

from __future__ import annotations

import pytest

from pipeline.text.scripts import readable


@pytest.mark.parametrize(
    ("text", "language", "left"),
    [
        ("We say مرحبا to greet.", "en", "We say to greet."),
        ("It means thanks (شكرا).", "en-GB", "It means thanks."),
        ("你好, my friend.", "en", "my friend."),
        ("مرحبا بك.", "en", ""),
        ("مرحبا بك في WhatsApp.", "ar", "مرحبا بك في WhatsApp."),
        ("مرحبا 你好 بك.", "ar-SA", "مرحبا بك."),
        ("Привет, мир", "ru", "Привет, мир"),
        ("Привет, мир", "de", ""),
        ("Crème brûlée, naïve, ½ “quoted” – 5 °C", "en", "Crème brûlée, naïve, ½ “quoted” – 5 °C"),
        ("Привет", "xx", "Привет"),
    ],
)
def test_words_in_another_script_are_left_out(text: str, language: str, left: str) -> None:
    assert readable(text, language) == left
