"""Says names as an agent's operator writes them for the voice ("Nguyen" as "win"), and keeps them in the
transcript as they are."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pipeline.speech import SpokenWord

_TOKEN: Final = re.compile(r"\S+(?:\s+[^\w\s]+(?=\s|$))*")  # a lone dash belongs to the word before it


class Pronunciation:
    """The words of `table` and what the voice gets in their place, whole words in any case."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._said = {word.lower(): said for word, said in table.items()}
        longest_first = sorted(map(re.escape, table), key=len, reverse=True)
        self._words = re.compile(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)", re.IGNORECASE)

    def respelled(self, text: str) -> Respelled:
        """Returns `text` as the voice gets it."""
        if not self._said:
            return Respelled(text, ())
        parts = [(each[0], self._words.sub(self._place, each[0])) for each in _TOKEN.finditer(text)]
        return Respelled(
            " ".join(said for _, said in parts), [(word, len(_tokens(said))) for word, said in parts]
        )

    def _place(self, match: re.Match[str]) -> str:
        return self._said[match[0].lower()]


class Respelled:
    """A text for a voice. `words` puts the written words in the place of the spoken ones."""

    def __init__(self, text: str, counts: Sequence[tuple[str, int]]) -> None:
        self.text = text
        self._counts = deque(counts)
        self._is_respelled = bool(counts)
        self._left = 0  # spoken words of the written one under way

    def extend(self, more: Respelled) -> None:
        """Adds a text that follows this one."""
        self._counts += more._counts
        self._is_respelled = self._is_respelled or more._is_respelled

    def words(self, spoken: Sequence[SpokenWord]) -> list[SpokenWord]:
        """Takes further words as the voice says them; returns the written ones, each with the times of all
        that stand for it in this piece."""
        if not self._is_respelled:
            return list(spoken)
        written: list[SpokenWord] = []
        for word in spoken:
            if self._left:
                self._left -= 1
                if written:
                    written[-1] = replace(written[-1], end=word.end)
                continue
            text, count = self._counts.popleft() if self._counts else (word.text, 1)
            self._left = max(0, count - 1)
            written.append(replace(word, text=text))
        return written


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)
