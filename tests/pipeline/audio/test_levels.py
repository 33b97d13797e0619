"""Decibels, from both sides."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.audio import levels


def test_a_full_scale_square_wave_is_zero_dbov_and_a_sine_three_below() -> None:
    square = np.where(np.arange(8000) % 2, 32767, -32768).astype(np.int16)
    sine = np.rint(32767 * np.sin(2 * np.pi * np.arange(8000) / 80)).astype(np.int16)
    assert levels.rms_dbfs(square) == pytest.approx(0.0, abs=0.001)
    assert levels.rms_dbfs(sine) == pytest.approx(-3.01, abs=0.01)


def test_silence_has_a_finite_level() -> None:
    for nothing in (np.zeros(160, np.int16), np.zeros(0, np.int16)):
        assert levels.rms(nothing) == 0.0
        assert levels.rms_dbfs(nothing) == levels.FLOOR_DBFS


def test_the_most_negative_sample_is_full_scale() -> None:
    assert levels.rms_dbfs(np.full(10, -32768, np.int16)) == 0.0


def test_amplitude_and_level_are_inverse() -> None:
    for dbfs in (-60.0, -20.0, -6.0):
        constant = np.full(100, round(levels.amplitude(dbfs)), np.int16)
        assert levels.rms_dbfs(constant) == pytest.approx(dbfs, abs=0.2)


def test_scaling_changes_the_level_by_that_much_and_saturates() -> None:
    noise = np.random.default_rng(1).normal(0, 1000, 8000).astype(np.int16)
    assert levels.rms_dbfs(levels.scaled(noise, -6.0)) == pytest.approx(
        levels.rms_dbfs(noise) - 6.0, abs=0.01
    )
    assert levels.scaled(np.array([20000, -20000], np.int16), 12.0).tolist() == [32767, -32768]
