"""A pocketsphinx decoder and a pool of decoders.

A decoder with the full dictionary takes 30 MB and 0.1 s; a decoder with an empty dictionary takes 4 MB and 10
ms, and words (5 µs each) and grammars (0.1 ms, some milliseconds for long lists) can be added later. The
decoders of the pool therefore start nearly empty and get grammars as utterances need them.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pocketsphinx

from pipeline.speech import HeardWord, Hypothesis
from pipeline.stt.sphinx.evidence import SpokenWord, evidence, is_hopeless, levels, score
from pipeline.stt.sphinx.jsgf import Grammar
from pipeline.stt.sphinx.model import CEPSTRA, Floats
from pipeline.stt.sphinx.narrow import mllr

RATE_HZ = 16000
_FRAME_MS = 10  # of the acoustic model
_NO_WORD = "<[+("  # first characters of the names of pauses and noises

_WIDE_MEANS = "41.00,-5.29,-0.12,5.09,2.48,-4.07,-1.37,-1.78,-5.08,-2.05,-6.45,-1.42,1.17"
_NARROW_MEANS = "44.27,24.61,-26.33,50.08,-25.40,15.10,3.74,-14.17,12.61,-14.04,14.84,-2.59,1.03"
"""Cepstral means at the beginning of every utterance: a decoder adapts them, and the next utterance is that
of another caller. The wide means are those of the acoustic model. A line of 8 kHz has no energy above 4 kHz,
which changes the cepstra far more than any voice does: with the wide means 65 % of the words of 40 phrases
were wrong (flite slt and kal16 over µ-law), with the mean to which slt, kal16, rms and awb adapt 0.2 %. The
model's own means are transformed too (`pipeline.stt.sphinx.narrow`), which more than halves the errors in
recorded digits."""

_SEARCH: Mapping[str, Any] = {
    "wbeam": 1e-12,  # default 7e-29: the word lattice of a digit string then took 200 ms at its end, now 7
    "wip": 0.2,  # default 0.65: fewer invented short words; digit strings 4.6 -> 2.8 % wrong
}

_WHOLE_WBEAM = 1e-16
"""The word beam of the search of a whole utterance: 4 of 415 answers are not found (9 with 1e-12), and 17 %
instead of 21 % of recorded digits are wrong, for 6 % more time; 1e-20 takes 19 % more."""

_GRAMMARS = 64
"""Most grammars of a decoder; the least recently used is dropped."""


class Dictionary:
    """Pronunciations of cmudict, found by bisection in the file's bytes, which are in the order of the words
    (20 µs), instead of 30 MB of Python objects."""

    def __init__(self, path: Path) -> None:
        self._text = path.read_bytes().rstrip(b"\n") + b"\n"
        self._found: dict[str, tuple[tuple[str, str], ...]] = {}

    def knows(self, word: str) -> bool:
        """Whether `word` has a pronunciation."""
        return bool(self.pronunciations(word))

    def pronunciations(self, word: str) -> tuple[tuple[str, str], ...]:
        """Pairs of the entry's name ("to", "to(2)") and its phones."""
        if word not in self._found:
            self._found[word] = self._find(word)
        return self._found[word]

    def phones(self, entry: str) -> tuple[str, ...]:
        """The phones of an entry ("to", "to(2)")."""
        word = entry.partition("(")[0]
        return tuple(dict(self.pronunciations(word))[entry].split())

    def _find(self, word: str) -> tuple[tuple[str, str], ...]:
        at = self._first(word.encode())
        entries = []
        while at < len(self._text):
            end = self._text.index(b"\n", at)
            entry, _, phones = self._text[at:end].decode().partition(" ")
            if entry.partition("(")[0] != word:
                break
            entries.append((entry, phones))
            at = end + 1
        return tuple(entries)

    def _first(self, word: bytes) -> int:
        """The offset of the first line whose word is `word` or one behind it."""
        first, last = 0, len(self._text)
        while first < last:
            start = self._text.rfind(b"\n", first, (first + last) // 2) + 1 or first
            end = self._text.index(b"\n", start)
            if self._text[start:end].partition(b" ")[0].partition(b"(")[0] < word:
                first = end + 1
            else:
                last = start
        return first


class SphinxDecoder:
    """A decoder for one utterance at a time. `narrow`: for a line of 8 kHz. `keep`: a folder for the cepstra,
    which `cepstra` then gives; the search is then wider. Raises RuntimeError where pocketsphinx fails."""

    def __init__(self, dictionary: Dictionary, *, narrow: bool, keep: Path | None = None) -> None:
        self.narrow = narrow
        self._keep = keep
        self._dictionary = dictionary
        self._grammars: OrderedDict[Grammar, str] = OrderedDict()
        self._number = 0
        with tempfile.NamedTemporaryFile("w", suffix=".dict") as file:
            file.writelines(f"{entry} {phones}\n" for entry, phones in dictionary.pronunciations("yes"))
            file.flush()
            kept = {"mfclogdir": str(keep), "wbeam": _WHOLE_WBEAM} if keep is not None else {}
            self._decoder = decoder_of({"lm": None, "dict": file.name, **_SEARCH, **kept}, narrow=narrow)

    def has(self, grammar: Grammar) -> bool:
        """Whether the decoder has `grammar` already."""
        return grammar in self._grammars

    def prepare(self, grammar: Grammar) -> str:
        """Adds a grammar and its words; gives the name of its search."""
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

    def begin(self, grammar: Grammar) -> None:
        """Begins an utterance with `grammar`."""
        self._decoder.activate_search(self.prepare(grammar))
        self._decoder.set_cmn(means(narrow=self.narrow))
        self._decoder.start_utt()

    def feed(self, samples: bytes) -> None:
        """Takes more audio: int16 at 16 kHz. Keeps the GIL for about 1 % of the audio's length."""
        self._decoder.process_raw(samples)

    def partial(self) -> str:
        """The words of the best path so far."""
        return words_of(self._decoder.hyp())

    def spoken(self) -> list[SpokenWord]:
        """The words of the best path, without pauses and noises."""
        return [
            SpokenWord(segment.word, segment.start_frame, segment.end_frame, score(segment.ascore))
            for segment in self._decoder.seg() or ()
            if segment.word[0] not in _NO_WORD
        ]

    def may_hold(self, samples: bytes, grammar: Grammar) -> bool:
        """Whether the utterance, whose audio is `samples`, may have an answer. True without any word, since a
        wider search may still find one."""
        words = self.spoken()
        if not words:
            return True
        return not is_hopeless(evidence(words, levels(samples), grammar))

    def end(self) -> Hypothesis:
        """Ends the utterance; returns the words of its best path."""
        self._decoder.end_utt()
        return hypothesis(self._decoder)

    def cepstra(self) -> Floats:
        """Gives the cepstra of the utterance that ended, shape (frames, 13); once only. Raises OSError."""
        octets = b""
        for path in sorted(self._keep.iterdir()) if self._keep is not None else ():
            octets = path.read_bytes()
            path.unlink()
        if not octets:
            raise OSError("pocketsphinx wrote no cepstra")
        return np.frombuffer(octets, ">f4", offset=4).reshape(-1, CEPSTRA).astype(np.float32)


def means(*, narrow: bool) -> str:
    """Gives the cepstral means at the beginning of an utterance, as pocketsphinx reads them."""
    return _NARROW_MEANS if narrow else _WIDE_MEANS


def decoder_of(settings: Mapping[str, Any], *, narrow: bool) -> pocketsphinx.Decoder:
    """Makes a decoder; `narrow`: with the acoustic model transformed for a line of 8 kHz."""
    if not narrow:
        return pocketsphinx.Decoder(pocketsphinx.Config(loglevel="FATAL", **settings))
    with tempfile.NamedTemporaryFile("w", suffix=".mllr") as file:
        file.write(mllr())
        file.flush()
        return pocketsphinx.Decoder(pocketsphinx.Config(loglevel="FATAL", mllr=file.name, **settings))


def words_of(hyp: Any) -> str:
    """Gives the text of a pocketsphinx hypothesis, "" for None."""
    return hyp.hypstr if hyp is not None else ""


def hypothesis(decoder: pocketsphinx.Decoder) -> Hypothesis:
    """Gives a decoder's result after the end of an utterance. Confidence is the mean posterior of the words,
    not calibrated; it tells right from wrong results better than the posterior of the path (AUC 0.7 to 0.9
    instead of 0.5)."""
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
        if segment.word[0] not in _NO_WORD
    )
    confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
    return Hypothesis(text, confidence, words)


