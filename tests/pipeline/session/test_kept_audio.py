"""What is kept of a caller: exact where a telephone brought it, and small."""

from __future__ import annotations

import numpy as np
import pytest

from bench.support.codecs import over_ulaw
from pipeline.audio import frame_samples
from pipeline.endpointing.detector import EndOfTurnDetector
from pipeline.endpointing.policy import EVIDENCE_S, TurnEvidence
from pipeline.endpointing.prosody import LOOK_BACK_S, prosody_of
from pipeline.plane.incoming import Frames
from pipeline.session.kept_audio import KeptAudio
from tests.support.sip.callers import at_level, spoken

FRAMES = 200


def noise(rate_hz: int, frames: int) -> Frames:
    samples = np.random.default_rng(7).integers(-32768, 32768, (frames, frame_samples(rate_hz)))
    return samples.astype(np.int16)


def held(kept: KeptAudio) -> int:
    """Octets of all its arrays."""
    values = (getattr(kept, name) for name in KeptAudio.__slots__)
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


@pytest.mark.parametrize("at_once", [1, 28])
def test_what_a_telephone_brought_is_kept_exactly_at_an_octet_a_sample(at_once: int) -> None:
    heard = over_ulaw(noise(8000, 333).reshape(-1)).reshape(-1, 160)
    kept = KeptAudio(8000, FRAMES)
    for first in range(0, len(heard), at_once):
        frames = heard[first : first + at_once]
        told = [((first + at) * 160, 20_000_000 * (first + at), 0, 0, 0.0) for at in range(len(frames))]
        kept.add_all(frames, told)
    assert (kept.samples() == heard[-FRAMES:].reshape(-1)).all()
    assert (np.concatenate(list(kept.last(15))) == heard[-15:].reshape(-1)).all()
    assert held(kept) < FRAMES * 160 + 1000


def test_wideband_is_kept_as_it_is() -> None:
    heard = noise(16000, FRAMES + 5)
    kept = KeptAudio(16000, FRAMES)
    for at, frame in enumerate(heard):
        kept.add(frame, at * 320, at * 0.02, echo=False)
    assert (kept.samples() == heard[5:].reshape(-1)).all()


@pytest.mark.parametrize("rate_hz", [8000, 16000])
def test_echo_and_other_people_are_silence_where_they_are_not_wanted(rate_hz: int) -> None:
    heard, n = noise(rate_hz, 3), frame_samples(rate_hz)
    kept = KeptAudio(rate_hz, FRAMES)
    for at, frame in enumerate(heard):
        kept.add(frame, at * n, at * 0.02, echo=at == 1)
    kept.set_behind()
    everything, own = kept.samples().reshape(-1, n), kept.callers_own().reshape(-1, n)
    assert [bool(frame.any()) for frame in everything] == [True, False, True]
    assert [bool(frame.any()) for frame in own] == [True, False, False]
    assert [bool(frame.any()) for frame in kept.last(FRAMES)] == [True, False, True]


def test_as_much_is_kept_as_the_judge_of_a_turns_end_looks_at() -> None:
    class Model:
        def p_eot(self, evidence: TurnEvidence) -> float:
            return 0.5

    assert EndOfTurnDetector().evidence_s == LOOK_BACK_S
    assert EndOfTurnDetector(Model()).evidence_s == EVIDENCE_S
    said = at_level(spoken(("I want to book a taxi to the airport for tomorrow",) * 2, "en-us")[0], -20)
    whole = np.tile(said.astype(np.int16), 4)[: round(8000 * EVIDENCE_S)]
    assert prosody_of(whole, 8000) == prosody_of(whole[-round(8000 * LOOK_BACK_S) :], 8000)
