"""Lost frames: filled without a click, without a delay, and not for long."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bench.support.concealment import RATES_HZ, Concealment
from pipeline.audio import Pcm, frame_samples
from pipeline.audio.resample import resample
from tests.support.webrtc.talk import talk


def vowel(rate_hz: int, pitch_hz: float, seconds: float) -> Pcm:
    """Harmonics of a voice, as far as 3.4 kHz."""
    t = np.arange(int(rate_hz * seconds)) / rate_hz
    harmonics = np.arange(1, int(3400 // pitch_hz))
    wave = sum(
        np.sin(2 * np.pi * h * pitch_hz * t + h * h) / (1 + ((h * pitch_hz - 600) / 400) ** 2)
        for h in harmonics
    )
    return np.asarray(6000 * np.asarray(wave) / np.abs(wave).max(), np.int16)


def frames(samples: Pcm, rate_hz: int) -> npt.NDArray[np.int16]:
    size = frame_samples(rate_hz)
    return samples[: samples.size // size * size].reshape(-1, size)


def received(sent: npt.NDArray[np.int16], rate_hz: int, lost: set[int]) -> npt.NDArray[np.int16]:
    concealment = Concealment(rate_hz)
    heard = [concealment.conceal() if i in lost else concealment.good(f.copy()) for i, f in enumerate(sent)]
    return np.array(heard)


def snr_db(reference: Pcm, other: Pcm) -> float:
    error = reference.astype(np.float64) - other
    return float(10 * np.log10((reference.astype(np.float64) ** 2).mean() / max(1e-9, (error**2).mean())))


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_frames_that_come_are_untouched(rate_hz: int) -> None:
    concealment = Concealment(rate_hz)
    for frame in frames(vowel(rate_hz, 120, 0.2), rate_hz):
        assert np.array_equal(concealment.good(frame.copy()), frame)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
@pytest.mark.parametrize("pitch_hz", [80, 100, 113, 147, 187])
def test_a_sustained_voice_goes_on_at_its_pitch(rate_hz: int, pitch_hz: int) -> None:
    sent = frames(vowel(rate_hz, pitch_hz, 0.3), rate_hz)
    heard = received(sent, rate_hz, {8})
    first_10_ms = slice(0, rate_hz // 100)
    assert snr_db(sent[8][first_10_ms], heard[8][first_10_ms]) > 13  # at 8 kHz a period is rounded to 1/8 ms
    assert np.array_equal(heard[10:], sent[10:])


def test_there_is_no_click_at_either_edge() -> None:
    """No step is larger than the voice itself makes, at 40 points of a period at which the loss may begin."""
    for shift in range(40):
        sent = frames(vowel(8000, 100, 0.4)[shift * 2 :], 8000)
        heard = received(sent, 8000, {7, 11, 12}).reshape(-1).astype(np.int32)
        own = np.abs(np.diff(sent.reshape(-1).astype(np.int32))).max()
        assert np.abs(np.diff(heard)).max() <= 1.25 * own


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_a_long_loss_fades_and_is_silent_after_sixty_milliseconds(rate_hz: int) -> None:
    sent = frames(vowel(rate_hz, 120, 0.4), rate_hz)
    heard = received(sent, rate_hz, set(range(8, 16)))
    energy = (heard.astype(np.float64) ** 2).mean(axis=1)
    assert energy[7] > energy[8] > energy[9] > energy[10] > 0
    assert not heard[11:16].any()
    assert heard.dtype == np.int16


def test_after_silence_the_voice_comes_back_softly_and_then_exactly() -> None:
    sent = frames(vowel(8000, 120, 0.4), 8000)
    heard = received(sent, 8000, set(range(5, 12)))
    assert abs(int(heard[12][0])) == 0
    assert np.array_equal(heard[12][80:], sent[12][80:])
    assert np.array_equal(heard[13:], sent[13:])


def test_a_loss_before_anything_was_heard_is_silence() -> None:
    concealment = Concealment(8000)
    assert not concealment.conceal().any()
    assert concealment.conceal().size == 160


def test_the_loudest_voice_does_not_wrap() -> None:
    loud = np.where(np.arange(3200) % 80 < 40, 32767, -32768).astype(np.int16)
    heard = received(frames(loud, 8000), 8000, {5, 6, 9}).astype(np.int32)
    assert np.abs(heard[5][:80]).min() > 20000  # a wrapped sum would pass through zero


def test_speech_with_one_frame_in_ten_lost_is_nearer_to_itself_than_with_holes() -> None:
    speech = resample(*talk("en-us", "Thank you for calling. How can I help you today?"), 8000)
    sent = frames(speech, 8000)
    lost = set(range(4, len(sent), 10))
    holes = sent.copy()
    holes[sorted(lost)] = 0

    def distance(other: npt.NDArray[np.int16]) -> float:
        """Mean distance of log spectra over the frames that were lost and held speech."""
        spectra = [np.log(np.abs(np.fft.rfft(x * np.hanning(160))) + 30.0) for x in (sent, other)]
        loud = [i for i in sorted(lost) if np.abs(sent[i]).max() > 1000]
        return float(np.abs(spectra[0] - spectra[1])[loud].mean())

    assert distance(received(sent, 8000, lost)) < 0.45 * distance(holes)


def test_thirty_per_cent_loss_is_survived_by_any_material() -> None:
    rng = np.random.default_rng(3)
    sent = rng.integers(-32768, 32768, (500, 160)).astype(np.int16)
    heard = received(sent, 8000, set(np.flatnonzero(rng.random(500) < 0.3).tolist()))
    assert heard.shape == sent.shape
