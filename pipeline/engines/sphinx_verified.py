"""A whole utterance understood by pocketsphinx, and whether its words were said.

The audio is brought to the level of the acoustic model's training first: a quiet or a loud line costs words,
and its frames fit badly. Then the grammar is searched, and of words that may be right the same frames are
compared with a loop of all phones: by `pipeline.engines.sphinx_evidence` both make the confidence.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pocketsphinx

from pipeline.engines.grammar import Grammar
from pipeline.engines.sphinx_decoder import RATE_HZ, Dictionary, SphinxDecoder, decoder_of, means
from pipeline.engines.sphinx_evidence import (
    RATIO,
    UNASKED,
    SpokenWord,
    confidence,
    evidence,
    is_hopeless,
    is_long,
    levels,
)
from pipeline.speech import Hypothesis

_FRAME: Final = RATE_HZ // 100 * 2  # octets of 10 ms
_SLICE: Final = 10 * _FRAME
"""Decoding is done in pieces, so that the event loop has the interpreter in between."""

_SCALE: Final = 1024  # pocketsphinx tells the score of a path in logarithms divided by it
_EDGE: Final = 4  # frames around the words that the loop hears too

_LEVEL_DB: Final = 69.0
"""Of the loud frames, as RMS of int16. Recorded digits and words: 92 % right at 67 to 71 dB, 90 at 63 and at
75; 18 dB below, every third answer would be refused."""

_LOUD_DB: Final = 20.0  # below the loudest frame
_QUARTILE: Final = 0.75
_SILENT_DB: Final = 30.0
_MOST_DB: Final = 24.0


class PhoneLoop:
    """Any phone after any phone, weighed by how phones follow each other in English."""

    def __init__(self, *, narrow: bool) -> None:
        model = pocketsphinx.get_model_path("en-us/en-us-phone.lm.bin")
        settings: dict[str, Any] = {"lm": None, "dict": None, "allphone": model, "allphone_ci": True}
        self._means = means(narrow=narrow)
        self._decoder = decoder_of({**settings, "ds": 2}, narrow=narrow)

    def fit(self, samples: bytes) -> float:
        """The logarithm of a frame's score on the best path; 0 where there is none."""
        decoder = self._decoder
        decoder.set_cmn(self._means)
        decoder.start_utt()
        for start in range(0, len(samples), _SLICE):
            decoder.process_raw(samples[start : start + _SLICE])
        decoder.end_utt()
        hyp = decoder.hyp()
        if hyp is None or hyp.best_score <= 0:
            return 0.0
        return math.log(hyp.best_score) * _SCALE * _FRAME / len(samples)


class Verified:
    """A decoder and a phone loop for one utterance at a time, of a line of 8 kHz if `narrow`. Raises
    RuntimeError where pocketsphinx fails."""

    def __init__(self, dictionary: Dictionary, *, narrow: bool) -> None:
        self._dictionary = dictionary
        self._decoder = SphinxDecoder(dictionary, narrow=narrow)
        self._loop = PhoneLoop(narrow=narrow)

    def hear(self, samples: bytes, grammar: Grammar) -> Hypothesis:
        """What is understood of `samples` (int16 at 16 kHz), with the probability that it was said."""
        heard, found = self.weigh(samples, grammar)
        if not found:
            return Hypothesis("")
        sure = confidence(found)
        words = tuple(replace(word, confidence=word.confidence * sure) for word in heard.words)
        return Hypothesis(heard.text, sure, words)

    def weigh(self, samples: bytes, grammar: Grammar) -> tuple[Hypothesis, dict[str, float]]:
        """What is understood and the evidence for it, empty where there is nothing."""
        samples = levelled(samples)
        self._decoder.begin(grammar)
        for start in range(0, len(samples), _SLICE):
            self._decoder.feed(samples[start : start + _SLICE])
        heard, words = self._decoder.end(), self._decoder.spoken()
        if not heard.text or not words:
            return Hypothesis(""), {}
        found = evidence(words, levels(samples), self._dictionary.phones, choices=len(grammar.words))
        asks = not is_hopeless(found) and not is_long(found)
        found[RATIO] = found["fit"] - self._loop.fit(_around(samples, words)) if asks else UNASKED
        return heard, found


def _around(samples: bytes, words: list[SpokenWord]) -> bytes:
    first, last = words[0].first - _EDGE, words[-1].last + 1 + _EDGE
    return samples[max(0, first) * _FRAME : last * _FRAME]


def levelled(samples: bytes) -> bytes:
    """`samples` (int16 at 16 kHz) with a voice as loud as in the acoustic model's training; what is hardly
    louder than silence stays as it is."""
    frames = levels(samples)
    if not len(frames) or frames.max() < _SILENT_DB:
        return samples
    loud = float(np.quantile(frames[frames > frames.max() - _LOUD_DB], _QUARTILE))
    gain = 10 ** (max(-_MOST_DB, min(_MOST_DB, _LEVEL_DB - loud)) / 20)
    scaled = np.rint(np.frombuffer(samples, np.int16) * np.float32(gain))
    return bytes(np.clip(scaled, -32768, 32767).astype(np.int16).tobytes())
