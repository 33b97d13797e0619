"""Speech found and noise left alone, on voices and noises that a telephone line has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from bench.support import codecs
from pipeline.audio import Pcm, frame_samples
from pipeline.audio.resample import resample
from pipeline.audio.vad import EnergyVad, VadFrame, VadSettings
from pipeline.plane.codecs import MAX_PAYLOAD_BYTES
from sip.sdp.media_plan import CODECS
from tests.support.webrtc.talk import talk

SENTENCES = (
    "Yes please, that is fine.",
    "My number is five five five, one two three four.",
    "I would like to speak to somebody about my appointment.",
    "No.",
)
VOICES = ("en-us", "en-gb", "en-us+f3", "en-us+klatt2")
LEVEL = 3000.0


def conversation(voice: str, rate_hz: int) -> npt.NDArray[np.float64]:
    """1.5 s of silence, then the sentences, 1.2 s apart, at 3000 RMS while speaking."""
    parts = [np.zeros(rate_hz * 3 // 2)]
    for sentence in SENTENCES:
        speech = resample(*talk(voice, sentence), rate_hz).astype(np.float64)
        speech *= LEVEL / np.sqrt((speech[np.abs(speech) > 300] ** 2).mean())
        parts += [speech, np.zeros(rate_hz * 6 // 5)]
    whole = np.concatenate(parts)
    return whole[: whole.size // frame_samples(rate_hz) * frame_samples(rate_hz)]


def noise(kind: str, size: int) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(5)
    white = rng.normal(size=size)
    if kind == "white":
        return white
    spectrum = np.fft.rfft(white) / np.sqrt(np.maximum(np.arange(size // 2 + 1), 1))
    pink = np.fft.irfft(spectrum, size)
    return np.asarray(pink / pink.std())


def pcm(samples: npt.NDArray[np.float64]) -> Pcm:
    return np.clip(samples, -32768, 32767).astype(np.int16)


def verdicts(samples: Pcm, rate_hz: int, settings: VadSettings | None = None) -> list[VadFrame]:
    vad = EnergyVad(rate_hz, settings)
    return [vad.push(frame) for frame in samples.reshape(-1, frame_samples(rate_hz))]


def errors(rate_hz: int, kind: str, snr_db: float) -> tuple[float, float]:
    """Shares of speech missed (80 ms at an onset forgiven) and of silence heard (200 ms after it too)."""
    missed = speaking = false = silent = 0
    for voice in VOICES:
        clean = conversation(voice, rate_hz)
        heard = pcm(clean + noise(kind, clean.size) * LEVEL / 10 ** (snr_db / 20))
        active = np.array([verdict.active for verdict in verdicts(heard, rate_hz)])
        speech = np.sqrt((clean.reshape(active.size, -1) ** 2).mean(axis=1)) > 100
        near, onset = speech.copy(), np.zeros_like(speech)
        for late in range(1, 11):
            near[late:] |= speech[:-late]
        for start in np.flatnonzero(speech[1:] & ~speech[:-1]) + 1:
            onset[start : start + 4] = True
        must = speech & ~onset
        missed, speaking = missed + int((must & ~active).sum()), speaking + int(must.sum())
        false, silent = false + int((active & ~near).sum()), silent + int((~near).sum())
    return missed / speaking, false / silent


@pytest.mark.parametrize(
    ("kind", "snr_db", "miss", "false_alarm"),
    [
        ("white", 60, 0.005, 0.0),
        ("white", 20, 0.02, 0.005),
        ("white", 10, 0.03, 0.005),
        ("white", 0, 0.18, 0.06),
        ("pink", 20, 0.02, 0.005),
        ("pink", 10, 0.02, 0.005),
        ("pink", 5, 0.03, 0.01),
        ("pink", 0, 0.08, 0.06),
    ],
)
@pytest.mark.parametrize("rate_hz", [8000, 16000])
def test_speech_is_found_in_noise(
    rate_hz: int, kind: str, snr_db: float, miss: float, false_alarm: float
) -> None:
    missed, false = errors(rate_hz, kind, snr_db)
    assert missed <= miss
    assert false <= false_alarm


@pytest.mark.parametrize("rate_hz", [8000, 16000, 24000, 48000])
@pytest.mark.parametrize("level", [0.0, 3.0, 30.0, 300.0])
def test_a_steady_line_is_silence_however_loud_it_hisses(rate_hz: int, level: float) -> None:
    hiss = pcm(noise("white", rate_hz * 6) * level)
    after = verdicts(hiss, rate_hz)[100:]
    assert not any(verdict.active for verdict in after)
    assert sum(verdict.voiced for verdict in after) <= 1


def test_line_noise_that_sets_in_after_digital_silence_is_not_speech() -> None:
    line = np.concatenate((np.zeros(16000), noise("white", 16000) * 15))
    assert not any(verdict.active for verdict in verdicts(pcm(line), 8000))


def test_mains_hum_and_an_offset_are_not_speech() -> None:
    t = np.arange(8000 * 4) / 8000
    hum = 8000 + 400 * np.sin(2 * np.pi * 50 * t)
    assert not any(verdict.active for verdict in verdicts(pcm(hum), 8000)[100:])


def test_a_click_is_not_speech() -> None:
    quiet = noise("white", 8000 * 4) * 3
    for at in range(8000, quiet.size, 4000):
        quiet[at : at + 40] += 12000
    assert not any(verdict.active for verdict in verdicts(pcm(quiet), 8000))


def test_voiced_ends_with_the_voice_and_active_after_the_hang_over() -> None:
    t = np.arange(8000) / 8000
    vowel = 3000 * np.sin(2 * np.pi * 200 * t) + 2000 * np.sin(2 * np.pi * 700 * t)
    line = np.concatenate((np.zeros(8000), vowel, np.zeros(8000))) + noise("white", 24000) * 3
    heard = verdicts(pcm(line), 8000)
    voiced = [i for i, verdict in enumerate(heard) if verdict.voiced]
    active = [i for i, verdict in enumerate(heard) if verdict.active]
    assert voiced[0] == 50
    assert voiced[-1] in (99, 100)  # a voice cut with a knife rings on in the filters for some milliseconds
    assert 51 <= active[0] <= 53
    assert 99 + 8 <= active[-1] <= 99 + 12


def test_a_longer_hang_over_bridges_a_longer_pause() -> None:
    burst = noise("white", 4000) * 3000
    line = pcm(
        np.concatenate((np.zeros(8000), burst, np.zeros(3200), burst, np.zeros(8000))) + noise("white", 27200)
    )
    bridged = verdicts(line, 8000, VadSettings(hang_ms=400))
    apart = verdicts(line, 8000, VadSettings(hang_ms=100))
    pause = slice(76, 94)
    assert all(verdict.active for verdict in bridged[pause])
    assert not all(verdict.active for verdict in apart[pause])


def test_a_call_that_begins_in_noise_settles_within_a_second_and_a_half() -> None:
    street = pcm(noise("pink", 8000 * 5) * 1000)
    assert not any(verdict.active for verdict in verdicts(street, 8000)[75:])


@pytest.mark.parametrize("name", ["pcmu", "opus"])
def test_a_codec_that_fades_in_does_not_make_a_voice_of_the_noise_after_it(name: str) -> None:
    """Opus begins quieter than the street is: that is not the street's level."""
    codec = CODECS[name]
    encoder, decoder = codecs.encoder(codec), codecs.decoder(codec)
    payload = np.empty(MAX_PAYLOAD_BYTES, np.uint8)
    street = pcm(noise("pink", codec.rate_hz * 4) * 1000)
    vad, active = EnergyVad(codec.rate_hz), 0
    for frame in street.reshape(-1, frame_samples(codec.rate_hz)):
        size = encoder.encode(frame, payload)
        active += vad.push(decoder.decode(payload[:size])).active
    assert active < 25


