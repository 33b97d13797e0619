"""The phones of words beside all phones: what tells an answer from other words of the same length."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.audio.resample import Resampler
from pipeline.speech import Expected
from pipeline.stt.pocketsphinx import dictionary
from pipeline.stt.sphinx.decoder import SphinxDecoder
from pipeline.stt.sphinx.jsgf import Grammar, grammar
from pipeline.stt.sphinx.model import PHONES, STATES, Floats
from pipeline.stt.sphinx.phones import aligned, looped
from pipeline.stt.sphinx.verified import Verified
from tests.support.speech.engines import LINE_HZ, flite, over_the_line

S, AH = PHONES.index("S"), PHONES.index("AH")


def costs(*frames: int) -> Floats:
    """Frames that each fit one phone, in any state, and no other."""
    found = np.full((len(frames), len(PHONES), STATES), 9.0, np.float32)
    for at, phone in enumerate(frames):
        found[at, phone] = 0.0
    return found


def only(*phrases: str) -> Grammar:
    """A grammar of these answers."""
    made = grammar(Expected(phrases), dictionary().knows)
    assert made is not None
    return made


def wide(samples: Pcm) -> bytes:
    """What a recogniser of 16 kHz gets of a line."""
    return Resampler(LINE_HZ, 16000)(samples).tobytes()


def test_phones_are_aligned_with_the_frames_that_fit_them() -> None:
    labels, cost = aligned(costs(*[S] * 5, *[AH] * 7), [S, AH])
    assert labels.tolist() == [0] * 5 + [1] * 7
    assert cost == 0


def test_frames_too_few_for_every_state_are_shared_evenly() -> None:
    labels, cost = aligned(costs(S, S, AH, AH), [S, AH])
    assert labels.tolist() == [0, 0, 1, 1]
    assert cost == 0


def test_the_loop_costs_no_more_than_the_right_phones_and_their_changes() -> None:
    frames = costs(*[S] * 5, *[AH] * 7)
    assert looped(frames) == 6.0
    assert aligned(frames, [AH, S])[1] > looped(frames)


@pytest.mark.parametrize("voice", ["slt", "rms", "kal16"])
async def test_the_phones_that_were_said_fit_better_than_those_that_were_not(
    tmp_path: Path, voice: str
) -> None:
    recognizer = Verified(dictionary(), narrow=True)
    samples = wide(over_the_line(await flite("cancel my appointment", tmp_path, voice=voice), 16000))
    said = recognizer.hear(samples, only("cancel my appointment"))
    other = recognizer.hear(samples, only("tell me your name"))
    assert said.confidence > 0.5 > other.confidence


def test_no_file_is_left_of_an_utterance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = wide(over_the_line(asyncio.run(flite("yes", tmp_path)), 16000))
    monkeypatch.setattr("pipeline.stt.sphinx.verified._MEMORY", tmp_path / "nowhere")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    recognizer = Verified(dictionary(), narrow=True)
    for _ in range(2):
        assert recognizer.hear(samples, only("yes", "no")).text
    assert not list(tmp_path.rglob("*.mfc"))


async def test_an_utterance_that_fails_costs_that_one_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recognizer = Verified(dictionary(), narrow=True)
    samples = wide(over_the_line(await flite("yes", tmp_path), 16000))
    feed, fed = SphinxDecoder.feed, iter([False, True])

    def failing(self: SphinxDecoder, samples: bytes) -> None:
        if next(fed, False):
            raise RuntimeError("no memory")
        feed(self, samples)

    monkeypatch.setattr(SphinxDecoder, "feed", failing)
    with pytest.raises(RuntimeError):
        recognizer.hear(samples, only("yes", "no"))
    assert recognizer.hear(samples, only("yes", "no")).text == "yes"
