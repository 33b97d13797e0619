"""Digital silence after a voice leaves no subnormal number in what a kernel remembers or computes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bench.kernels import subnormals
from bench.kernels.silence import MEMORYLESS, Listener, listeners
from pipeline.audio import LINE_RATES_HZ, frame_samples, kernels
from pipeline.audio.echo_gate import EchoGate
from pipeline.audio.vad import EnergyVad

SMALLEST = np.finfo(np.float32).tiny
A_MINUTE = 3000


def remembered(of: EnergyVad | EchoGate) -> Iterator[tuple[str, kernels.Floats]]:
    """Every array of floats that it holds."""
    for name in of.__slots__:
        value = getattr(of, name)
        if isinstance(value, np.ndarray) and value.dtype == np.float32:
            yield name, value


def subnormal(of: EnergyVad | EchoGate) -> list[str]:
    """The names of those that hold a subnormal number."""
    return [name for name, held in remembered(of) if ((held != 0) & (np.abs(held) < SMALLEST)).any()]


def voice(rate_hz: int) -> np.ndarray[tuple[int, int], np.dtype[np.int16]]:
    random = np.random.default_rng(20)
    return random.normal(0, 3000, (50, frame_samples(rate_hz))).astype(np.int16)


@pytest.mark.parametrize("quiet", [0, 8, -8])  # µ-law's silence, and both of A-law's
@pytest.mark.parametrize("rate_hz", LINE_RATES_HZ)
def test_the_voice_detector_holds_no_subnormal_number(rate_hz: int, quiet: int) -> None:
    vad = EnergyVad(rate_hz)
    for frame in voice(rate_hz):
        vad.push(frame)
    silence = np.full(frame_samples(rate_hz), quiet, np.int16)
    for frames in range(A_MINUTE):
        vad.push(silence)
        assert subnormal(vad) == [], f"after {frames} frames"
    assert not vad.active


@pytest.mark.parametrize(("plays", "hears"), [(True, False), (False, True), (False, False)])
def test_the_echo_gate_holds_no_subnormal_number(plays: bool, hears: bool) -> None:
    gate, frames, silence = EchoGate(8000), voice(8000), np.zeros(160, np.int16)
    for number in range(300 + A_MINUTE):
        sounds = number < 300
        gate.played(frames[number % 50] if sounds or plays else silence, number * 0.02)
        gate.is_echo(frames[(number - 4) % 50] // 5 if sounds or hears else silence, number * 0.02)
        if number % 25 == 0:
            assert subnormal(gate) == [], f"after {number} frames"
    assert gate.delay_ms == 80


@pytest.mark.skipif(not subnormals.KNOWN, reason="this processor does not tell")
@pytest.mark.parametrize("listener", listeners(), ids=lambda each: each.name)
def test_no_subnormal_number_is_met_in_silence(listener: Listener) -> None:
    assert not listener.meets_subnormals()


@pytest.mark.skipif(not subnormals.KNOWN, reason="this processor does not tell")
def test_a_subnormal_number_that_is_met_is_told() -> None:
    taps, out = np.full((1, 4), 1e-30, np.float32), np.zeros(160, np.int16)
    buffer = np.full(163, 1e-10, np.float32)
    ones = np.ones(160, np.int16)
    assert subnormals.met(lambda: kernels.polyphase(ones, buffer, taps, out, (0, 1)))
    buffer[:] = 1.0
    assert not subnormals.met(lambda: kernels.polyphase(ones, buffer, taps, out, (0, 1)))


def test_every_kernel_that_remembers_has_a_row() -> None:
    compiled = {name for name, value in vars(kernels).items() if hasattr(value, "py_func")}
    public = {name for name in compiled if not name.startswith("_")}
    assert public == {each.kernel for each in listeners()} | MEMORYLESS