class DecoderPool:
    """A pool of at most `most` decoders; makes another one (10 ms) when an utterance finds none idle. A
    decoder is for a line of 8 kHz or for wider lines; a full pool replaces an idle decoder of the other
    kind."""

    def __init__(self, dictionary: Dictionary, *, most: int) -> None:
        self._dictionary = dictionary
        self._most = most
        self._alive = 0
        self._idle: dict[bool, list[SphinxDecoder]] = {True: [], False: []}

    def grow(self, count: int, *, narrow: bool) -> None:
        """Makes idle decoders until the pool has `count`, at most `most`."""
        while self._alive < min(count, self._most):
            self._idle[narrow].append(SphinxDecoder(self._dictionary, narrow=narrow))
            self._alive += 1

    def take(self, grammar: Grammar, *, narrow: bool) -> SphinxDecoder | None:
        """Takes an idle decoder, if possible one that has `grammar`; None when all are in use."""
        idle, others = self._idle[narrow], self._idle[not narrow]
        if not idle:
            if self._alive >= self._most and others:
                others.pop()
                self._alive -= 1
            self.grow(self._alive + 1, narrow=narrow)
        for place, decoder in enumerate(idle):
            if decoder.has(grammar):
                return idle.pop(place)
        return idle.pop() if idle else None

    def give_back(self, decoder: SphinxDecoder) -> None:
        """Makes a decoder idle again; one that failed is left out with `discard`."""
        self._idle[decoder.narrow].append(decoder)

    def discard(self) -> None:
        """Takes a decoder in use, which failed, off the count."""
        self._alive -= 1
