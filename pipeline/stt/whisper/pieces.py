"""Cuts speech that is too long for one decode, and joins the texts of its pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.audio import Pcm
from pipeline.speech import Hypothesis


def quietest(samples: Pcm, rate_hz: int, *, earliest_s: int, latest_s: int) -> int:
    """Gives the middle, as a sample's index, of the quietest 200 ms between `earliest_s` and `latest_s`,
    which is most likely a pause."""
    earliest, step = earliest_s * rate_hz, rate_hz // 50
    frames = samples[earliest : latest_s * rate_hz // step * step].reshape(-1, step)
    energy = np.square(frames[:, ::4].astype(np.float32)).mean(axis=1)  # `push` has 0.2 ms
    return earliest + (int(np.argmin(np.convolve(energy, np.ones(10), "valid"))) + 5) * step


def joined(pieces: Sequence[Hypothesis]) -> Hypothesis:
    """Joins the pieces of an utterance, at least one; the confidence is the mean over the words."""
    spoken = [piece for piece in pieces if piece.text]
    if len(pieces) == 1 or not spoken:
        return pieces[-1]
    counts = [len(piece.text.split()) for piece in spoken]
    confidence = sum(piece.confidence * count for piece, count in zip(spoken, counts, strict=True)) / sum(
        counts
    )
    timed = all(piece.words for piece in spoken)
    words = tuple(word for piece in spoken for word in piece.words) if timed else ()
    return Hypothesis(" ".join(piece.text for piece in spoken), confidence, words)


def shifted(heard: Hypothesis, by_ms: int) -> Hypothesis:
    """Shifts the times of a piece's words by `by_ms`, to count from the utterance's first sample."""
    if not by_ms:
        return heard
    words = tuple(
        replace(word, start_ms=word.start_ms + by_ms, end_ms=word.end_ms + by_ms) for word in heard.words
    )
    return replace(heard, words=words)
