"""Frames that a line hands on many at once count as those that come one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.audio import Pcm, kernels, silence
from pipeline.audio.vad import EnergyVad
from pipeline.plane.incoming import NO_LINE, Told
from pipeline.plane.rows import Note
from pipeline.session.audio_input import VAD, AudioInput, Sound
from tests.support.speech.conversation import FakeStt

RATE_HZ = 8000
FRAME = 160
FRAMES = 400


def call(seed: int) -> Sequence[tuple[Pcm, Told]]:
    """Eight seconds of a caller: words and pauses, somebody quieter behind, the agent's echo, a key's tone,
    lost frames, and packets that are late."""
    random = np.random.default_rng(seed)
    detector, found = EnergyVad(RATE_HZ, VAD), []
    for number in range(FRAMES):
        loud = 8000 if number % 90 < 60 else 250 if number % 90 < 75 else 0
        time_s = np.arange(FRAME) / RATE_HZ
        tone = loud * np.sin(2 * np.pi * 300 * time_s) * random.uniform(0.3, 1.0)
        frame = tone.astype(np.int16) if loud else silence(RATE_HZ)
        verdict = detector.push(frame)
        note = Note.JUDGED | Note.VOICED * verdict.voiced | Note.ACTIVE * verdict.active
        if 150 <= number < 156:
            note |= Note.ECHO
        if 240 <= number < 246:
            note = Note.JUDGED | Note.MASKED
        arrived_ns = round((5.0 + number * 0.02 + random.uniform(0, 0.015)) * 1e9)
        level_dbov = kernels.rms_dbfs(frame) if verdict.voiced else 0.0
        found.append((frame, (number * FRAME, arrived_ns, int(number % 37 == 0), int(note), level_dbov)))
    return found


def heard(seed: int, at_once: int, *, alert: bool) -> object:
    """All that a conversation can know of the caller after that call, handed on so many frames at once."""
    stt, frames = FakeStt(), call(seed)
    audio_input = AudioInput(stt, rate_hz=RATE_HZ, language="en", sustained_ms=240, kept_ms=4000)
    audio_input.hear_by(NO_LINE)
    audio_input.alert = alert
    sounds: list[tuple[Sound, float]] = []

    def changed(sound: Sound, now: float) -> None:
        if sound is not Sound.SUSTAINED or not sounds or sounds[-1][0] is not sound:  # told once or often
            sounds.append((sound, now))
        if sound is Sound.STARTED:
            audio_input.open(None)

    for first in range(0, FRAMES, at_once):
        some = frames[first : first + at_once]
        audio_input.take(np.stack([frame for frame, _ in some]), [told for _, told in some], changed)
    recognised = [np.concatenate(each.pushed).tobytes() for each in stt.listenings]
    known = (audio_input.voiced_samples, audio_input.voiced_ms, audio_input.silent_since())
    return (
        sounds,
        recognised,
        known,
        audio_input.recent().tobytes(),
        audio_input.callers_own(noisy=False).tobytes(),
    )


@pytest.mark.parametrize("alert", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("at_once", [2, 5, 16, 40])
def test_frames_at_once_are_heard_as_frames_one_by_one(seed: int, at_once: int, alert: bool) -> None:
    assert heard(seed, at_once, alert=alert) == heard(seed, 1, alert=True)
