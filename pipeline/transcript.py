"""The transcript of a call: the caller's words as recognised, the agent's as far as the caller heard them.

Times are milliseconds on the call's media clock, which the recording shares: an entry can be found there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pipeline.speech import SpokenWord

_CHARACTERS_PER_S: Final = 14.0  # spoken English and Arabic, for an engine without word times cut off midway
_SLOWEST_CHARACTERS_PER_S: Final = 11.0


class Role(StrEnum):
    """The party that an entry of the transcript belongs to."""

    CALLER = "caller"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class TimedWord:
    """One word with its place on the call's media clock."""

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One party's stretch of words. `interrupted`: the agent was cut short here, `text` ends with the last
    word that the caller heard. `confidence` is the recogniser's, 1.0 for the agent. `words` may be
    empty."""

    role: Role
    text: str
    start_ms: int
    end_ms: int
    confidence: float = 1.0
    interrupted: bool = False
    words: tuple[TimedWord, ...] = ()


class Transcript:
    """The entries of one call in the order in which they ended."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[TranscriptEntry] = []

    def add(self, entry: TranscriptEntry) -> None:
        """Appends an entry; entries are added in the order in which they ended."""
        self._entries.append(entry)

    @property
    def entries(self) -> tuple[TranscriptEntry, ...]:
        """The entries added so far."""
        return tuple(self._entries)


def placed_words(
    text: str,
    spoken: Sequence[SpokenWord],
    *,
    samples: int,
    rate_hz: int,
    complete: bool,
    slowest: bool = False,
) -> tuple[SpokenWord, ...]:
    """The words of `text`, each with the samples at `rate_hz` in which it sounds.

    `spoken` are the engine's word times in the same samples, `samples` the length of what it made so far and
    `complete` whether that is all. Engine words as many as those of `text` (fewer while incomplete) are
    taken with the text's own spelling and punctuation; other engine words stand as they are (it said
    "twenty one" for "21"). Where the engine has none, the words are spread over the samples by their
    length, or over the usual speed of speech (the `slowest`, if asked) while the length is not known."""
    written = text.split()
    if not spoken:
        per_s = _SLOWEST_CHARACTERS_PER_S if slowest else _CHARACTERS_PER_S
        return _spread(written, samples=samples if complete else 0, by_speed=rate_hz / per_s)
    if len(spoken) == len(written) or (not complete and len(spoken) < len(written)):
        return tuple(SpokenWord(word, at.start, at.end) for word, at in zip(written, spoken, strict=False))
    return tuple(spoken)


def _spread(written: Sequence[str], *, samples: int, by_speed: float) -> tuple[SpokenWord, ...]:
    total = sum(len(word) + 1 for word in written)
    per_character = samples / total if samples and total else by_speed
    placed: list[SpokenWord] = []
    characters = 0
    for word in written:
        start = round(characters * per_character)
        characters += len(word) + 1
        placed.append(SpokenWord(word, start, round(characters * per_character)))
    return tuple(placed)


def heard_words(words: Sequence[SpokenWord], heard: int) -> tuple[SpokenWord, ...]:
    """Gives those of `words` that were heard when `heard` samples were: a word counts once half of its
    samples were."""
    return tuple(word for word in words if word.start < heard and word.start + word.end <= 2 * heard)
