"""Transcribes a whole file, cut where it is quiet, since recognisers take half a minute at most."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from mediaserver.errors import InvalidRequest, SpeechFailed
from pipeline.audio import Pcm, frame_samples
from pipeline.errors import EngineError, EngineMissing
from pipeline.speech import Hypothesis, SpeechToText

PIECE_S = 25.0
"""The longest piece for a recogniser, in seconds: pocketsphinx takes 30 s, Whisper's window is 30 s."""

SHORTEST_S = 10.0
"""The shortest piece but the last, in seconds: recognisers need some context."""

_BLOCK_MS = 100

SILENT = 16
"""A peak (of 32768) below which nobody speaks: recognisers would find words in it all the same."""


@dataclass(frozen=True, slots=True)
class Transcription:
    """A transcript. `confidence`: 0 to 1, the mean over the words, 0 without words."""

    text: str
    confidence: float


async def transcribed(stt: SpeechToText, samples: Pcm, *, rate_hz: int, language: str) -> Transcription:
    """Transcribes `samples`. Raises `InvalidRequest` (a language that the recogniser does not know) and
    `SpeechFailed`."""
    heard = []
    for piece in pieces(samples, rate_hz):
        if not len(piece) or max(piece.max(), -int(piece.min())) < SILENT:
            continue
        try:
            heard.append(await _hear(stt, piece, rate_hz=rate_hz, language=language))
        except EngineMissing as error:
            raise InvalidRequest(f"This recogniser cannot understand it: {error}") from error
        except EngineError as error:
            raise SpeechFailed("Transcription failed") from error
    return together(heard)


def pieces(samples: Pcm, rate_hz: int) -> Iterator[Pcm]:
    """Yields `samples` in order, in pieces of at most `PIECE_S`, cut in the middle of the quietest 100 ms
    after `SHORTEST_S`."""
    most, least, block = int(PIECE_S * rate_hz), int(SHORTEST_S * rate_hz), rate_hz * _BLOCK_MS // 1000
    start = 0
    while len(samples) - start > most:
        window = samples[start + least : start + most].astype(np.float32)
        energies = np.square(window[: len(window) // block * block].reshape(-1, block)).sum(axis=1)
        cut = start + least + int(energies.argmin()) * block + block // 2
        yield samples[start:cut]
        start = cut
    yield samples[start:]


def together(heard: list[Hypothesis]) -> Transcription:
    """Joins the results of several pieces, their confidences weighted by words."""
    weights = [len(each.text.split()) for each in heard]
    words = sum(weights)
    confidence = sum(each.confidence * weight for each, weight in zip(heard, weights, strict=True))
    text = " ".join(each.text for each in heard if each.text)
    return Transcription(text, min(1.0, max(0.0, confidence / words)) if words else 0.0)


async def _hear(stt: SpeechToText, piece: Pcm, *, rate_hz: int, language: str) -> Hypothesis:
    frame = frame_samples(rate_hz)
    with closing(stt.listen(rate_hz=rate_hz, language=language, expected=None)) as listening:
        for start in range(0, len(piece), frame):
            listening.push(piece[start : start + frame])
            if start % (frame * 50) == 0:
                await asyncio.sleep(0)  # a second of audio takes about a millisecond: calls go on in between
        return await listening.result()
