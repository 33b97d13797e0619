"""MOS by G.107."""

from __future__ import annotations

import pytest

from sip.rtp.e_model import delay_ms, mean_opinion_score, rating


def test_a_line_without_loss_or_delay_has_the_default_rating() -> None:
    assert rating(0.0, 0.0) == pytest.approx(93.2)
    assert mean_opinion_score(0.0, 100.0) == pytest.approx(4.41, abs=0.005)


@pytest.mark.parametrize(("delay", "expected"), [(100, 93.2), (150, 93.0), (250, 84.3), (400, 69.1)])
def test_delay_costs_what_idd_of_g_107_says(delay: float, expected: float) -> None:
    assert rating(0.0, delay) == pytest.approx(expected, abs=0.1)


def test_loss_costs_what_g_113_says_of_g_711_with_concealment() -> None:
    ratings = [rating(percent / 100, 0.0) for percent in (0, 1, 2, 5, 10)]
    assert ratings == pytest.approx([93.2, 89.6, 86.2, 77.4, 66.1], abs=0.1)


SCALE = [(1.0, 0.0), (1.0, 5000.0), (0.5, 1000.0), (2.0, 0.0), (-1.0, -5.0)]


@pytest.mark.parametrize(("loss", "delay"), SCALE)
def test_the_score_stays_on_its_scale(loss: float, delay: float) -> None:
    assert 1.0 <= mean_opinion_score(loss, delay) <= 4.42


def test_worse_is_never_rated_better() -> None:
    scores = [mean_opinion_score(loss / 200, 50.0 + loss) for loss in range(200)]
    assert scores == sorted(scores, reverse=True)


def test_the_delay_of_a_call_without_reports_is_that_of_its_packets() -> None:
    assert delay_ms(None, 0.0) == 20.0
    assert delay_ms(160.0, 5.0) == 110.0
