"""Keys heard as ITU-T Q.24 has them, and nothing heard in what people say."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.audio import Pcm, frame_samples, kernels, levels
from pipeline.audio.dtmf import KEYS, DtmfDetector, tone
from pipeline.audio.resample import resample
from tests.support.webrtc.talk import talk

RNG = np.random.default_rng(7)
OFFSETS = range(0, 160, 31)


def heard(samples: Pcm, rate_hz: int = 8000) -> str:
    detector = DtmfDetector(rate_hz)
    size = frame_samples(rate_hz)
    whole = samples[: samples.size // size * size].reshape(-1, size)
    return "".join(detector.push(frame) or "" for frame in whole)


def press(
    key: str,
    offset: int,
    *,
    duration_ms: float = 50,
    off: tuple[float, float] = (0.0, 0.0),
    twist_db: float = 0.0,
    amplitude: float = 4000,
    noise: float = 0.0,
) -> Pcm:
    """A key in half a second of line; `off`: relative frequency errors; `twist_db`: high over low."""
    index = KEYS.index(key)
    t = np.arange(int(8 * duration_ms)) / 8000
    row_hz = kernels.DTMF_HZ[index // 4] * (1 + off[0])
    column_hz = kernels.DTMF_HZ[4 + index % 4] * (1 + off[1])
    low, high = 10 ** (-max(twist_db, 0) / 20), 10 ** (min(twist_db, 0) / 20)
    phases = RNG.uniform(0, 2 * np.pi, 2)
    wave = low * np.sin(2 * np.pi * row_hz * t + phases[0]) + high * np.sin(
        2 * np.pi * column_hz * t + phases[1]
    )
    line = RNG.normal(0, noise, 4000) if noise else np.zeros(4000)
    line[800 + offset : 800 + offset + t.size] += amplitude * wave
    return np.clip(line, -32768, 32767).astype(np.int16)


def share(**how: object) -> float:
    """Of all keys at several alignments with the frames, the part that was heard exactly once and rightly."""
    tries = [(key, offset) for key in KEYS for offset in OFFSETS]
    right = sum(heard(press(key, offset, **how)) == key for key, offset in tries)  # type: ignore[arg-type]
    return right / len(tries)


def share_silent(**how: object) -> float:
    tries = [(key, offset) for key in KEYS for offset in OFFSETS]
    return sum(heard(press(key, offset, **how)) == "" for key, offset in tries) / len(tries)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate_hz", [8000, 16000, 24000, 48000])
def test_every_key_of_a_number_dialled_fast_is_heard_once(rate_hz: int) -> None:
    pause = np.zeros(rate_hz * 50 // 1000, np.int16)
    line = np.concatenate([part for key in KEYS + "1100##" for part in (tone(key, rate_hz, 50), pause)])
    assert heard(line, rate_hz) == KEYS + "1100##"


def test_a_long_press_is_one_key() -> None:
    assert heard(np.concatenate((tone("5", 8000, 5000), np.zeros(800, np.int16)))) == "5"


def test_forty_milliseconds_are_always_enough() -> None:
    assert share(duration_ms=40) == 1.0


def test_twenty_three_milliseconds_are_never_enough() -> None:
    assert share_silent(duration_ms=22.9) == 1.0


def test_a_pause_of_forty_milliseconds_parts_two_presses_and_a_drop_out_of_ten_does_not() -> None:
    def twice(pause_ms: int, offset: int) -> str:
        pause = np.zeros(8 * pause_ms, np.int16)
        line = (np.zeros(800 + offset, np.int16), tone("7", 8000, 80), pause, tone("7", 8000, 80))
        return heard(np.concatenate((*line, np.zeros(800, np.int16))))

    assert {twice(40, offset) for offset in OFFSETS} == {"77"}
    assert {twice(10, offset) for offset in OFFSETS} == {"7"}


@pytest.mark.parametrize("off", [(0.015, 0.015), (-0.015, -0.015), (0.015, -0.015), (-0.015, 0.015)])
def test_one_and_a_half_per_cent_off_frequency_is_accepted(off: tuple[float, float]) -> None:
    assert share(off=off, duration_ms=40) == 1.0


@pytest.mark.parametrize("off", [(0.035, 0.0), (-0.035, 0.0), (0.0, 0.035), (0.0, -0.035), (0.05, 0.05)])
def test_three_and_a_half_per_cent_off_frequency_is_refused(off: tuple[float, float]) -> None:
    assert share_silent(off=off, duration_ms=100) == 1.0


@pytest.mark.parametrize("twist_db", [-8.0, -4.0, 4.0])
def test_twist_within_the_recommendation_is_accepted(twist_db: float) -> None:
    assert share(twist_db=twist_db, duration_ms=40, off=(0.01, -0.01)) == 1.0


@pytest.mark.parametrize("twist_db", [-12.0, 8.0])
def test_more_twist_than_any_telephone_makes_is_refused(twist_db: float) -> None:
    assert share_silent(twist_db=twist_db, duration_ms=100) == 1.0


@pytest.mark.parametrize("amplitude", [16000, 4000, 700])  # each tone -9 to -36 dBov
def test_loud_and_quiet_telephones_are_heard(amplitude: float) -> None:
    assert share(amplitude=amplitude, duration_ms=40) == 1.0


def test_what_leaks_from_another_line_is_not_heard() -> None:
    assert share_silent(amplitude=100, duration_ms=100) == 1.0  # -50 dBov


def test_a_noisy_line_hears_the_keys_too() -> None:
    assert share(noise=700, duration_ms=50) == 1.0  # 15 dB below each tone


def test_one_tone_is_not_a_key() -> None:
    t = np.arange(4000) / 8000
    for frequency_hz in (*kernels.DTMF_HZ, 440.0, 425.0, 1000.0, 2100.0):
        single = (8000 * np.sin(2 * np.pi * frequency_hz * t)).astype(np.int16)
        assert heard(single) == ""


def test_ring_back_busy_and_dial_tones_are_not_keys() -> None:
    t = np.arange(16000) / 8000
    for pair in ((440, 480), (480, 620), (350, 440), (425, 425), (1400, 2060), (950, 1400), (697, 941)):
        both = sum(6000 * np.sin(2 * np.pi * frequency_hz * t) for frequency_hz in pair)
        assert heard(np.asarray(both, np.int16)) == ""


def test_keys_survive_a_telephone_codec() -> None:
    line = np.concatenate([part for key in KEYS for part in (tone(key, 8000, 40), np.zeros(320, np.int16))])
    for law in ("ulaw", "alaw"):
        octets, again = np.zeros(line.size, np.uint8), np.zeros(line.size, np.int16)
        getattr(kernels, f"{law}_encode")(line, octets)
        getattr(kernels, f"{law}_decode")(octets, again)
        assert heard(again) == KEYS


TALK = (
    "Thank you for calling. How can I help you today? Your appointment is on Tuesday, the fourteenth of "
    "October, at three thirty. One two three four five six seven eight nine zero. Please bring your "
    "insurance card, and arrive ten minutes early, so that we can complete the form. "
)
VOICES = (
    "en-us",
    "en-gb",
    "en-us+f3",
    "en-us+f5",
    "en-us+klatt2",
    "en-us+Annie",
    "en-us+whisper",
    "de",
    "fr",
    "hi",
)


@pytest.mark.parametrize("voice", VOICES)
def test_nobody_presses_a_key_by_talking(voice: str) -> None:
    speech, rate_hz = talk(voice, TALK * 3)
    assert speech.size > 40 * rate_hz
    for gain_db in (0.0, -12.0):
        for to_hz in (8000, 16000):
            assert heard(levels.scaled(resample(speech, rate_hz, to_hz), gain_db), to_hz) == ""


def test_music_and_noise_press_no_keys() -> None:
    t = np.arange(8000 * 20) / 8000
    notes = 440 * 2 ** (np.arange(40) % 24 / 12)
    melody = sum(
        4000 / h * np.sin(2 * np.pi * h * np.repeat(notes, t.size // notes.size) * t) for h in (1, 2, 3, 4)
    )
    assert heard(np.asarray(melody, np.int16)) == ""
    assert heard(RNG.normal(0, 6000, t.size).astype(np.int16)) == ""


def test_a_tone_shows_before_it_is_confirmed_and_until_it_ends() -> None:
    detector = DtmfDetector(8000)
    line = np.concatenate((np.zeros(160, np.int16), tone("9", 8000, 100), np.zeros(480, np.int16))).reshape(
        -1, 160
    )
    shown = []
    keys = []
    for frame in line:
        keys.append(detector.push(frame))
        shown.append(detector.tone_present)
    assert shown[:6] == [False, True, True, True, True, True]  # from its first frame to its last
    assert shown[8:] == [False]  # and not 40 ms longer
    assert [i for i, key in enumerate(keys) if key] == [2]


def test_a_reset_forgets_the_press() -> None:
    detector = DtmfDetector(8000)
    frames = tone("4", 8000, 60).reshape(-1, 160)
    assert [key for key in map(detector.push, frames) if key] == ["4"]
    detector.reset()
    assert not detector.tone_present
    assert [key for key in map(detector.push, frames) if key] == ["4"]


def test_a_generated_tone_has_its_level_and_its_length() -> None:
    for rate_hz in (8000, 48000):
        key = tone("D", rate_hz, 500, -20.0)
        assert key.size == rate_hz // 2
        assert levels.rms_dbfs(key) == pytest.approx(-20.0, abs=0.2)
        assert abs(int(key[0])) < 400  # no click


@pytest.mark.parametrize("wrong", ["", "E", "12", "a", "+"])
def test_only_keys_have_tones(wrong: str) -> None:
    with pytest.raises(ValueError, match="not a DTMF key"):
        tone(wrong, 8000)


def test_a_rate_that_no_leg_has_is_refused() -> None:
    with pytest.raises(ValueError, match="11025"):
        DtmfDetector(11025)
