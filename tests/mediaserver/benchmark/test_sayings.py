"""What the caller says: where its voice begins and ends, and what cannot be said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.support.codecs import over_ulaw
from mediaserver.benchmark.own_voice import copied_from
from mediaserver.benchmark.sayings import NoSpeech, Recorded, recorded, sayings
from pipeline.audio import Pcm, wav
from tests.support.speech.syllables import syllables

RATE_HZ = 8000


def quiet(seconds: float, rate_hz: int = RATE_HZ) -> Pcm:
    """A line's noise."""
    noise = np.random.default_rng(7).normal(0, 4, round(seconds * rate_hz))
    return np.asarray(noise, np.int16)


@pytest.mark.parametrize("rate_hz", [8000, 16000, 22050, 44100])
def test_the_voice_in_a_recording_is_found_to_the_frame(tmp_path: Path, rate_hz: int) -> None:
    voice = syllables(130, 1.5, rate_hz)
    wav.write(tmp_path / "a.wav", np.concatenate([quiet(0.5, rate_hz), voice, quiet(0.7, rate_hz)]), rate_hz)
    (saying,) = sayings([recorded(tmp_path / "a.wav")], RATE_HZ)
    assert saying.first == 25
    assert abs(saying.last - (25 + len(voice) / rate_hz * 50 - 1)) <= 1
    assert len(saying.frames) == 25 + 35 + round(len(voice) / rate_hz * 50)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "not a PCM WAV file"), (b"OggS" + bytes(100), "not a PCM WAV file"), (None, "no such file")],
)
def test_what_is_no_recording(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "a.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NoSpeech, match=f"{path}: {reason}"):
        recorded(path)


def test_silence_and_sermons_are_not_said(tmp_path: Path) -> None:
    with pytest.raises(NoSpeech, match="no voice"):
        sayings([Recorded("silence", np.zeros(RATE_HZ, np.int16), RATE_HZ)], RATE_HZ)
    with pytest.raises(NoSpeech, match="no voice"):
        sayings([Recorded("nothing", np.zeros(0, np.int16), RATE_HZ)], RATE_HZ)
    wav.write(tmp_path / "long.wav", np.zeros(31 * RATE_HZ, np.int16), RATE_HZ)
    with pytest.raises(NoSpeech, match="31 s, longer than 30"):
        recorded(tmp_path / "long.wav")


def test_a_copy_is_known_wherever_it_begins_and_another_voice_is_none() -> None:
    said = syllables(120, 2.0)
    copy = over_ulaw((said * 0.3).astype(np.int16))
    for at in (0, 800, 5000):
        assert copied_from(said, copy[at : at + 2400]) == at
    led = np.concatenate([np.zeros(400, np.int16), copy[:2000]])
    assert copied_from(said, led) == -400
    for pitch in (90, 150, 205, 240):
        assert copied_from(said, over_ulaw(syllables(pitch, 2.0))[:2400]) is None
    assert copied_from(said, np.zeros(2400, np.int16)) is None
    assert copied_from(said, np.zeros(0, np.int16)) is None
