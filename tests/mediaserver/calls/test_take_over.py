"""A supervisor in the agent's place: whose words and whose voice are whose, and which are waited for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mediaserver.calls.live_conversation import NOT_BEGUN
from mediaserver.calls.take_over import TakeOver, TakeOverEnd
from pipeline.audio import Pcm, wav
from pipeline.leg import Leg
from pipeline.media.bridge import Bridge
from pipeline.media.pacer import Pacer
from pipeline.media.who_hears import Role as Hearer
from pipeline.result import SessionObserver
from pipeline.transcript import Role, TranscriptEntry
from tests.support.speech.bridged import RATE_HZ, FakeLeg
from tests.support.speech.conversation import FakeStt, play, recording_to, voice
from tests.support.speech.tones import share_at, tone

FRAME = RATE_HZ // 50


class Telling(SessionObserver):
    """Keeps who said what."""

    def __init__(self) -> None:
        self.said: list[tuple[Leg, Role, str]] = []

    def person_said(self, leg: Leg, entry: TranscriptEntry) -> None:
        self.said.append((leg, entry.role, entry.text))


class Desk:
    """A caller, the supervisor who takes the call over, and a second one who speaks to all."""

    def __init__(self, stt: FakeStt) -> None:
        loop = asyncio.get_running_loop()
        self.bridge = Bridge(Pacer(loop), rate_hz=RATE_HZ)
        self.caller, self.boss, self.second = FakeLeg(), FakeLeg(), FakeLeg()
        self.bridge.add(self.caller)
        self.bridge.add(self.boss, role=Hearer.MONITOR)
        self.bridge.add(self.second, role=Hearer.BARGE)
        profile = cast(Any, SimpleNamespace(engines=SimpleNamespace(stt=stt), language="en"))
        self.seen = Telling()
        self.taken = TakeOver(
            self.bridge, self.boss, who="boss", profile=profile, call_id="call-1", began=loop.time()
        )
        self.taken.begin()

    async def speaks(self, leg: FakeLeg, samples: Pcm) -> None:
        """Says it, then nothing for a second."""
        for frame in np.concatenate([samples, np.zeros(RATE_HZ, np.int16)]).reshape(-1, FRAME):
            leg.say(frame)
            await asyncio.sleep(0.02)


def speech() -> Pcm:
    return voice(0.6, rate_hz=RATE_HZ)


def test_a_second_supervisor_is_no_caller() -> None:
    async def scene() -> None:
        desk = Desk(FakeStt("hello", "good morning", "I help"))
        running = asyncio.create_task(desk.taken.run(NOT_BEGUN, None, desk.seen))
        for leg in (desk.caller, desk.boss, desk.second):
            await desk.speaks(leg, speech())
        desk.taken.end(TakeOverEnd.HANDED_BACK)
        _, told = await running
        assert desk.seen.said == [
            (desk.caller, Role.CALLER, "hello"),
            (desk.boss, Role.COLLEAGUE, "good morning"),
            (desk.second, Role.COLLEAGUE, "I help"),
        ]
        assert told is not None
        assert [entry.role for entry in told.said] == [Role.CALLER, Role.COLLEAGUE, Role.COLLEAGUE]

    play(scene)


def test_supervisors_are_recorded_on_the_agents_channel(tmp_path: Path) -> None:
    async def scene() -> None:
        desk = Desk(FakeStt())
        async with recording_to(tmp_path / "call.wav", RATE_HZ) as recording:
            running = asyncio.create_task(desk.taken.run(NOT_BEGUN, recording, desk.seen))
            await asyncio.sleep(0)
            for leg, hz in ((desk.caller, 500), (desk.boss, 900), (desk.second, 1700)):
                await desk.speaks(leg, tone(hz, 0.6, RATE_HZ))
            desk.taken.end(TakeOverEnd.HANDED_BACK)
            await running

    play(scene)
    samples, _ = wav.read_channels(tmp_path / "call.wav")
    shares = {hz: [_loudest(side, hz) for side in samples] for hz in (500, 900, 1700)}
    assert shares == {500: [True, False], 900: [False, True], 1700: [False, True]}


def _loudest(side: Pcm, hz: float) -> bool:
    """Whether there is a tenth of a second of that tone."""
    frames = side[: side.size // FRAME * FRAME].reshape(-1, FRAME)
    return sum(share_at(each, RATE_HZ, hz) > 0.5 for each in frames if np.abs(each).max() > 500) >= 5


@pytest.mark.parametrize("how", [TakeOverEnd.FAR_END, TakeOverEnd.STOPPED])
def test_at_the_end_of_the_call_the_last_words_are_waited_for(how: TakeOverEnd) -> None:
    async def scene() -> None:
        desk = Desk(FakeStt("goodbye then", delay_s=3.5))
        running = asyncio.create_task(desk.taken.run(NOT_BEGUN, None, desk.seen))
        await desk.speaks(desk.caller, speech())
        desk.taken.end(how)
        result, told = await running
        assert told is None
        assert [entry.text for entry in result.transcript] == ["goodbye then"]
        assert result.duration_ms == desk.taken.data()["endMs"] == 1600  # not the waiting
        assert desk.caller.hung_up == (how is TakeOverEnd.STOPPED)

    play(scene)


def test_words_that_come_after_the_hand_back_are_kept() -> None:
    async def scene() -> None:
        desk = Desk(FakeStt("until tomorrow", delay_s=4.0))
        running = asyncio.create_task(desk.taken.run(NOT_BEGUN, None, desk.seen))
        await desk.speaks(desk.boss, speech())
        desk.taken.end(TakeOverEnd.HANDED_BACK)
        ended = asyncio.get_running_loop().time()
        _, told = await running
        assert told is not None
        assert told.said == ()
        assert asyncio.get_running_loop().time() - ended < 2  # the caller does not wait for it
        [late] = await desk.taken.last_words()
        assert (late.role, late.text) == (Role.COLLEAGUE, "until tomorrow")
        assert desk.seen.said == [(desk.boss, Role.COLLEAGUE, "until tomorrow")]

    play(scene)
