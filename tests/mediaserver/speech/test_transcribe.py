"""Long files in pieces that a recogniser takes, and their texts put together again."""

from __future__ import annotations

import numpy as np
import pytest

from bench.support.stub import Stub
from mediaserver.errors import InvalidRequest, SpeechFailed
from mediaserver.speech.transcribe import PIECE_S, SHORTEST_S, Transcription, pieces, together, transcribed
from pipeline.audio import Pcm
from pipeline.errors import EngineError, EngineMissing
from pipeline.speech import Expected, Hypothesis
from tests.support.speech.sounds import tone

RATE_HZ = 16_000


class Recognizer(Stub):
    """Understands how long a piece is."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.opened = 0
        self.closed = 0
        self.languages: set[str] = set()

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Heard:
        self.opened += 1
        self.languages.add(language)
        return Heard(self, rate_hz)


class Heard:
    def __init__(self, recognizer: Recognizer, rate_hz: int) -> None:
        self.recognizer = recognizer
        self.rate_hz = rate_hz
        self.samples = 0

    def push(self, samples: Pcm) -> None:
        assert len(samples) <= self.rate_hz // 50
        self.samples += len(samples)

    def partial(self) -> str:
        return ""

    async def result(self) -> Hypothesis:
        if self.recognizer.error is not None:
            raise self.recognizer.error
        return Hypothesis(f"{self.samples / self.rate_hz:.1f} seconds", 0.5)

    def close(self) -> None:
        self.recognizer.closed += 1


def speech(*sentences_s: float, pause_s: float = 0.5) -> Pcm:
    """Tones with pauses between them."""
    pause = np.zeros(int(RATE_HZ * pause_s), np.int16)
    return np.concatenate(
        [part for length_s in sentences_s for part in (tone(RATE_HZ, int(length_s * 1000)), pause)]
    )


def test_a_file_is_cut_in_its_pauses_and_nothing_is_lost() -> None:
    samples = speech(12, 11, 14, 9, 13, 12)
    cut = list(pieces(samples, RATE_HZ))
    assert np.array_equal(np.concatenate(cut), samples)
    assert len(cut) > 2
    for piece in cut[:-1]:
        assert SHORTEST_S * RATE_HZ <= len(piece) <= PIECE_S * RATE_HZ
        assert not piece[-RATE_HZ // 50 :].any()  # the cut lies in silence


@pytest.mark.parametrize("length_s", [0.01, 1.0, PIECE_S, PIECE_S + 0.01, 61.3, 300.0])
def test_any_length_is_cut_within_the_bounds(length_s: float) -> None:
    samples = tone(RATE_HZ, int(length_s * 1000))
    cut = list(pieces(samples, RATE_HZ))
    assert sum(len(piece) for piece in cut) == len(samples)
    assert all(0 < len(piece) <= PIECE_S * RATE_HZ for piece in cut)
    assert all(len(piece) >= SHORTEST_S * RATE_HZ for piece in cut[:-1])


async def test_every_piece_is_heard_once_and_let_go() -> None:
    recognizer = Recognizer()
    samples = speech(12, 11, 14)
    outcome = await transcribed(recognizer, samples, rate_hz=RATE_HZ, language="ar")
    seconds = [float(word) for word in outcome.text.split() if word != "seconds"]
    assert sum(seconds) == pytest.approx(len(samples) / RATE_HZ, abs=0.2)
    assert recognizer.opened == recognizer.closed == len(seconds) > 1
    assert recognizer.languages == {"ar"}
    assert outcome.confidence == 0.5


async def test_nobody_is_heard_in_silence_whatever_a_recogniser_makes_of_it() -> None:
    recognizer = Recognizer()
    noise = np.random.default_rng(1).integers(-8, 9, RATE_HZ).astype(np.int16)
    for silent in (np.zeros(RATE_HZ * 40, np.int16), noise):
        assert await transcribed(recognizer, silent, rate_hz=RATE_HZ, language="en") == Transcription("", 0.0)
    assert recognizer.opened == 0


async def test_what_a_recogniser_cannot_do_is_told() -> None:
    missing = Recognizer(EngineMissing("no model for xx"))
    with pytest.raises(InvalidRequest, match="no model for xx"):
        await transcribed(missing, tone(RATE_HZ, 100), rate_hz=RATE_HZ, language="xx")
    broken = Recognizer(EngineError("a detail", retryable=True))
    with pytest.raises(SpeechFailed) as caught:
        await transcribed(broken, tone(RATE_HZ, 100), rate_hz=RATE_HZ, language="en")
    assert "detail" not in str(caught.value)
    assert missing.closed == broken.closed == 1


def test_confidence_is_that_of_the_words() -> None:
    outcome = together([Hypothesis("one two three", 0.9), Hypothesis("", 0.1), Hypothesis("four", 0.5)])
    assert outcome.text == "one two three four"
    assert outcome.confidence == pytest.approx((0.9 * 3 + 0.5) / 4)
    assert together([Hypothesis("", 0.7)]).confidence == 0.0
    assert together([]).text == ""
    assert together([Hypothesis("a", 1.0000001)]).confidence == 1.0
