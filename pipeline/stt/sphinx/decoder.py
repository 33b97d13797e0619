"""One pocketsphinx decoder and the pool of them.

A decoder with the full dictionary takes 30 MB and 0.1 s; one with an empty dictionary 4 MB and 10 ms, and
words (5 µs each) and grammars (0.1 ms, some milliseconds for long lists) can be added to it while it lives.
So decoders are alike, start nearly empty, and learn the grammars they meet.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pocketsphinx

from pipeline.speech import HeardWord, Hypothesis
from pipeline.stt.sphinx.jsgf import Grammar

RATE_HZ = 16000
_FRAME_MS = 10  # of the acoustic model

_WIDE_MEANS = "41.00,-5.29,-0.12,5.09,2.48,-4.07,-1.37,-1.78,-5.08,-2.05,-6.45,-1.42,1.17"
_NARROW_MEANS = "44.27,24.61,-26.33,50.08,-25.40,15.10,3.74,-14.17,12.61,-14.04,14.84,-2.59,1.03"
"""Cepstral means that every utterance begins with: a decoder adapts them as it goes, and the next utterance
is another caller's. The wide ones are the acoustic model's own. A line of 8 kHz has nothing above 4 kHz,
which bends the spectrum far more than any voice does: with the wide means 65 % of the words of 40 phrases
were wrong (flite slt and kal16 over µ-law), with the mean of what slt, kal16, rms and awb adapt to 0.2 %."""

_SEARCH: Mapping[str, Any] = {
    "wbeam": 1e-12,  # default 7e-29: the word lattice of a digit string then took 200 ms at its end, now 7
    "wip": 0.2,  # default 0.65: fewer invented short words; digit strings 4.6 -> 2.8 % wrong
}

_GRAMMARS = 64
"""Grammars that a decoder keeps; the one not used for longest goes."""


class Dictionary:
    """Pronunciations of cmudict, looked up in the file's bytes (1 ms) instead of 30 MB of Python objects."""

    def __init__(self, path: Path) -> None:
        self._text = b"\n" + path.read_bytes() + b"\n"
        self._found: dict[str, tuple[tuple[str, str], ...]] = {}

    def knows(self, word: str) -> bool:
        """Whether `word` has a pronunciation."""
        return bool(self.pronunciations(word))

    def pronunciations(self, word: str) -> tuple[tuple[str, str], ...]:
        """Pairs of the entry's name ("to", "to(2)") and its phones."""
        if word not in self._found:
            self._found[word] = self._find(word)
        return self._found[word]

    def _find(self, word: str) -> tuple[tuple[str, str], ...]:
        at = self._text.find(b"\n" + word.encode() + b" ")
        entries = []
        while at >= 0:
            end = self._text.find(b"\n", at + 1)
            entry, _, phones = self._text[at + 1 : end].decode().partition(" ")
            if entry != word and not entry.startswith(f"{word}("):
                break
            entries.append((entry, phones))
            at = end
        return tuple(entries)


class SphinxDecoder:
    """A decoder for one utterance at a time. Raises RuntimeError where pocketsphinx fails."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        self._grammars: OrderedDict[Grammar, str] = OrderedDict()
        self._number = 0
        with tempfile.NamedTemporaryFile("w", suffix=".dict") as file:
            file.writelines(f"{entry} {phones}\n" for entry, phones in dictionary.pronunciations("yes"))
            file.flush()
            settings = {"lm": None, "dict": file.name, "loglevel": "FATAL", **_SEARCH}
            self._decoder = pocketsphinx.Decoder(pocketsphinx.Config(**settings))

    def has(self, grammar: Grammar) -> bool:
        """Whether `grammar` needs no preparation."""
        return grammar in self._grammars

    def prepare(self, grammar: Grammar) -> str:
        """Learns a grammar and its words; gives the name of the search."""
        if grammar in self._grammars:
            self._grammars.move_to_end(grammar)
            return self._grammars[grammar]
        for word in grammar.words:
            if not self._decoder.lookup_word(word):
                for entry, phones in self._dictionary.pronunciations(word):
                    self._decoder.add_word(entry, phones, False)
        self._number += 1
        name = f"grammar{self._number}"
        self._decoder.add_jsgf_string(name, grammar.jsgf)
        self._grammars[grammar] = name
        if len(self._grammars) > _GRAMMARS:
            _, oldest = self._grammars.popitem(last=False)
            if oldest != self._decoder.current_search():
                self._decoder.remove_search(oldest)
        return name

    def begin(self, grammar: Grammar, *, narrow: bool) -> None:
        """Starts an utterance, of a line of 8 kHz if `narrow`."""
        self._decoder.activate_search(self.prepare(grammar))
        self._decoder.set_cmn(_NARROW_MEANS if narrow else _WIDE_MEANS)
        self._decoder.start_utt()

    def feed(self, samples: bytes) -> None:
        """More of it: int16 at 16 kHz. Holds the interpreter for about 1 % of the audio's length."""
        self._decoder.process_raw(samples)

    def partial(self) -> str:
        """What is understood so far."""
        return words_of(self._decoder.hyp())

    def end(self) -> Hypothesis:
        """Ends the utterance."""
        self._decoder.end_utt()
        return hypothesis(self._decoder)


def words_of(hyp: Any) -> str:
    """The text of a pocketsphinx hypothesis, which is None for nothing."""
    return hyp.hypstr if hyp is not None else ""


def hypothesis(decoder: pocketsphinx.Decoder) -> Hypothesis:
    """A decoder's result after the end of an utterance. Confidence is the mean posterior of the words: better
    than the whole path's (AUC right against wrong 0.7 to 0.9, 0.5), and not calibrated."""
    text = words_of(decoder.hyp())
    if not text:
        return Hypothesis("")
    words = tuple(
        HeardWord(
            segment.word.partition("(")[0],
            start_ms=segment.start_frame * _FRAME_MS,
            end_ms=(segment.end_frame + 1) * _FRAME_MS,
            confidence=min(1.0, segment.prob),
        )
        for segment in decoder.seg()
        if segment.word[0] not in "<[+("
    )
    confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
    return Hypothesis(text, confidence, words)


class DecoderPool:
    """Idle decoders, up to `most` alive; grows by one (10 ms) when an utterance finds none idle."""

    def __init__(self, dictionary: Dictionary, *, most: int) -> None:
        self._dictionary = dictionary
        self._most = most
        self._alive = 0
        self._idle: list[SphinxDecoder] = []

    def grow(self, count: int) -> None:
        """Makes idle decoders until `count` live."""
        while self._alive < min(count, self._most):
            self._idle.append(SphinxDecoder(self._dictionary))
            self._alive += 1

    def take(self, grammar: Grammar) -> SphinxDecoder | None:
        """A decoder, if possible one that knows `grammar`; None when all are in use."""
        if not self._idle:
            self.grow(self._alive + 1)
        for place, decoder in enumerate(self._idle):
            if decoder.has(grammar):
                return self._idle.pop(place)
        return self._idle.pop() if self._idle else None

    def give_back(self, decoder: SphinxDecoder) -> None:
        """Makes a decoder idle again; one that failed is left out with `discard`."""
        self._idle.append(decoder)

    def discard(self) -> None:
        """A decoder in use will not come back."""
        self._alive -= 1
