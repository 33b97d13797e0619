"""Figures of the resampler as an audio engineer would measure them, and what a stream may do to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import Pcm
from pipeline.audio.resample import KEPT, Resampler, _design, resample

PAIRS = [
    (8000, 16000),
    (16000, 8000),
    (48000, 8000),
    (8000, 48000),
    (24000, 8000),
    (22050, 8000),
    (22050, 16000),
    (44100, 16000),
    (16000, 24000),
    (48000, 16000),
]
AMPLITUDE = 16000


def sine(frequency_hz: float, rate_hz: int, seconds: float = 2.0) -> Pcm:
    t = np.arange(int(rate_hz * seconds)) / rate_hz
    return np.asarray(np.rint(AMPLITUDE * np.sin(2 * np.pi * frequency_hz * t)), np.int16)


def fitted(samples: Pcm, frequency_hz: float, rate_hz: int) -> tuple[float, float]:
    """Amplitude of the sine in the middle second, and the RMS of all that is not it."""
    middle = samples[rate_hz // 4 : rate_hz // 4 + rate_hz].astype(np.float64)
    angle = 2 * np.pi * frequency_hz * np.arange(middle.size) / rate_hz
    basis = np.column_stack((np.cos(angle), np.sin(angle)))
    weights, *_ = np.linalg.lstsq(basis, middle, rcond=None)
    return float(np.hypot(*weights)), float((middle - basis @ weights).std())


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_a_tone_comes_out_clean_and_as_loud(from_hz: int, to_hz: int) -> None:
    amplitude, rest = fitted(Resampler(from_hz, to_hz)(sine(1000, from_hz)), 1000, to_hz)
    assert abs(20 * np.log10(amplitude / AMPLITUDE)) < 0.01
    assert 20 * np.log10(amplitude / np.sqrt(2) / rest) > 85  # 16 bit allow 93 at this level


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_the_whole_telephone_band_passes(from_hz: int, to_hz: int) -> None:
    amplitude, _ = fitted(Resampler(from_hz, to_hz)(sine(3400, from_hz)), 3400, to_hz)
    assert abs(20 * np.log10(amplitude / AMPLITUDE)) < 0.05


@pytest.mark.parametrize(("from_hz", "to_hz"), [pair for pair in PAIRS if pair[0] > pair[1]])
def test_what_the_lower_rate_cannot_carry_does_not_fold(from_hz: int, to_hz: int) -> None:
    above = Resampler(from_hz, to_hz)(sine(1.2 * to_hz / 2, from_hz))
    rest = above[to_hz // 4 :].astype(np.float64).std()
    assert 20 * np.log10(rest / (AMPLITUDE / np.sqrt(2))) < -78


@pytest.mark.parametrize(("from_hz", "to_hz"), [pair for pair in PAIRS if pair[0] < pair[1]])
def test_the_higher_rate_shows_no_image(from_hz: int, to_hz: int) -> None:
    up = Resampler(from_hz, to_hz)(sine(0.4 * from_hz, from_hz))
    second = up[to_hz // 4 : to_hz // 4 + to_hz].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(second * np.hanning(second.size)))
    assert 20 * np.log10(spectrum[int(0.55 * from_hz) :].max() / spectrum.max()) < -78


@settings(deadline=None, max_examples=60)
@given(
    pair=st.sampled_from(PAIRS),
    cuts=st.lists(st.integers(0, 2000), max_size=30),
    seed=st.integers(0, 1000),
)
def test_how_a_stream_is_cut_changes_no_sample(pair: tuple[int, int], cuts: list[int], seed: int) -> None:
    from_hz, to_hz = pair
    stream = np.random.default_rng(seed).integers(-32768, 32768, 6000).astype(np.int16)
    whole = Resampler(from_hz, to_hz)(stream)
    pieces = np.split(stream, np.minimum(np.cumsum(cuts), stream.size)) if cuts else [stream]
    cut = Resampler(from_hz, to_hz)
    assert np.array_equal(np.concatenate([cut(piece) for piece in pieces]), whole)


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_a_frame_in_is_a_frame_out(from_hz: int, to_hz: int) -> None:
    stream = Resampler(from_hz, to_hz)
    frame = np.zeros(from_hz // 50, np.int16)
    assert {stream(frame).size for _ in range(10)} == {to_hz // 50}


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_the_delay_is_what_it_says(from_hz: int, to_hz: int) -> None:
    click = np.zeros(from_hz // 2, np.int16)
    click[from_hz // 10] = 30000
    stream = Resampler(from_hz, to_hz)
    peak = int(np.abs(stream(click).astype(np.int32)).argmax())
    assert abs(peak - to_hz // 10 - stream.delay_samples) <= 1
    assert stream.delay_samples / to_hz < 0.0025


@pytest.mark.parametrize(("from_hz", "to_hz"), PAIRS)
def test_a_whole_utterance_is_aligned_with_its_source(from_hz: int, to_hz: int) -> None:
    out = resample(sine(500, from_hz, 0.5), from_hz, to_hz)
    assert out.size == to_hz // 2
    expected = AMPLITUDE * np.sin(2 * np.pi * 500 * np.arange(out.size) / to_hz)
    assert np.abs(out - expected)[200:-200].max() < 3


def test_equal_rates_cost_nothing() -> None:
    frame = sine(1000, 8000, 0.02)
    stream = Resampler(8000, 8000)
    assert stream(frame) is frame
    assert stream.delay_samples == 0
    assert resample(frame, 8000, 8000) is frame


def test_loud_material_saturates_instead_of_wrapping() -> None:
    half = np.where(np.arange(16000) % 40 < 20, 16000, -16000).astype(np.int16)
    expected = np.clip(2 * Resampler(16000, 8000)(half).astype(np.int32), -32768, 32767)
    out = Resampler(16000, 8000)((2 * half.astype(np.int32)).astype(np.int16)).astype(np.int32)
    assert (out.max(), out.min()) == (32767, -32768)  # the filter overshoots at the edges
    assert np.abs(out - expected).max() <= 2


def test_a_reset_stream_is_a_new_one() -> None:
    stream = Resampler(22050, 8000)
    first = stream(sine(700, 22050, 0.0301))
    stream.reset()
    assert np.array_equal(stream(sine(700, 22050, 0.0301)), first)


def test_nothing_in_is_nothing_out() -> None:
    empty = np.zeros(0, np.int16)
    assert Resampler(8000, 16000)(empty).size == 0
    assert resample(empty, 8000, 16000).size == 0


@pytest.mark.parametrize(("from_hz", "to_hz"), [(0, 8000), (8000, -1), (8000, 1_000_000), (44100, 11026)])
def test_an_impossible_rate_is_refused_by_name(from_hz: int, to_hz: int) -> None:
    with pytest.raises(ValueError, match=r"Hz"):
        Resampler(from_hz, to_hz)


def test_ever_other_rates_fill_no_memory() -> None:
    """A voice's server names the rate of each of its answers."""
    for rate_hz in range(12_000, 24_000, 120):
        Resampler(rate_hz, 24_000)
    assert _design.cache_info().currsize <= KEPT


def test_a_whole_sentence_at_once_leaves_no_memory_of_its_size() -> None:
    """A voice may give a sentence as one chunk, and each call has a resampler of its own."""
    sentence = sine(400, 24000, 10.0)
    whole, pieces = Resampler(24000, 8000), Resampler(24000, 8000)
    together = np.concatenate([pieces(piece) for piece in np.split(sentence, 500)])
    assert (whole(sentence) == together).all()
    assert whole._buffer.nbytes < 8000