def test_a_frame_that_cannot_be_written_to_is_fine() -> None:
    frame = np.frombuffer(bytes(320), np.int16)
    assert EnergyVad(8000).push(frame) == VadFrame(voiced=False, active=False)


def test_a_reset_forgets_everything() -> None:
    line = pcm(noise("white", 16000) * 2000)
    vad = EnergyVad(8000)
    first = [vad.push(frame) for frame in line.reshape(-1, 160)]
    vad.reset()
    assert not vad.active
    assert [vad.push(frame) for frame in line.reshape(-1, 160)] == first


def test_the_state_of_the_last_frame_can_be_asked_for() -> None:
    vad = EnergyVad(8000)
    for frame in pcm(np.concatenate((noise("white", 8000) * 3, noise("white", 1600) * 3000))).reshape(
        -1, 160
    ):
        last = vad.push(frame)
    assert last.active
    assert vad.active
    assert 30 < vad.snr_db < 80


@pytest.mark.parametrize(
    "bad", [{"on_db": 3.0, "off_db": 4.0}, {"off_db": 0.0}, {"min_on_ms": 0}, {"hang_ms": 10}]
)
def test_settings_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"off_db|min_on_ms"):
        replace(VadSettings(), **bad)  # type: ignore[arg-type]


def test_a_rate_that_no_leg_has_is_refused() -> None:
    with pytest.raises(ValueError, match="11025"):
        EnergyVad(11025)
