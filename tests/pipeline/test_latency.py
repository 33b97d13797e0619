"""The parts of a turn's latency."""

from __future__ import annotations

import pytest

from pipeline.latency import TurnClock


def test_the_parts_add_up() -> None:
    clock = TurnClock(voice_ended=10.0, endpoint_due=10.5, words_known=10.6, agent_s=0.2, tts_s=0.05)
    latency = clock.latency(10.87)
    assert latency.voice_to_voice_ms == pytest.approx(870)
    assert latency.endpoint_ms == pytest.approx(500)
    assert latency.stt_ms == pytest.approx(100)
    assert latency.agent_ms == pytest.approx(200)
    assert latency.tts_ms == pytest.approx(50)
    assert latency.server_ms == pytest.approx(20)


def test_words_known_in_the_pause_cost_nothing() -> None:
    clock = TurnClock(voice_ended=10.0, endpoint_due=10.5, words_known=10.3)
    assert clock.latency(10.501).stt_ms == 0
    assert clock.latency(10.501).server_ms == pytest.approx(1)
