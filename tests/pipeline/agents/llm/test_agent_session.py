"""A language model in a whole conversation on a virtual clock: what it is told is what the caller heard."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from pipeline.engines.aio import closing
from pipeline.result import EndReason, SessionResult
from pipeline.speech import SpeechChunk
from pipeline.transcript import Role
from tests.support.http.chat import Call, FakeChat, Part, Thought, context
from tests.support.http.llm import LOOK, SPARE, FakeWeb, agent
from tests.support.speech.conversation import FakeStt, FakeTts, converse, voice

STORY = (
    "This is a long story about a house that stood on a hill and about the people who lived in it for years."
)


def plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def test_an_interrupted_answer_ends_in_the_history_where_it_ended_for_the_caller() -> None:
    chat = FakeChat([STORY], ["Goodbye then.", Call("hang_up", {"disposition": "stopped"})])
    stt = FakeStt("please stop the story")
    result, _ = converse(agent(chat).join(context()), says=[(3.0, voice(1.6))], stt=stt)
    assert (result.reason, result.disposition) == (EndReason.AGENT, "stopped")
    first = next(entry for entry in result.transcript if entry.role is Role.AGENT)
    told = [message["content"] for message in chat.last if message["role"] == "assistant"]
    assert first.interrupted
    assert len(told) == 1
    assert plain(told[0]) == plain(first.text)
    assert 3 < len(told[0].split()) < len(STORY.split())


def test_a_slow_tool_leaves_no_dead_air() -> None:
    chat = FakeChat([Call("look")], ["It is on its way.", Call("hang_up")])
    result, leg = converse(agent(chat, FakeWeb(takes_s=2.4), tool=[LOOK]).join(context()))
    said = [entry.text for entry in result.transcript]
    assert said == ["Let me check.", "It is on its way."]
    assert max(leg.gaps()) < 2.0


THOUGHTS: dict[str, list[Part]] = {
    "apart": [part for _ in range(100) for part in (Thought("They ask for their order. "), 0.25)],
    "marked": ["<think>", *(part for _ in range(100) for part in ("They ask for their order. ", 0.25))],
    "unmarked": [part for _ in range(100) for part in ("\n\n", 0.25)],
    "after words": ["Well. <think>", *(part for _ in range(100) for part in ("So they ask. ", 0.25))],
}


@pytest.mark.parametrize("kind", THOUGHTS)
def test_the_next_model_answers_for_one_that_stays_in_its_thoughts(kind: str) -> None:
    chat = FakeChat(["How can I help?"], THOUGHTS[kind])
    spare = FakeChat(["It comes tomorrow.", Call("hang_up")])
    conversation = agent(chat, FakeWeb(), spare, fallback=SPARE).join(context())
    result, leg = converse(conversation, says=[(3.0, voice(1.0))], stt=FakeStt("my order"))
    assert result.reason is EndReason.AGENT
    assert [entry.text for entry in result.transcript][-1] == "It comes tomorrow."
    assert len(spare.requests) == 1
    assert len(result.faults) == 1
    asked = leg.started_at + 4.0
    heard = [asked, *(moment for moment, _ in leg.frames if moment > asked)]
    assert max(after - before for before, after in pairwise(heard)) < 2.2, "a filler, then the answer"
    assert result.transcript[-1].start_ms < 10_000, "within the six seconds that both models have"


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


def answered(chat: FakeChat, *texts: str, slow: str = "", **caller: Any) -> SessionResult:
    """A call to the agent that `chat` leads, whose voice takes very long over `slow`."""
    conversation = agent(chat).join(context(greeting="Hello."))
    return converse(conversation, stt=FakeStt(*texts), tts=Silent(slow), **caller)[0]


def answers_told(chat: FakeChat, request: int) -> list[str]:
    messages = chat.requests[request]["messages"]
    return [message["content"] for message in messages if message["role"] == "assistant"]


BYE: list[Part] = ["Goodbye.", Call("hang_up")]


def test_a_guess_that_a_key_threw_away_was_never_said() -> None:
    chat = FakeChat(["Nobody hears this."], BYE)
    result = answered(chat, "press a key you said", says=[(2.0, voice(1.0))], keys=[(3.3, "1#")])
    assert len(chat.requests) == 2
    assert answers_told(chat, 1) == ["Hello."]
    assert "press a key you said" in [entry.text for entry in result.transcript]


def test_an_answer_to_keys_that_more_keys_threw_away_was_never_said() -> None:
    chat = FakeChat(["Nobody hears this."], BYE)

    keys = [(2.0, "1#"), (2.8, "2#")]
    result = answered(chat, slow="Nobody hears this.", keys=keys)
    assert answers_told(chat, 1) == ["Hello."]
    assert [turn.keyed for turn in result.turns if turn.keyed] == ["1", "2"]


@pytest.mark.parametrize(
    "caller", [{"says": [(8.8, voice(1.2))]}, {"keys": [(8.8, "4#")]}], ids=["words", "keys"]
)
def test_a_reprompt_that_the_caller_came_before_was_never_said(caller: dict[str, Any]) -> None:
    chat = FakeChat(["Nobody hears this."], BYE)
    answered(chat, "i am here now", slow="Nobody hears this.", **caller)
    assert answers_told(chat, 1) == ["Hello."]


def test_a_model_is_told_of_a_farewell_that_the_caller_stopped() -> None:
    farewell = "Thank you for calling, have a nice day and goodbye."
    chat = FakeChat([farewell, Call("hang_up")], ["Of course.", Call("hang_up", {"disposition": "helped"})])
    result = answered(
        chat, "that is all", "wait i need a receipt", says=[(2.0, voice(0.5)), (4.2, voice(1.5))]
    )
    heard = [entry.text for entry in result.transcript if entry.role is Role.AGENT]
    last = chat.requests[1]["messages"]
    said = [message["content"] for message in last if message["role"] == "assistant"]
    assert plain(farewell).startswith(plain(said[-1]))
    assert plain(said[-1]) == plain(" ".join(heard[1:-1])) != plain(farewell)
    assert "went on speaking" in next(message["content"] for message in last if message["role"] == "tool")
    assert last[-1] == {"role": "user", "content": "wait i need a receipt"}
    assert heard[-1] == "Of course."
    assert result.disposition == "helped"
