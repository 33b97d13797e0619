"""A language model in a whole conversation on a virtual clock: what it is told is what the caller heard."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from pipeline.engines.aio import closing
from pipeline.result import EndReason, SessionResult
from pipeline.session.session import Session
from pipeline.settings import SessionSettings
from pipeline.speech import SpeechChunk
from pipeline.transcript import Role
from tests.support.http.chat import Call, FakeChat, Part, Thought, context
from tests.support.http.llm import LOOK, SPARE, FakeWeb, agent
from tests.support.speech.conversation import FakeLeg, FakeStt, FakeTts, play, voice

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


THOUGHTS: dict[str, list[Part]] = {
    "apart": [part for _ in range(100) for part in (Thought("They ask for their order. "), 0.25)],
    "marked": ["<think>", *(part for _ in range(100) for part in ("They ask for their order. ", 0.25))],
    "unmarked": [part for _ in range(100) for part in ("\n\n", 0.25)],
    "after words": ["Well. <think>", *(part for _ in range(100) for part in ("So they ask. ", 0.25))],
}


@pytest.mark.parametrize("kind", THOUGHTS)
def test_the_next_model_answers_for_one_that_stays_in_its_thoughts(kind: str) -> None:
    async def scene() -> None:
        chat = FakeChat(["How can I help?"], THOUGHTS[kind])
        spare = FakeChat(["It comes tomorrow.", Call("hang_up")])
        leg = FakeLeg([(3.0, voice(1.0))])
        session = Session(
            leg=leg,
            agent=agent(chat, FakeWeb(), spare, fallback=SPARE).join(context()),
            stt=FakeStt("my order"),
            tts=FakeTts(),
        )
        result = await session.run()
        assert result.reason is EndReason.AGENT
        assert [entry.text for entry in result.transcript][-1] == "It comes tomorrow."
        assert len(spare.requests) == 1
        assert len(result.faults) == 1
        asked = leg.started_at + 4.0
        heard = [asked, *(moment for moment, _ in leg.frames if moment > asked)]
        assert max(after - before for before, after in pairwise(heard)) < 2.2, "a filler, then the answer"
        assert result.transcript[-1].start_ms < 10_000, "within the six seconds that both models have"

    play(scene)


class Silent(FakeTts):
    """Takes very long over some answers: nothing of them is heard in time."""

    def __init__(self, *slow: str) -> None:
        super().__init__()
        self.slow = slow

    async def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        if text in self.slow:
            await asyncio.sleep(3)
        async with closing(super().speak(text, language=language)) as chunks:
            async for chunk in chunks:
                yield chunk


def converse(
    chat: FakeChat,
    prepare: Callable[[FakeLeg], None],
    *texts: str,
    slow: str = "",
    settings: SessionSettings | None = None,
) -> SessionResult:
    async def scene() -> SessionResult:
        leg = FakeLeg()
        prepare(leg)
        session = Session(
            leg=leg,
            agent=agent(chat).join(context(greeting="Hello.")),
            stt=FakeStt(*texts),
            tts=Silent(slow),
            settings=settings,
        )
        return await session.run()

    return play(scene)


def answers_told(chat: FakeChat, request: int) -> list[str]:
    messages = chat.requests[request]["messages"]
    return [message["content"] for message in messages if message["role"] == "assistant"]


BYE: list[Part] = ["Goodbye.", Call("hang_up")]


def test_a_guess_that_a_key_threw_away_was_never_said() -> None:
    chat = FakeChat(["Nobody hears this."], BYE)

    def caller(leg: FakeLeg) -> None:
        leg.says(2.0, voice(1.0))
        leg.keys(3.3, "1#")

    result = converse(chat, caller, "press a key you said")
    assert len(chat.requests) == 2
    assert answers_told(chat, 1) == ["Hello."]
    assert "press a key you said" in [entry.text for entry in result.transcript]


def test_an_answer_to_keys_that_more_keys_threw_away_was_never_said() -> None:
    chat = FakeChat(["Nobody hears this."], BYE)

    def caller(leg: FakeLeg) -> None:
        leg.keys(2.0, "1#2#", gap_s=0.4)

    result = converse(chat, caller, slow="Nobody hears this.")
    assert answers_told(chat, 1) == ["Hello."]
    assert [turn.keyed for turn in result.turns if turn.keyed] == ["1", "2"]


@pytest.mark.parametrize("keys", ["", "4#"])
def test_a_reprompt_that_the_caller_came_before_was_never_said(keys: str) -> None:
    chat = FakeChat(["Nobody hears this."], BYE)

    def caller(leg: FakeLeg) -> None:
        if keys:
            leg.keys(8.8, keys)
        else:
            leg.says(8.8, voice(1.2))

    converse(chat, caller, "i am here now", slow="Nobody hears this.")
    assert answers_told(chat, 1) == ["Hello."]


def test_a_model_is_told_of_a_farewell_that_the_caller_stopped() -> None:
    farewell = "Thank you for calling, have a nice day and goodbye."
    chat = FakeChat([farewell, Call("hang_up")], ["Of course.", Call("hang_up", {"disposition": "helped"})])

    def caller(leg: FakeLeg) -> None:
        leg.says(2.0, voice(0.5))
        leg.says(4.2, voice(1.5))

    result = converse(chat, caller, "that is all", "wait i need a receipt")
    heard = [entry.text for entry in result.transcript if entry.role is Role.AGENT]
    last = chat.requests[1]["messages"]
    said = [message["content"] for message in last if message["role"] == "assistant"]
    assert plain(farewell).startswith(plain(said[-1]))
    assert plain(said[-1]) == plain(" ".join(heard[1:-1])) != plain(farewell)
    assert "went on speaking" in next(message["content"] for message in last if message["role"] == "tool")
    assert last[-1] == {"role": "user", "content": "wait i need a receipt"}
    assert heard[-1] == "Of course."
    assert result.disposition == "helped"
