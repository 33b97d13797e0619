"""Pronunciations are found in the file of cmudict without reading it whole."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import pocketsphinx
import pytest

from pipeline.stt.sphinx.decoder import Dictionary

CMUDICT = Path(pocketsphinx.get_model_path("en-us/cmudict-en-us.dict"))


@pytest.mark.parametrize("text", [CMUDICT.read_text(), "a AH\na(2) EY\nb B IY", "a AH\n"])
def test_a_word_has_the_pronunciations_of_its_lines(text: str, tmp_path: Path) -> None:
    path = tmp_path / "words.dict"
    path.write_text(text)
    dictionary = Dictionary(path)
    lines = [(entry, phones) for entry, _, phones in (line.partition(" ") for line in text.splitlines())]
    words = [(word, tuple(of)) for word, of in groupby(lines, key=lambda line: line[0].partition("(")[0])]
    for word, entries in [*words[::97], words[-1]]:
        assert dictionary.pronunciations(word) == entries
    for absent in ("", "(", "aaaa", "a(2)", "new york", "zzzz", "é"):
        assert not dictionary.knows(absent)
