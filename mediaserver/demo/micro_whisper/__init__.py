"""A 2.8 MB Whisper that knows 183 words of synthetic voices: the ears of the demo and of the tests.

It runs through the same `pipeline.stt.faster_whisper` as a real model, and it is no recogniser for
people: see README.md beside this file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

MODEL_DIR = Path(__file__).resolve().parent / "model"
"""The value of `model` in `[agent.stt]` for this model."""

WORDS_FILE = Path(__file__).resolve().parent / "words.txt"
"""The model's vocabulary, one word a line (the tokenizer alone cannot tell "to" from a piece of
"tomorrow")."""


@cache
def vocabulary() -> frozenset[str]:
    """Returns every word that the model can write, in lower case; speech to it must consist of these."""
    return frozenset(WORDS_FILE.read_text(encoding="utf-8").split())


def unknown_words(text: str) -> list[str]:
    """Returns the words of `text` that the model cannot hear, in order, without punctuation."""
    words = (word.strip('.,!?;:"()') for word in text.lower().split())
    return [word for word in words if word and word not in vocabulary()]
