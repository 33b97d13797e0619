"""One recogniser and one voice for all agents of a server: how many processes there are, and what is shown of
those who wait for them."""

from __future__ import annotations

import asyncio
import os

import numpy as np
import pytest

from bench.support.processes import children, module_of
from mediaserver.demo.micro_whisper import MODEL_DIR
from mediaserver.engine_pool.choice import AgentChoice, EngineChoice
from mediaserver.engine_pool.pool import Engines
from mediaserver.telemetry.metrics import Metrics
from pipeline.engines.local_weights import PIPER
from pipeline.settings import SessionSettings
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.tts.piper import Piper
from tests.support.speech.engines import LINE_HZ
from tests.support.speech.local_speech import needs, said

WHISPER = {"model": str(MODEL_DIR), "encoder_window_s": 1, "threads": 1}
SCRIPT = {"start": "bye", "step": [{"id": "bye", "say": "Goodbye.", "action": "hang_up"}]}


def agent(number: int) -> AgentChoice:
    return AgentChoice(
        agent_id=f"agent {number}",
        agent=EngineChoice("agent", "script", SCRIPT),
        stt=EngineChoice("stt", "faster-whisper", dict(WHISPER)),
        tts=EngineChoice("tts", "piper", {}),
        session=SessionSettings(),
    )


def helpers() -> list[str]:
    """The modules that this process's children run."""
    return sorted(filter(None, map(module_of, children(os.getpid()))))


@pytest.mark.nightly("ci")
async def test_all_agents_have_one_decoder_process_and_one_voice_process() -> None:
    needs(PIPER)
    engines, metrics = Engines([agent(number) for number in range(5)]), Metrics()
    metrics.watch_engines(engines.running.health, engines.running.decoder_waits)
    before = helpers()
    await engines.start()
    try:
        assert engines.missing() == []
        started = list(helpers())
        for each in before:
            started.remove(each)
        assert started == ["pipeline.stt.whisper.process", "pipeline.tts.onnx.process"]
        recognizer = {
            id(engines.agent_engines(f"agent {number}").stt.recognizers[0].engine) for number in range(5)
        }
        assert len(recognizer) == 1
        (recogniser,) = [
            each for each in engines.running._engines.values() if isinstance(each, FasterWhisper)
        ]
        voices = [Piper(), Piper()]  # not only agents': an equal voice made elsewhere shares the process
        await asyncio.gather(*(voice.start() for voice in voices))
        assert all(await asyncio.gather(*(said(voice, "Hello.") for voice in voices)))
        assert helpers() == sorted([*before, *started])
        await asyncio.gather(*(voice.close() for voice in voices))
        await recogniser.decode(np.zeros(LINE_HZ, np.int16), LINE_HZ, "en", None)
        exposed = metrics.exposition().decode()
    finally:
        await engines.close()
    assert 'mediaserver_decoder_wait_seconds_bucket{engine="faster-whisper",le="0.4"}' in exposed
    assert 'mediaserver_decoder_wait_seconds_count{engine="faster-whisper"} 2.0' in exposed
    assert helpers() == before


def test_a_server_without_such_a_recogniser_shows_nothing_of_it() -> None:
    metrics = Metrics()
    metrics.watch_engines(list)
    assert "decoder_wait_seconds_bucket" not in metrics.exposition().decode()
