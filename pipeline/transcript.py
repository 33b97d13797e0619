"""The transcript of a call: the caller's words as recognised, the agent's as far as the caller heard them.

Times are milliseconds on the call's media clock, which the recording shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pipeline.speech import SpokenWord

_CHARACTERS_PER_S: Final = 14.0  # of English and Arabic speech, for an incomplete text without word times
_SLOWEST_CHARACTERS_PER_S: Final = 11.0

_PAUSES: Final = ",;:.?!"
_PAUSE: Final = 3
"""A pause in characters. With it, and without the silence at the end, words placed by length are 166 and not
348 ms (p95 of 157 words) from where espeak-ng says them."""


class Role(StrEnum):
    """The party that an entry of the transcript belongs to."""

    CALLER = "caller"
    AGENT = "agent"
    COLLEAGUE = "colleague"  # a person who took the call over from the agent


@dataclass(frozen=True, slots=True)
class TimedWord:
    """One word with its times in milliseconds on the call's media clock."""

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """Words that one party said in a row. `interrupted`: the caller stopped the agent, and `text` ends with
    the last word that the caller heard; `unheard`: the words after it. `confidence`: the recogniser's, 0 to
    1; 1.0 for the agent. `words`: the words with times, empty where the engine has none."""

    role: Role
    text: str
    start_ms: int
    end_ms: int
    confidence: float = 1.0
    interrupted: bool = False
    words: tuple[TimedWord, ...] = ()
    unheard: str = ""


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
    """Gives the words of `text`, each with its first sample and the one after its last, at `rate_hz`.

    `spoken`: the engine's word times in the same samples; `samples`: length of the audio so far; `complete`:
    the audio is whole. Engine words of the same number as those of `text` (or fewer while incomplete) get the
    text's spelling and punctuation; otherwise the engine's words are given ("twenty one" for "21"). Without
    engine words, the text's words are spread over the samples by length, or while incomplete at the usual
    speed of speech (`slowest`: at the slowest speed)."""
    written = text.split()
    if not spoken:
        per_s = _SLOWEST_CHARACTERS_PER_S if slowest else _CHARACTERS_PER_S
        return _spread(written, samples=samples if complete else 0, by_speed=rate_hz / per_s)
    if len(spoken) == len(written) or (not complete and len(spoken) < len(written)):
        return tuple(SpokenWord(word, at.start, at.end) for word, at in zip(written, spoken, strict=False))
    return tuple(spoken)


def _spread(written: Sequence[str], *, samples: int, by_speed: float) -> tuple[SpokenWord, ...]:
    lengths = [len(word) + 1 + (_PAUSE if samples and word[-1] in _PAUSES else 0) for word in written]
    per_character = samples / sum(lengths) if samples and written else by_speed
    placed: list[SpokenWord] = []
    characters = 0
    for word, length in zip(written, lengths, strict=True):
        start = round(characters * per_character)
        characters += length
        placed.append(SpokenWord(word, start, round(characters * per_character)))
    return tuple(placed)


def unheard_words(text: str, heard: Sequence[SpokenWord]) -> str:
    """Gives the words of `text` after those that were `heard`; "" where an engine spells its words otherwise
    than the text."""
    written = text.split()
    begun = written[: len(heard)] == [word.text for word in heard]
    return " ".join(written[len(heard) :]) if begun else ""


def heard_words(words: Sequence[SpokenWord], heard: int) -> tuple[SpokenWord, ...]:
    """Gives those of `words` that a listener has heard after `heard` samples: a word counts from half of its
    samples on."""
    return tuple(word for word in words if word.start < heard and word.start + word.end <= 2 * heard)
