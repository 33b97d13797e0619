"""The caller's voice, and voices behind them."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.audio import Pcm
from pipeline.audio.background_speech import Foreground
from pipeline.audio.vad import EnergyVad
from tests.support.sip.callers import at_level, spoken

CALLER = "I would like to change the address of my last order, please."
ROOM = "Honey, did you feed the dog this morning?"


def judged(line: Foreground, said: Pcm, *, over_agent: bool = False) -> tuple[int, int]:
    """Voiced frames of `said`, and how many of them were background."""
    vad = EnergyVad(8000)
    voiced = background = 0
    for start in range(0, len(said) // 160 * 160, 160):
        frame = said[start : start + 160]
        verdict = vad.push(frame)
        behind = line.is_background(frame, voiced=verdict.voiced, over_agent=over_agent)
        voiced += verdict.voiced
        background += behind
    return voiced, background


def voice(text: str, dbfs: float, name: str = "en-us") -> Pcm:
    return at_level(spoken((text,), name)[0], dbfs).astype(np.int16)


@pytest.mark.parametrize("name", ["en-us", "en-gb", "en-us+f3", "en-us+m3"])
def test_a_voice_far_below_the_callers_is_background(name: str) -> None:
    line = Foreground()
    voiced, background = judged(line, voice(CALLER, -22, name))
    assert background < 0.06 * voiced
    voiced, background = judged(line, voice(ROOM, -40))
    assert voiced > 50
    assert background > 0.8 * voiced
    voiced, background = judged(line, voice(CALLER, -22, name))
    assert background < 0.06 * voiced


def test_a_caller_who_speaks_more_softly_is_still_the_caller() -> None:
    line = Foreground()
    judged(line, voice(CALLER, -22))
    voiced, background = judged(line, voice(CALLER, -30))
    assert background < 0.1 * voiced


def test_who_is_heard_first_is_not_background() -> None:
    assert judged(Foreground(), voice(ROOM, -40))[1] == 0


def test_one_loud_noise_does_not_make_a_stranger_of_the_caller() -> None:
    line = Foreground()
    judged(line, voice(CALLER, -30))
    thump = np.full(160, 20000, np.int16)
    for _ in range(3):
        line.is_background(thump, voiced=True)
    voiced, background = judged(line, voice(CALLER, -30))
    assert background < 0.15 * voiced


def test_a_caller_who_has_moved_away_is_heard_again() -> None:
    line = Foreground()
    judged(line, voice(CALLER, -20))
    softly = voice(CALLER, -38)
    first = judged(line, softly)[1]
    for _ in range(15):
        judged(line, softly)
    assert judged(line, softly)[1] < 0.4 * first


def test_what_had_no_words_in_it_is_not_taken_for_the_caller_any_more() -> None:
    """A fan as loud as a quiet talker, then the caller over it."""
    line = Foreground()
    fan = at_level(np.random.default_rng(5).standard_normal(16000), -30.0).astype(np.int16)
    judged(line, voice(CALLER, -20.0))
    assert line.is_background(fan[:160], voiced=True) is False
    line.reject_as_noise(fan, 160)
    frames = [line.is_background(fan[at : at + 160], voiced=True) for at in range(0, 16000, 160)]
    assert sum(frames) > 90
    voiced, background = judged(line, voice(CALLER, -20.0))
    assert background < voiced / 2


def test_a_caller_who_was_understood_is_not_lost_in_a_noise_as_loud_as_they_are() -> None:
    line = Foreground()
    judged(line, voice(CALLER, -22.0))
    line.believe()
    noise = at_level(np.random.default_rng(5).standard_normal(16000), -20.0).astype(np.int16)
    line.reject_as_noise(noise, 160)
    voiced, background = judged(line, voice(CALLER, -22.0))
    assert background < 0.75 * voiced


@pytest.mark.parametrize(("noise_dbfs", "stands_out"), [(-45.0, True), (-25.0, False)])
def test_a_caller_stands_out_of_a_noise_far_below_them(noise_dbfs: float, stands_out: bool) -> None:
    """And where none is known nobody does: then it was as loud as they are."""
    line = Foreground()
    judged(line, voice(CALLER, -20.0))
    assert not line.stands_out
    noise = at_level(np.random.default_rng(5).standard_normal(16000), noise_dbfs).astype(np.int16)
    line.reject_as_noise(noise, 160)
    assert line.stands_out is stands_out
    line.accept_speech()
    assert not line.stands_out


def test_words_in_what_was_taken_for_noise_make_it_a_voice_again() -> None:
    line = Foreground()
    judged(line, voice(CALLER, -30.0))
    line.reject_as_noise(voice(CALLER, -30.0), 160)
    voiced, background = judged(line, voice(CALLER, -30.0))
    assert background > 0.5 * voiced
    line.accept_speech()
    assert judged(line, voice(CALLER, -30.0))[1] < 0.1 * voiced


@pytest.mark.parametrize("name", ["en-us", "en-gb", "en-us+f3", "en-us+m3"])
def test_side_talk_over_the_agent_is_background_and_a_caller_who_interrupts_is_not(name: str) -> None:
    line = Foreground()
    judged(line, voice(CALLER, -22, name))
    voiced, background = judged(line, voice(ROOM, -37, name), over_agent=True)
    assert background > 0.85 * voiced
    voiced, background = judged(line, voice(CALLER, -26, name), over_agent=True)
    assert background < 0.2 * voiced
