"""Whole conversations at random: callers, agents, engines and settings that do whatever they may. Each ends
in time, with nothing broken and nothing left running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from random import Random

import numpy as np
import pytest

from pipeline.agent import (
    AgentAct,
    AgentEvent,
    AgentReport,
    DoNotCall,
    Expect,
    HangUp,
    Say,
    SendDigits,
    SwitchLanguage,
    Transfer,
    Trouble,
    Wait,
)
from pipeline.errors import EngineError
from pipeline.session.session import Session
from pipeline.settings import SessionSettings
from pipeline.speech import Expected, Hypothesis
from tests.support.speech.conversation import FakeLeg, FakeListening, FakeStt, FakeTts, play, voice

WORDS = ("yes", "no", "wait", "okay", "mm-hm", "one", "two", "i", "want", "to", "book", "because", "نعم")
CLOSING_S = 45.0  # the last words, and the recogniser's last ones


class Whim:
    """An agent that does anything."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        chance = self._chance
        for _ in range(chance.choice((0, 1, 1, 2, 3))):
            if chance.random() < 0.1:
                await asyncio.sleep(chance.choice((0.2, 1.0, 30.0)))
            if chance.random() < 0.02:
                raise EngineError("away", retryable=True)
            yield self._act()

    def _act(self) -> AgentAct:
        chance = self._chance
        words = " ".join(chance.choices(WORDS, k=chance.choice((1, 3, 8, 30))))
        digits = Expected(kinds=("digits",), digits=chance.choice((0, 4)), choices=("1",))
        rare = (
            Wait(chance.choice((0.0, 10.0, -5.0, 1e9))), SendDigits("12#"), SwitchLanguage("ar"), Say("..."),
            Expect(digits, masked=chance.random() < 0.5), DoNotCall(), Trouble("odd"), HangUp(),
            Transfer("desk"),
        )  # fmt: skip
        said = Say(words, interruptible=chance.random() < 0.8)
        return said if chance.random() < 0.7 else chance.choice(rare)

    def report(self) -> AgentReport:
        return AgentReport()


class Moody(FakeStt):
    """Understands anything, late, or not at all."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.chance = chance

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> FakeListening:
        if self.chance.random() < 0.02:
            raise EngineError("none left", retryable=True)
        return MoodyListening(self, expected)


class MoodyListening(FakeListening):
    def partial(self) -> str:
        return " ".join(WORDS[: self.samples // 4000])

    async def result(self) -> Hypothesis:
        chance = self.stt.chance if isinstance(self.stt, Moody) else Random(0)
        await asyncio.sleep(chance.choice((0.0, 0.05, 0.25, 0.6, 5.0)))
        if chance.random() < 0.05:
            raise EngineError("down", retryable=True)
        words = chance.choices(WORDS, k=chance.choice((0, 1, 3, self.samples // 4000)))
        return Hypothesis(" ".join(words), chance.random())


def settings_of(chance: Random) -> SessionSettings:
    return SessionSettings(
        max_duration_s=chance.choice((5, 60, 100)),
        endpoint_ms=chance.choice((100, 500, 5000)),
        duck_ms=chance.choice((40, 240, 5000)),
        hush_ms=chance.choice((40, 300, 700, 5000)),
        barge_in_ms=chance.choice((40, 700, 5000)),
        reprompt_s=chance.choice((1, 8)),
        max_reprompts=chance.choice((0, 2, 20)),
        max_fillers=chance.choice((0, 2, 10)),
        rescue=chance.choice(("", "desk")),
    )


def caller_of(chance: Random) -> FakeLeg:
    leg, at_s = FakeLeg(), 0.0
    while (at_s := at_s + chance.expovariate(0.4)) < 100:
        said = voice(chance.choice((0.06, 0.2, 0.4, 1.0, 2.0, 6.0))) * chance.choice((1.0, 0.5, 0.05))
        leg.says(at_s, said.astype(np.int16))
    keys = "".join(chance.choices("0123456789*#", k=chance.choice((0, 4, 40))))
    leg.keys(chance.random() * 60, keys, chance.choice((0.05, 0.2, 0.9)))
    leg.suppresses_silence = chance.random() < 0.3
    if chance.random() < 0.5:
        leg.ends(chance.random() * 100)
    return leg


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.nightly("ci")) for seed in range(8, 24))]
)
def test_every_conversation_ends_whole(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = Random(seed)
    settings = settings_of(chance)

    async def scene() -> set[asyncio.Task[None]]:
        loop, leg, tts = asyncio.get_running_loop(), caller_of(chance), FakeTts(delay_s=0.01)
        tts.fail_at, tts.stall_at = {chance.randrange(20): 1}, {chance.randrange(20): 0}
        session = Session(leg=leg, agent=Whim(chance), stt=Moody(chance), tts=tts, settings=settings)
        held_s = chance.random() * 60
        loop.call_later(held_s, setattr, leg, "held", True)
        loop.call_later(held_s + 5, setattr, leg, "held", False)
        loop.call_later(chance.random() * 60, session.write, "hello there")
        async with asyncio.timeout(settings.max_duration_s + CLOSING_S):
            await session.run()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert play(scene) == set()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
