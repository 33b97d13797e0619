"""When the caller spoke, as the ears tell it: the moment that every end-point is counted from."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.audio import Pcm, dtmf, silence
from pipeline.audio.other_vads import voice_detector
from pipeline.session.audio_input import AudioInput, Sound
from tests.support.sip.callers import at_level, spoken
from tests.support.speech.conversation import FakeStt

RATE_HZ = 8000
FRAME = 160


def voice() -> Pcm:
    """20 ms of a tone that ends without a step."""
    time_s = np.arange(FRAME) / RATE_HZ
    return (8000 * np.sin(2 * np.pi * 400 * time_s) * np.hanning(FRAME)).astype(np.int16)


@pytest.mark.parametrize("jitter_ms", [0.0, 15.0])
def test_the_caller_stopped_when_the_last_voiced_packet_left_not_a_packet_later(jitter_ms: float) -> None:
    """A packet carries the 20 ms before it was sent. The second case delays every other packet."""
    audio_input = AudioInput(FakeStt(), rate_hz=RATE_HZ, language="en", sustained_ms=240)
    sounds = []
    for number in range(100):
        sent = 5.0 + number * 0.02
        frame = voice() if 50 <= number < 80 else silence(RATE_HZ)
        late = (number % 2) * jitter_ms / 1000
        sounds.append(audio_input.push(frame, number * FRAME, sent + late))
    assert [sound for sound in sounds if sound in (Sound.STARTED, Sound.STOPPED)] == [
        Sound.STARTED,
        Sound.STOPPED,
    ]
    assert audio_input.silent_since() == pytest.approx(5.0 + 79 * 0.02, abs=1e-6)


def test_a_packet_that_is_late_is_not_silence_but_one_that_is_not_awaited_is() -> None:
    """The tenth packet is 40 ms late, the eleventh does not come: up to where the caller was heard."""
    audio_input = AudioInput(FakeStt(), rate_hz=RATE_HZ, language="en", sustained_ms=240)
    for number in range(9):
        audio_input.push(silence(RATE_HZ), number * FRAME, 5.0 + number * 0.02)
    assert audio_input.heard_until(5.199) == pytest.approx(5.16)
    audio_input.push(silence(RATE_HZ), 9 * FRAME, 5.22)
    assert audio_input.heard_until(5.221) == pytest.approx(5.18)
    assert audio_input.heard_until(5.35) == pytest.approx(5.18)
    assert audio_input.heard_until(5.43) == pytest.approx(5.43)


def test_the_callers_voice_is_told_without_what_is_behind_them() -> None:
    """Two seconds of syllables, then somebody 26 dB below: the recogniser hears both, the judge of the
    turn's end the caller."""
    audio_input = AudioInput(FakeStt(), rate_hz=RATE_HZ, language="en", sustained_ms=240, kept_ms=4000)
    for number in range(200):
        loud = voice() if number % 20 < 15 else silence(RATE_HZ)
        frame = loud if number < 100 else (loud // 20).astype(np.int16)
        audio_input.push(frame, number * FRAME, 5.0 + number * 0.02)
    behind = slice(150 * FRAME, 200 * FRAME)
    assert audio_input.recent()[behind].any()
    own = audio_input.callers_own(noisy=False)
    assert own[: 100 * FRAME].any()
    assert not own[behind].any()


def test_nobody_can_tell_the_callers_voice_in_a_noise_as_loud() -> None:
    audio_input = AudioInput(FakeStt(), rate_hz=RATE_HZ, language="en", sustained_ms=240, kept_ms=4000)
    for number in range(200):
        audio_input.push(voice(), number * FRAME, 5.0 + number * 0.02)
    audio_input.reject_as_noise(1.0)
    assert audio_input.callers_own(noisy=False).size
    assert not audio_input.callers_own(noisy=True).size


@pytest.mark.parametrize("name", ["webrtcvad", "silero"])
def test_a_voice_begins_and_ends_by_the_detector_that_was_named(name: str) -> None:
    """A tone is louder than any noise floor, and no voice to Silero."""
    said = spoken(("Good morning, I have a question about my bill.",), "en-us")[0]
    beep = dtmf.tone("5", RATE_HZ, 400)
    audio_input = AudioInput(
        FakeStt(), rate_hz=RATE_HZ, language="en", sustained_ms=240, vad=voice_detector(name)
    )
    quiet = silence(RATE_HZ, 1000)
    samples = np.concatenate((quiet, beep, quiet, at_level(said, -20).astype(np.int16), quiet))
    sounds = []
    for number, frame in enumerate(samples[: samples.size // FRAME * FRAME].reshape(-1, FRAME)):
        sounds.append((audio_input.push(frame, number * FRAME, 5.0 + number * 0.02), number * 20))
    begun = [at_ms for sound, at_ms in sounds if sound is Sound.STARTED]
    ended = [at_ms for sound, at_ms in sounds if sound is Sound.STOPPED]
    assert any(2400 < at_ms < 2900 for at_ms in begun)
    assert len(begun) == len(ended)
    assert any(at_ms < 2400 for at_ms in begun) is (name == "webrtcvad")
