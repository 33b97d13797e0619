"""Pipecat sessions with stub models: `python -m bench.peers.pipecat_server FIRST_PORT SESSIONS`.

Each session is a pipeline of Pipecat's own parts: its websocket transport with its protobuf serializer, its
Silero detector (0.2 s) and its turn strategy (0.3 s more, so that 0.5 s of silence end a turn), its context
aggregators. The models are those of `bench.call.server`: words at once, an answer at once, a tone of 1.5 s
as one chunk."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.audio.vad.vad_analyzer import VADParams
from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.services.settings import STTSettings, TTSSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.services.tts_service import TTSService
from pipecat.transports.websocket.server import (
    SingleClientWebsocketServerParams,
    SingleClientWebsocketServerTransport,
)
from pipecat.turns.user_stop.speech_timeout_user_turn_stop_strategy import SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from bench.peers.stubs import ANSWER, LINE_HZ, VOICE_HZ, WORDS, sentence


class Recognizer(SegmentedSTTService):
    """Recognises every utterance as the same words, at once."""

    async def run_stt(self, audio: bytes) -> AsyncIterator[Frame]:
        """See `STTService.run_stt`."""
        yield TranscriptionFrame(WORDS, "caller", "", finalized=True)


class Answer(FrameProcessor):
    """Answers every turn with the same sentence, at once."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """See `FrameProcessor.process_frame`."""
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        for said in (LLMFullResponseStartFrame(), LLMTextFrame(ANSWER), LLMFullResponseEndFrame()):
            await self.push_frame(said)


class Voice(TTSService):
    """Speaks a tone, one chunk for each text."""

    async def run_tts(self, text: str, context_id: str) -> AsyncIterator[Frame]:
        """See `TTSService.run_tts`."""
        yield TTSAudioRawFrame(sentence().tobytes(), VOICE_HZ, 1, context_id=context_id)


def worker(port: int) -> PipelineWorker:
    """Returns the pipeline of one session, which listens at `port`."""
    transport = SingleClientWebsocketServerTransport(
        host="127.0.0.1",
        port=port,
        params=SingleClientWebsocketServerParams(
            audio_in_enabled=True, audio_out_enabled=True, serializer=ProtobufFrameSerializer()
        ),
    )
    context = LLMContext()
    pair = LLMContextAggregatorPair(
        context,
        user_params=LLMUserAggregatorParams(
            vad_analyzer=SileroVADAnalyzer(params=VADParams(stop_secs=0.2)),
            user_turn_strategies=UserTurnStrategies(
                stop=[SpeechTimeoutUserTurnStopStrategy(user_speech_timeout=0.3)]
            ),
        ),
    )
    stages: list[Any] = [
        transport.input(),
        Recognizer(ttfs_p99_latency=0.0, settings=STTSettings(model="stub", language=None)),
        pair.user(),
        Answer(),
        Voice(
            push_start_frame=True,
            push_stop_frames=True,
            settings=TTSSettings(model="stub", voice="stub", language=None),
        ),
        transport.output(),
        pair.assistant(),
    ]
    return PipelineWorker(
        Pipeline(stages),
        params=PipelineParams(audio_in_sample_rate=LINE_HZ, audio_out_sample_rate=LINE_HZ),
        idle_timeout_secs=None,
    )


async def serve(first_port: int, sessions: int) -> None:
    """Serves `sessions` sessions at ports that follow each other, until the process is killed."""
    logger.remove()
    runners = [WorkerRunner(handle_sigint=False).run(worker(first_port + n)) for n in range(sessions)]
    await asyncio.gather(*runners)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
