"""Maps the words of a text to the word times that a voice reports."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter

import numpy as np

from pipeline.audio import Pcm, silence
from pipeline.speech import SpeechChunk, SpokenWord
from pipeline.tts.subprocess_wire import Word

_TOKEN = re.compile(r"\S+(?:\s+[^\w\s]+(?=\s|$))*")  # a lone dash belongs to the word before it

_QUIET = 200
"""Level (of 32768) below which espeak-ng is silent: a sentence ends with a faint tail and zeros."""


class SpeechCutter:
    """Takes the samples and word events of one sentence and gives chunks of whole words.

    A chunk ends where a word of the text begins, so that every word has its exact start and end; the first
    chunk therefore waits for the second word (a fraction of a millisecond of synthesis). The engine splits
    "12/05" or "$3.50" into several spoken words and gives no event for some short words: a word of the text
    starts at the first event inside it, and words without an event share the time between their neighbours.
    """

    def __init__(self, sentence: str, *, offset: int, spoken: str = "") -> None:
        """`offset`: samples before the sentence; `spoken`: the engine's text for `sentence`, with the same
        number of words; "": the same text."""
        given = [match.end() for match in _TOKEN.finditer(spoken or sentence)]
        shown = [match.group() for match in _TOKEN.finditer(sentence)]
        self._tokens = list(zip(given, shown, strict=True))
        self._offset = offset
        self._starts: list[int] = []
        """Starts of the tokens known so far, in samples of the sentence."""
        self._given_words = 0
        self._given = 0
        self._total = 0
        self._held: list[Pcm] = []

    def push(self, samples: Pcm, events: Sequence[Word]) -> SpeechChunk | None:
        """Takes more of the sentence, int16 samples; returns the chunk of the words that are complete now,
        None for none."""
        self._held.append(samples)
        self._total += len(samples)
        for event in events:
            self._began(self._token_at(event.position), event.sample)
        if len(self._starts) - self._given_words < 2 or self._starts[-1] > self._total:
            return None
        return self._cut(self._starts[-1], self._starts[self._given_words :])

    def finish(self) -> SpeechChunk | None:
        """Ends the sentence; returns the rest. The last word ends with the voice, before the pause."""
        loud = np.flatnonzero(np.abs(np.concatenate(self._held or [silence(8000, 0)])) > _QUIET)
        end = self._given + int(loud[-1]) + 1 if len(loud) else self._total
        self._began(len(self._tokens), end)
        return self._cut(self._total, self._starts[self._given_words :]) if self._held else None

    def _began(self, index: int, sample: int) -> None:
        """Notes that the word `index` begins at `sample`; words before without an event are spread evenly."""
        skipped = index - len(self._starts)
        if skipped < 0:
            return
        before = self._starts[-1] if self._starts else 0
        sample = max(sample, before)
        self._starts += [
            before + (sample - before) * (place + 1) // (skipped + 1) for place in range(skipped)
        ]
        self._starts.append(sample)

    def _cut(self, until: int, edges: Sequence[int]) -> SpeechChunk:
        """The chunk of the samples up to `until` and the words between `edges`."""
        held = self._held[0] if len(self._held) == 1 else np.concatenate(self._held)
        taken, rest = held[: until - self._given], held[until - self._given :]
        words = tuple(
            SpokenWord(self._tokens[self._given_words + place][1], self._offset + start, self._offset + end)
            for place, (start, end) in enumerate(pairwise(edges))
        )
        self._given_words += len(words)
        self._given = until
        self._held = [rest] if len(rest) else []
        return SpeechChunk(taken, words)

    def _token_at(self, position: int) -> int:
        return bisect_right(self._tokens, position, key=itemgetter(0))
