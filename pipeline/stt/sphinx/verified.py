"""Recognises a whole utterance with pocketsphinx and verifies that its words were said.

The audio is first scaled to the level of the acoustic model's training: a quiet or a loud line costs words,
and its frames fit badly. Then the grammar is searched, and the frames of words that may be right are compared
with all phones; `pipeline.stt.sphinx.evidence` makes the confidence of both.
"""

from __future__ import annotations

import shutil
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import numpy as np

from pipeline.speech import HeardWord, Hypothesis
from pipeline.stt.sphinx.decoder import RATE_HZ, Dictionary, SphinxDecoder, means
from pipeline.stt.sphinx.evidence import SpokenWord, confidence, evidence, is_hopeless, levels
from pipeline.stt.sphinx.jsgf import Grammar, is_whole
from pipeline.stt.sphinx.model import Floats, PhoneModel
from pipeline.stt.sphinx.phones import phone_evidence

_FRAME: Final = RATE_HZ // 100 * 2  # octets of 10 ms
_SLICE: Final = 10 * _FRAME
"""Bytes decoded at once; between two pieces the event loop may have the interpreter."""

_MEMORY: Final = Path("/dev/shm")
"""The folder for pocketsphinx's files of cepstra, which it gives in no other way: 5 kB for a second."""

_LEVEL_DB: Final = 69.0
"""Level of the loud frames after scaling, as RMS of int16. Of recorded digits and words 92 % are right at 67
to 71 dB, 90 % at 63 and at 75 dB; 18 dB below, every third answer would be refused."""

_LOUD_DB: Final = 20.0  # below the loudest frame
_QUARTILE: Final = 0.75
_SILENT_DB: Final = 30.0
_AROUND: Final = 20
"""Frames of silence before and behind the voice, as in what the evidence was weighed on: a search that begins
or ends inside a word stretches it, and "time" is "sign" with 0.76 instead of 0.30."""

_MOST_DB: Final = 24.0


class Verified:
    """A decoder and the phones' densities for one utterance at a time, of a line of 8 kHz if `narrow`. Raises
    RuntimeError or OSError where pocketsphinx fails."""

    def __init__(self, dictionary: Dictionary, *, narrow: bool) -> None:
        self._dictionary = dictionary
        folder = mkdtemp(prefix="cepstra-", dir=_MEMORY if _MEMORY.is_dir() else None)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._make = partial(SphinxDecoder, dictionary, narrow=narrow, keep=Path(folder))
        self._decoder = self._make()
        self._model = PhoneModel(means(narrow=narrow), narrow=narrow)

    def hear(self, samples: bytes, grammar: Grammar) -> Hypothesis:
        """Recognises `samples` (int16 at 16 kHz); confidence is the probability that the words were said."""
        heard, found = self.weigh(samples, grammar)
        if not found:
            return Hypothesis("")
        sure = confidence(found)
        words = tuple(replace(word, confidence=word.confidence * sure) for word in heard.words)
        return Hypothesis(heard.text, sure, words)

    def weigh(self, samples: bytes, grammar: Grammar) -> tuple[Hypothesis, dict[str, float]]:
        """What is understood and the evidence for it, empty where there is no whole answer or it is
        hopeless."""
        samples, before = surrounded(levelled(samples))
        try:
            heard, words, cepstra = self._searched(samples, grammar)
        except (RuntimeError, KeyError):
            self._decoder = self._make()  # the old one cannot begin another utterance without ending this one
            raise
        if not words or not is_whole(grammar, heard.text):
            return Hypothesis(""), {}
        found = evidence(words, levels(samples), grammar)
        if is_hopeless(found):
            return heard, {}
        heard = replace(heard, words=tuple(_moved(word, before) for word in heard.words))
        first = words[0].first
        costs = self._model.costs(cepstra, first, words[-1].last)
        pieces = [
            (self._dictionary.phones(word.entry), costs[word.first - first : word.last + 1 - first])
            for word in words
        ]
        return heard, found | phone_evidence(pieces, costs)

    def _searched(self, samples: bytes, grammar: Grammar) -> tuple[Hypothesis, list[SpokenWord], Floats]:
        self._decoder.begin(grammar)
        for start in range(0, len(samples), _SLICE):
            self._decoder.feed(samples[start : start + _SLICE])
        return self._decoder.end(), self._decoder.spoken(), self._decoder.cepstra()


def surrounded(samples: bytes) -> tuple[bytes, int]:
    """`samples` (int16 at 16 kHz) with enough silence around the voice, and how many frames of it were put in
    front."""
    frames = levels(samples)
    loud = np.flatnonzero(frames > frames.max() - _LOUD_DB) if len(frames) else frames
    if not len(loud):
        return samples, 0
    before = max(0, _AROUND - int(loud[0]))
    behind = max(0, _AROUND - (len(frames) - 1 - int(loud[-1])))
    return bytes(before * _FRAME) + samples + bytes(behind * _FRAME), before


def _moved(word: HeardWord, frames: int) -> HeardWord:
    """`word` in the utterance that had `frames` less in front."""
    ms = 10 * frames
    return replace(word, start_ms=max(0, word.start_ms - ms), end_ms=max(0, word.end_ms - ms))


def levelled(samples: bytes) -> bytes:
    """Scales `samples` (int16 at 16 kHz) to the level of the acoustic model's training; near silence is
    returned as it is."""
    frames = levels(samples)
    if not len(frames) or frames.max() < _SILENT_DB:
        return samples
    loud = float(np.quantile(frames[frames > frames.max() - _LOUD_DB], _QUARTILE))
    gain = 10 ** (max(-_MOST_DB, min(_MOST_DB, _LEVEL_DB - loud)) / 20)
    scaled = np.rint(np.frombuffer(samples, np.int16) * np.float32(gain))
    return bytes(np.clip(scaled, -32768, 32767).astype(np.int16).tobytes())
