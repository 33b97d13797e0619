"""Streaming voices that fail at a bad moment: in a long text, after quick interruptions, in a call that
breaks off."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import numpy as np
import pytest

from pipeline.agent import Say
from pipeline.errors import EngineError
from pipeline.media.playout import Playout
from pipeline.net.web_socket import SocketEndpoint
from pipeline.session.session import Session
from pipeline.session.synthesis import Synthesis
from pipeline.settings import SessionSettings
from pipeline.tts.streaming.line import VoiceLine
from tests.pipeline.tts.streaming.test_streaming_voices import engine_of, in_a_call
from tests.support.speech.conversation import FakeAgent, FakeLeg, FakeStt
from tests.support.speech.voice_server import RATE_HZ
from tests.support.waiting import until

pytestmark = pytest.mark.virtual_clock

LONG = "The first of the offices is in the old town and is open every day of the week from eight."


pytestmark = pytest.mark.usefixtures("at_home")


async def test_a_mute_service_does_not_hold_up_an_agent_with_much_text() -> None:
    async with in_a_call(timeout_s=0.3) as (server, speaks):
        server.mute = True
        synthesis = Synthesis(Playout(RATE_HZ), [speaks], SessionSettings(), lambda role, reason: None)

        async def answer() -> None:
            for _ in range(6):
                await synthesis.say(LONG, interruptible=True)
                await asyncio.sleep(0.05)  # a model writes
            await synthesis.finish()

        async with asyncio.timeout(10):
            with pytest.raises(EngineError):
                await answer()


async def test_a_call_that_is_cancelled_leaves_no_socket() -> None:
    async with engine_of() as (server, engine):
        agent = FakeAgent((Say(LONG),))
        session = Session(leg=FakeLeg(), agent=agent, stt=FakeStt("x"), tts=engine, call_id="c")
        running = asyncio.create_task(session.run())
        await until(lambda: len(server.said) > 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until(lambda: server.open == 0)


async def test_two_interruptions_at_once_leave_nothing_of_either_answer_in_the_next() -> None:
    """The service confirms the first while sound of the second is under way."""
    async with engine_of("deepgram") as (_, engine):
        sent: list[Any] = []

        class Sent:
            """A socket that notes what is sent."""

            async def send(self, message: Any) -> None:
                sent.append(message)

        socket: Any = Sent()
        line = VoiceLine(engine.service, cast(SocketEndpoint, engine._endpoint), call_id="c")
        line.open("en")
        answers = []
        for text in ("one", "two", "three"):
            answers.append(line.begin("en"))
            answers[-1].add(text)
            answers[-1].finish()
            while await line.send_due(socket):
                pass
            if text != "three":
                line.leave(answers[-1])
        old, new = (np.full(2400, level, "<i2").tobytes() for level in (1, 2))
        for message in (
            {"type": "Cleared"}, {"sound": old}, {"type": "Flushed"}, {"type": "Cleared"},
            {"sound": new}, {"type": "Flushed"},
        ):  # fmt: skip
            await line.take(message)
        heard = np.concatenate([chunk.samples async for chunk in answers[-1].chunks()])
        assert set(heard.tolist()) == {2}
        assert sent.count({"type": "Clear"}) == 2
        await line.close()
