"""A language model in a whole conversation on a virtual clock: what it is told is what the caller heard."""

from __future__ import annotations

import re

from pipeline.outcome import EndReason
from pipeline.session import Session
from pipeline.transcript import Role
from tests.support.chat import Call, FakeChat, context
from tests.support.conversation import FakeLeg, FakeStt, FakeTts, play, voice
from tests.support.llm import LOOK, FakeWeb, agent

STORY = (
    "This is a long story about a house that stood on a hill and about the people who lived in it for years."
)


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def test_an_interrupted_answer_ends_in_the_history_where_it_ended_for_the_caller() -> None:
    async def scene() -> None:
        chat = FakeChat([STORY], ["Goodbye then.", Call("hang_up", {"disposition": "stopped"})])
        leg = FakeLeg([(3.0, voice(1.6))])
        session = Session(
            leg=leg,
            agent=agent(chat).join(context()),
            stt=FakeStt("please stop the story"),
            tts=FakeTts(),
        )
        result = await session.run()
        assert (result.reason, result.disposition) == (EndReason.AGENT, "stopped")
        first = next(entry for entry in result.transcript if entry.role is Role.AGENT)
        told = [message["content"] for message in chat.last if message["role"] == "assistant"]
        assert first.interrupted
        assert len(told) == 1
        assert plain(told[0]) == plain(first.text)
        assert 3 < len(told[0].split()) < len(STORY.split())

    play(scene)


def test_a_slow_tool_leaves_no_dead_air() -> None:
    async def scene() -> None:
        chat = FakeChat([Call("look")], ["It is on its way.", Call("hang_up")])
        leg = FakeLeg()
        session = Session(
            leg=leg,
            agent=agent(chat, FakeWeb(takes_s=2.4), tool=[LOOK]).join(context()),
            stt=FakeStt(),
            tts=FakeTts(),
        )
        result = await session.run()
        said = [entry.text for entry in result.transcript]
        assert said == ["Let me check.", "It is on its way."]
        assert max(leg.gaps()) < 2.0

    play(scene)
