"""A model that hears and speaks by itself, over a socket on this machine, without a telephone."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pipeline.agents.llm.agent import Llm
from pipeline.agents.llm.history import History, Round, ToolCall
from pipeline.agents.llm.realtime.line import RealtimeLine
from pipeline.agents.llm.realtime.spoken import SpokenItem
from pipeline.agents.llm.realtime.table import RealtimeSettings
from pipeline.agents.llm.realtime.talk import RealtimeTalk, check_session
from pipeline.session.session import Session
from pipeline.transcript import Role
from tests.support.hostile.garbage import uncollected
from tests.support.http.chat import FakeChat, context
from tests.support.http.llm import BOOK, FakeWeb, agent
from tests.support.http.realtime_server import Call, Part, RealtimeServer, Talk, realtime_server
from tests.support.speech.conversation import FakeLeg, FakeStt, FakeTts, voice

pytestmark = pytest.mark.usefixtures("at_home")


def spoken(talk: Talk) -> Sequence[Part]:
    return ["good day"] if talk.last.startswith("[") else ["very well"]


async def held(service: RealtimeServer, leg: FakeLeg, stt: FakeStt, *, for_s: float, **realtime: Any) -> Any:
    """A conversation of so many seconds."""
    llm = agent(FakeChat(), realtime={"url": service.url, **realtime})
    conversation = llm.join(context())
    leg.ends(for_s)
    session = Session(leg=leg, agent=conversation, stt=stt, tts=FakeTts(), hearing=conversation)
    result = await session.run()
    await llm.close()
    return result


async def test_a_wideband_line_is_heard_and_spoken_to_at_24_khz() -> None:
    async with realtime_server(spoken) as service:
        leg = FakeLeg(rate_hz=16000)
        leg.says(1.5, voice(1.0, rate_hz=16000))
        result = await held(service, leg, FakeStt("where is my order"), for_s=5.0)
    (talk,) = service.talks
    assert talk.session.audio.input.format.type == "audio/pcm"
    assert talk.session.audio.input.format.rate == 24000
    assert 24000 < talk.audio[0].size < 24000 * 1.7
    assert np.abs(talk.audio[0].astype(int)).max() > 3000
    said = [entry.text for entry in result.transcript if entry.role is Role.AGENT]
    assert said == ["good day", "very well"]
    sound = leg.heard[np.abs(leg.heard.astype(int)) > 300].size / 16000
    assert 1.4 < sound < 1.7, "four words of 400 ms"
    assert (service.errors, result.faults) == ([], ())


async def test_a_sound_without_words_is_not_taken_as_something_said() -> None:
    async with realtime_server(spoken) as service:
        leg = FakeLeg([(1.5, voice(0.16))])
        await held(service, leg, FakeStt(""), for_s=4.0)
    (talk,) = service.talks
    assert talk.audio == []
    assert len(talk.of("response.create")) == 1


@pytest.mark.parametrize(
    ("statuses", "refuses", "reason"),
    [([], "", ""), ([401], "", "401"), ([], "invalid_voice", "refused (invalid_voice)")],
)
async def test_a_session_is_asked_for(statuses: list[int], refuses: str, reason: str) -> None:
    async with realtime_server(spoken) as service:
        service.statuses, service.refuses = statuses, refuses
        told = await check_session(RealtimeSettings(url=service.url))
    assert (reason in told) if reason else (told == "")


async def test_a_service_that_failed_three_times_is_left_alone_for_a_while() -> None:
    async with realtime_server(spoken) as service:
        service.statuses = [500] * 9
        llm = agent(FakeChat(), realtime={"url": service.url})
        for _ in range(4):
            conversation = llm.join(context())
            ears = conversation.ears(FakeStt(), rate_hz=8000)
            await asyncio.sleep(0.1)
            await ears.close()
        await llm.close()
    assert len(service.requests) == 3


async def test_after_a_transfer_that_failed_the_service_gets_the_history_as_text() -> None:
    async with realtime_server(spoken) as service:
        llm = agent(FakeChat(), realtime={"url": service.url})
        conversation = llm.join(context())
        for _ in range(2):
            leg = FakeLeg()
            leg.ends(2.5)
            session = Session(leg=leg, agent=conversation, stt=FakeStt(), tts=FakeTts(), hearing=conversation)
            await session.run()
        await llm.close()
    first, second = service.talks
    assert first.told()[-1] == "assistant: good day"
    assert second.told()[: len(first.told())] == first.told()


async def test_a_call_is_freed_without_a_collector() -> None:
    async with realtime_server(spoken) as service:
        llm = agent(FakeChat(), realtime={"url": service.url})
        with uncollected():
            await one_call(llm)
            await asyncio.sleep(0.1)
            left = [each for each in gc.get_objects() if isinstance(each, RealtimeLine | SpokenItem)]
        await llm.close()
    assert left == []


async def one_call(llm: Llm) -> None:
    leg = FakeLeg([(1.5, voice(1.0))])
    leg.ends(6.0)
    conversation = llm.join(context())
    stt = FakeStt("where is my order")
    result = await Session(leg=leg, agent=conversation, stt=stt, tts=FakeTts(), hearing=conversation).run()
    assert "very well" in [entry.text for entry in result.transcript]


def shopping(*answers: Part) -> Callable[[Talk], Sequence[Part]]:
    """The model books a day when the caller has spoken first, and says "go on" later."""

    def script(talk: Talk) -> Sequence[Part]:
        if talk.last == "book":
            return ["it is booked"]
        spoke = sum(each.text.startswith("<audio") for each in talk.items.values())
        if spoke == 0:
            return ["good day"]
        return answers if spoke == 1 else ["go on"]

    return script


async def interrupted(script: Any, web: FakeWeb, *, at_s: float) -> Any:
    """A call in which the caller speaks again at `at_s`: service and result."""
    async with realtime_server(script) as service:
        llm = agent(FakeChat(), web, realtime={"url": service.url}, tool=[BOOK])
        conversation = llm.join(context())
        leg = FakeLeg([(1.5, voice(1.0)), (at_s, voice(1.0))])
        leg.ends(at_s + 5.0)
        stt = FakeStt("book a day please now")
        session = Session(leg=leg, agent=conversation, stt=stt, tts=FakeTts(), hearing=conversation)
        result = await session.run()
        await llm.close()
    return service, result


async def test_what_follows_a_tool_and_was_not_heard_is_taken_back_at_the_service() -> None:
    long = "alpha bravo charlie delta echo foxtrot golf hotel india juliet"
    script = shopping(long, Call("book", {"day": "monday"}))
    service, _ = await interrupted(script, FakeWeb(), at_s=4.2)
    (talk,) = service.talks
    assert talk.of("conversation.item.delete")
    assert "assistant: it is booked" not in talk.told()
    assert service.errors == []


def test_the_service_is_told_what_a_tool_did_after_the_caller_spoke_over_it() -> None:
    told: list[Any] = []
    line: Any = SimpleNamespace(tell=told.append)
    history = History(max_turns=9, max_tokens=999)
    each = Round(calls=[ToolCall("call_1", "book", "{}")])
    history.begin("book a day").rounds.append(each)
    talk = RealtimeTalk(cast(Any, None), ())
    talk._tell(line, history)
    assert "not finished" in str(told[-1])
    each.results["call_1"] = "ok"
    for _ in range(2):
        talk._tell(line, history)
    assert sum("[The tool book has answered since then: ok]" in str(each) for each in told) == 1


async def test_a_service_whose_session_takes_long_to_open_is_waited_for() -> None:
    async with realtime_server(spoken) as service:
        service.opening_s = service.thinking_s = 0.7
        leg = FakeLeg()
        result = await held(service, leg, FakeStt(), for_s=4.0)
    assert result.faults == ()
    assert [entry.text for entry in result.transcript] == ["good day"]
