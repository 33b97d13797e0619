"""The usual first design, for comparison: voice detector, fixed silence, immediate stop.

Same leg, models, budgets and detector; the turn ends 500 ms after the voice, then recogniser, agent and voice
are called one after the other, and any 200 ms of sound over the agent stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import numpy as np

from pipeline.agent import AgentEvent, CallOpened, Conversation, Say, UserKeyed, UserSaid
from pipeline.audio import Pcm, frame_samples
from pipeline.audio.vad import EnergyVad
from pipeline.errors import EngineError
from pipeline.leg import Leg
from pipeline.speech import Listening, SpeechToText, TextToSpeech

SILENCE_S: Final = 0.5
VOICE_S: Final = 0.2
_FRAME_S: Final = 0.02


class VadOnly:
    """One VAD-only conversation: the listener and source of a leg in one."""

    def __init__(self, leg: Leg, agent: Conversation, stt: SpeechToText, tts: TextToSpeech) -> None:
        self._leg, self._agent, self._stt, self._tts = leg, agent, stt, tts
        self._vad = EnergyVad(leg.rate_hz)
        self._n = frame_samples(leg.rate_hz)
        self._queue = np.zeros(0, np.int16)
        self._voiced_s = self._silent_s = 0.0
        self._keys = ""
        self._listening: Listening | None = None
        self._reply: asyncio.Task[None] | None = None
        self._wake: Callable[[], None] | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Runs until the leg ends."""
        self._leg.attach(self, self)
        self._start(self._respond(CallOpened()))
        await self._over
        self._leg.attach(None, None)
        await self._stop()

    # The leg ------------------------------------------------------------------------------------------------

    def audio_received(self, frame: Pcm, position: int, now: float, *, concealed: bool) -> None:
        """Takes a frame, ends the turn after `SILENCE_S`, stops the agent after `VOICE_S` of sound."""
        voiced = self._vad.push(frame).voiced
        if self._listening is not None:
            self._listening.push(frame)
        if voiced:
            self._voiced_s += _FRAME_S
            self._silent_s = 0.0
        else:
            self._silent_s += _FRAME_S
        if voiced and self._listening is None:
            self._listening = self._stt.listen(rate_hz=self._leg.rate_hz, language="en", expected=None)
        if self._voiced_s >= VOICE_S and voiced and self._reply is not None:
            self._reply.cancel()
            self._reply = None
            self._queue = self._queue[:0]
        if self._silent_s >= SILENCE_S and self._listening is not None:
            listening, self._listening = self._listening, None
            taken, self._voiced_s = self._voiced_s >= VOICE_S, 0.0
            if taken:
                self._start(self._answer(listening))

    def digit_received(self, digit: str, now: float) -> None:
        """Collects DTMF digits; # ends them."""
        if digit == "#":
            self._start(self._respond(UserKeyed(self._keys)))
        else:
            self._keys += digit

    def leg_ended(self, reason: str, now: float) -> None:
        """Ends the conversation."""
        if not self._over.done():
            self._over.set_result(None)

    def read(self) -> Pcm | None:
        """Returns the next frame of the answer, None without one."""
        if self._queue.size < self._n:
            return None
        frame, self._queue = self._queue[: self._n], self._queue[self._n :]
        return frame

    def sent(self, now: float) -> None:
        """Does nothing; part of `AudioSource`."""

    def on_ready(self, wake: Callable[[], None] | None) -> None:
        """Keeps the callback that wakes the leg."""
        self._wake = wake

    # The answer ---------------------------------------------------------------------------------------------

    def _start(self, answer: object) -> None:
        assert asyncio.iscoroutine(answer)
        if self._reply is not None:
            self._reply.cancel()
        self._reply = asyncio.get_running_loop().create_task(answer)

    async def _stop(self) -> None:
        if self._reply is not None:
            self._reply.cancel()
            await asyncio.gather(self._reply, return_exceptions=True)

    async def _answer(self, listening: Listening) -> None:
        try:
            words = await listening.result()
        except EngineError:
            return
        await self._respond(UserSaid(words.text, words.confidence))

    async def _respond(self, event: AgentEvent) -> None:
        async for act in self._agent.respond(event):
            if isinstance(act, Say):
                async for chunk in self._tts.speak(act.text, language="en"):
                    self._queue = np.concatenate((self._queue, chunk.samples))
                    if self._wake is not None:
                        self._wake()
        await asyncio.sleep(self._queue.size / self._leg.rate_hz)
