"""Engines that fail in the middle of a real call: the caller hears something within 2.5 s all the same."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.support.stub import Stub
from pipeline import registry
from pipeline.agent import AgentAct, AgentContext, AgentEvent, AgentReport, Expect, Say
from pipeline.errors import EngineError
from pipeline.speech import Expected, Hypothesis, SpeechChunk
from tests.support.http.models import Recognizer, Utterance, Voice, fake_models
from tests.support.node.node import ASKING_NUMBER, Site, asking_agent, running, until_final, write_site
from tests.support.sip.raw_call import FRAME, SOUND, RawCall
from tests.support.speech.media import speech_like

DEAD_AIR_S = 2.5


class DeafRecognizer(Recognizer):
    """Ears whose recogniser does what `fault` says when it is asked."""

    fault = ""

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> Utterance:
        if self.fault == "refuse":
            raise EngineError("no recogniser left", retryable=True)
        return DeafUtterance(self.fault)


class DeafUtterance(Utterance):
    async def result(self) -> Hypothesis:
        if self.answer == "hang":
            await asyncio.Event().wait()
        raise EngineError("the recogniser died", retryable=True)


@dataclass
class BrokenVoice(Voice):
    """A voice that stops for ever after `good_ms` of every sentence, once it is `broken`."""

    broken: bool = False
    good_ms: int = 0

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        async for chunk in super().speak(text, language=language):
            if not self.broken:
                yield chunk
                continue
            if self.good_ms:
                yield SpeechChunk(chunk.samples[: self.rate_hz * self.good_ms // 1000])
            await asyncio.Event().wait()


@dataclass
class Mind(Stub):
    """An agent that asks, and then fails."""

    fault: str
    reports: list[str] = field(default_factory=list)

    def join(self, context: AgentContext) -> Mind:
        return self

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        self.reports.append(type(event).__name__)
        if len(self.reports) == 1:
            yield Say("Well?")
            yield Expect(Expected())
            return
        if self.fault == "hang":
            await asyncio.Event().wait()
        raise RuntimeError("a bug in somebody's agent")

    def report(self) -> AgentReport:
        return AgentReport()


@contextmanager
def minds(fault: str) -> Iterator[None]:
    registry.register("agent", "script", lambda options: Mind(fault))
    try:
        yield
    finally:
        registry.unregister("agent", "script")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return write_site(tmp_path, more=asking_agent("Well?"))


async def over(call: RawCall) -> None:
    """Until nothing has been heard for half a second."""
    quiet = 0
    while quiet < 25:
        await call.play(np.zeros(FRAME, np.int16))
        quiet = 0 if any(np.abs(frame).max() > SOUND for _, frame in call.heard()) else quiet + 1


async def answers_in_time(call: RawCall) -> None:
    """The caller hears the question out, says something, and hears something again."""
    await call.answered()
    await call.sound()
    await over(call)
    await call.play(speech_like(8000 * 7 // 10))
    silent = time.monotonic()
    listening = asyncio.create_task(call.sound())
    while not listening.done():
        await call.play(np.zeros(FRAME, np.int16))
    assert await listening - silent < DEAD_AIR_S


async def ended(client: Any) -> dict[str, Any]:
    async with client.get("/api/v1/calls", headers={"Authorization": "Bearer acme-calls-key"}) as answer:
        (call,) = (await answer.json())["calls"]
    return await until_final(client, call["callTaskId"])


@pytest.mark.parametrize("fault", ["hang", "raise", "refuse"])
async def test_ears_that_fail(site: Site, fault: str) -> None:
    recognizer = DeafRecognizer()
    recognizer.fault = fault
    with fake_models(recognizer):
        async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
            await answers_in_time(call)
            await call.hang_up()
            assert (await ended(client))["status"] == "COMPLETED"


@pytest.mark.parametrize("fault", ["hang", "raise"])
async def test_an_agent_that_fails(site: Site, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    with minds(fault):
        async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
            await answers_in_time(call)
            if fault == "raise":  # the third failed turn in a row ends the call with the apology
                for _ in range(2):
                    await over(call)
                    await call.play(speech_like(8000 * 7 // 10))
                    await call.sound()
                call.reply(await call.asked("BYE"))
            else:
                await call.hang_up()
            assert (await ended(client))["status"] == "COMPLETED"
    assert ("a bug in somebody's agent" in caplog.text) is (fault == "raise")


@pytest.mark.parametrize("good_ms", [0, 120])
async def test_a_voice_that_stops_in_the_middle(site: Site, good_ms: int) -> None:
    site.change("[agent.script]\nstart =", "[agent.session]\nmax_failures = 0\n[agent.script]\nstart =")
    voice = BrokenVoice(good_ms=good_ms)
    with fake_models(voice=voice):
        async with running(site) as (_, client), RawCall(site.sip, ASKING_NUMBER) as call:
            voice.broken = True
            await call.answered()
            loud = [time.monotonic()]
            bye = asyncio.create_task(call.asked("BYE", patience_s=9))
            while not bye.done():
                await call.play(np.zeros(FRAME, np.int16))
                loud += [at for at, frame in call.heard() if np.abs(frame).max() > SOUND]
            call.reply(await bye)
            assert len(loud) > 5
            assert np.diff(loud).max() < DEAD_AIR_S
            assert (await ended(client))["status"] == "COMPLETED"
