"""LiveKit Agents sessions with stub models: `python -m bench.peers.livekit_server FIRST_PORT SESSIONS`.

Each session is an `AgentSession` with its Silero detector and its turn handling (0.5 s of silence end a
turn). Its own transport needs LiveKit's media server, which is not on PyPI; so audio comes and goes through
`AgentSession.input` and `.output`, 20 ms of int16 at 8 kHz on a plain websocket: no WebRTC, and none of its
cost, is measured here. The models are those of `bench.call.server`."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import numpy as np
from livekit import rtc
from livekit.agents import Agent, AgentSession, ModelSettings, inference, llm, stt
from livekit.agents.voice import io
from websockets.asyncio.server import ServerConnection, serve

from bench.peers.stubs import ANSWER, LINE_HZ, VOICE_HZ, WORDS, sentence

FRAME = LINE_HZ // 50


class Heard(io.AudioInput):
    """The caller's audio, as it comes on the websocket."""

    def __init__(self) -> None:
        super().__init__(label="websocket")
        self.frames: asyncio.Queue[rtc.AudioFrame] = asyncio.Queue()

    async def __anext__(self) -> rtc.AudioFrame:
        return await self.frames.get()


class Played(io.AudioOutput):
    """The agent's audio, sent on the clock in frames of 20 ms."""

    def __init__(self, socket: ServerConnection) -> None:
        super().__init__(
            label="websocket", capabilities=io.AudioOutputCapabilities(pause=False), sample_rate=LINE_HZ
        )
        self._socket = socket
        self._samples = bytearray()
        self._played_s = 0.0
        self._flushed = False
        self._sending: asyncio.Task[None] | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """See `io.AudioOutput`."""
        await super().capture_frame(frame)
        self._samples += bytes(frame.data.cast("B"))
        if self._sending is None:
            self._flushed = False
            self._sending = asyncio.create_task(self._send())
            self.on_playback_started(created_at=time.time())

    def flush(self) -> None:
        """See `io.AudioOutput`."""
        super().flush()
        self._flushed = True

    def clear_buffer(self) -> None:
        """See `io.AudioOutput`."""
        if self._sending is not None:
            self._sending.cancel()
            self._end(interrupted=True)

    async def _send(self) -> None:
        due = time.monotonic()
        while self._samples or not self._flushed:
            if self._samples:
                frame = bytes(self._samples[: 2 * FRAME])
                del self._samples[: 2 * FRAME]
                self._played_s += FRAME / LINE_HZ
                await self._socket.send(frame)
            due += 0.02
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        self._end(interrupted=False)

    def _end(self, *, interrupted: bool) -> None:
        position, self._played_s, self._sending = self._played_s, 0.0, None
        self._samples.clear()
        self.on_playback_finished(playback_position=position, interrupted=interrupted)


class NoModel(llm.LLM):
    """The language model that `AgentSession` asks for; `Talker.llm_node` answers in its place."""

    def chat(self, **_: Any) -> Any:
        """See `llm.LLM`."""
        raise NotImplementedError


class Recognizer(stt.STT):
    """Recognises every utterance that the detector delimits as the same words, at once."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=False, interim_results=False))

    async def _recognize_impl(self, buffer: Any, **_: Any) -> stt.SpeechEvent:
        return stt.SpeechEvent(
            type=stt.SpeechEventType.FINAL_TRANSCRIPT,
            alternatives=[stt.SpeechData(language="en", text=WORDS)],
        )


class Talker(Agent):
    """Answers every turn with one sentence, and speaks a tone."""

    def __init__(self) -> None:
        super().__init__(instructions="")

    async def llm_node(self, chat_ctx: Any, tools: Any, model_settings: ModelSettings) -> AsyncIterator[str]:
        """See `Agent.llm_node`."""
        yield ANSWER

    async def tts_node(
        self, text: AsyncIterable[str], model_settings: ModelSettings
    ) -> AsyncIterator[rtc.AudioFrame]:
        """See `Agent.tts_node`."""
        async for _ in text:
            pass
        samples = sentence()
        yield rtc.AudioFrame(samples.tobytes(), VOICE_HZ, 1, samples.size)


async def talk(socket: ServerConnection) -> None:
    """Runs one session on `socket`."""
    detector = inference.VAD()
    session: Any = AgentSession(
        stt=Recognizer(),
        vad=detector,
        llm=NoModel(),
        turn_handling={"turn_detection": "vad", "endpointing": {"min_delay": 0.5, "max_delay": 0.5}},
        user_away_timeout=None,
        aec_warmup_duration=None,
    )
    heard = Heard()
    session.input.audio, session.output.audio = heard, Played(socket)
    await session.start(Talker())
    async for message in socket:
        samples = np.frombuffer(bytes(message), "<i2")
        heard.frames.put_nowait(rtc.AudioFrame(samples.tobytes(), LINE_HZ, 1, samples.size))
    await session.aclose()


async def run(first_port: int, sessions: int) -> None:
    """Serves `sessions` sessions at ports that follow each other, until the process is killed."""
    logging.disable(logging.WARNING)
    for number in range(sessions):
        await serve(talk, "127.0.0.1", first_port + number, compression=None)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]), int(sys.argv[2])))
