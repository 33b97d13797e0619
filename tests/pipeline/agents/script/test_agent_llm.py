"""A script that hands a step to a language model and takes the call back."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from pipeline.agent import CallOpened, HangUp, Say, Transfer, UserSaid, UserSilent
from pipeline.agents.llm.agent import Llm
from pipeline.agents.llm.settings import read_settings
from pipeline.agents.script.agent import Script, ScriptConversation
from pipeline.agents.script.steps import read_plan
from pipeline.errors import EngineError, SettingsRefused
from tests.support.http.chat import Call, FakeChat, Part, acts_of, context
from tests.support.http.llm import FakeWeb, words

SCRIPT = """
start = "who"
[[step]]
id = "who"
say = "Is this {{name}}?"
expect = { kinds = ["yes_no"] }
on = { yes = "day", no = "wrong" }
[[step]]
id = "day"
say = "Which day suits you?"
llm = { goal = "Agree on a day for {{name}}.", collect = ["day"], max_turns = 3, failed = "person" }
next = "thanks"
[[step]]
id = "thanks"
say = "See you on {{day}}."
action = "hang_up"
goal = true
[[step]]
id = "person"
say = "One moment."
action = "transfer"
target = "desk"
[[step]]
id = "wrong"
say = "Sorry."
action = "hang_up"
"""
MODEL = {"base_url": "http://m.example/v1", "model": "m", "prompt": "You work for a clinic."}
DAY = Call("finish", {"outcome": "done", "day": "monday"})


def script(chat: FakeChat, text: str = SCRIPT) -> ScriptConversation:
    plan = read_plan(tomllib.loads(text))
    return Script(plan, Llm(read_settings(MODEL), [chat], FakeWeb())).join(context())


async def handed_over(*answers: list[Part]) -> tuple[ScriptConversation, FakeChat]:
    """A conversation at the model's step, whose question the script has put."""
    chat = FakeChat(*answers)
    conversation = script(chat)
    await acts_of(conversation, CallOpened())
    assert words(await acts_of(conversation, UserSaid("yes", 0.9))) == "Which day suits you?"
    assert chat.requests == []
    return conversation, chat


async def test_the_model_leads_its_step_and_the_script_goes_on_with_what_it_found() -> None:
    conversation, chat = await handed_over(["In the morning?"], ["Good.", DAY])
    assert words(await acts_of(conversation, UserSaid("monday", 0.9))) == "In the morning?"
    acts = await acts_of(conversation, UserSaid("yes", 0.9))
    assert acts == [Say("Good."), Say("See you on monday."), HangUp("completed")]
    report = conversation.report()
    assert (report.answers, report.reached_goal) == ({"day": "monday"}, True)
    system = chat.last[0]["content"]
    assert "Agree on a day for [name]." in system
    assert {"role": "assistant", "content": "Which day suits you?"} in chat.last
    offered = {tool["function"]["name"] for tool in chat.requests[0]["tools"]}
    assert offered == {"wait", "remember", "finish"}


async def test_a_step_without_words_begins_with_the_models() -> None:
    chat = FakeChat(["Which day?"], [DAY])
    conversation = script(chat, SCRIPT.replace('say = "Which day suits you?"\n', ""))
    await acts_of(conversation, CallOpened())
    assert words(await acts_of(conversation, UserSaid("yes", 0.9))) == "Which day?"
    assert words(await acts_of(conversation, UserSaid("monday", 0.9))) == "See you on monday."


@pytest.mark.parametrize(
    "answers",
    [
        [["A?"], ["B?"], ["C?"]],
        [["A?"], [Call("finish", {"outcome": "not_possible"})]],
        [["A?"], [EngineError("gone", retryable=False)]],
    ],
)
async def test_a_model_that_gets_nowhere_hands_back(answers: list[list[Part]]) -> None:
    conversation, _ = await handed_over(*answers)
    acts: list[Any] = []
    for _ in range(4):
        acts += await acts_of(conversation, UserSaid("hm", 0.9))
        if Transfer("desk") in acts:
            break
    assert acts[-2:] == [Say("One moment."), Transfer("desk")]


async def test_it_cannot_hand_back_less_than_it_was_asked_for() -> None:
    conversation, chat = await handed_over([Call("finish", {"outcome": "done"})], ["Which one?"])
    assert words(await acts_of(conversation, UserSaid("a day", 0.9))) == "Which one?"
    assert "still missing: day" in chat.last[-1]["content"]


@pytest.mark.parametrize("call", [Call("hang_up"), Call("transfer", {"target": "desk"})])
async def test_it_does_not_end_the_call(call: Call) -> None:
    conversation, _ = await handed_over([call], ["Which day?"])
    assert words(await acts_of(conversation, UserSaid("bye", 0.9))) == "Which day?"


async def test_half_an_answer_that_ended_the_step_did_not_happen() -> None:
    tuesday = Call("finish", {"outcome": "done", "day": "tuesday"})
    conversation, _ = await handed_over([DAY], [tuesday])
    assert words(await acts_of(conversation, UserSaid("monday", 0.9), most=1)) == "See you on monday."
    acts = await acts_of(conversation, UserSaid("monday no tuesday", 0.9, continues=True))
    assert words(acts) == "See you on tuesday."
    assert conversation.report().answers == {"day": "tuesday"}


async def test_half_an_answer_that_began_the_step_did_not_happen() -> None:
    conversation, chat = await handed_over(["never"])
    acts = await acts_of(conversation, UserSaid("yes no", 0.9, continues=True))
    assert chat.requests == []
    assert words(acts) == "Which day suits you?"
    assert words(await acts_of(conversation, UserSaid("no that is wrong", 0.9, continues=True))) == "Sorry."


async def test_silence_is_the_models_business() -> None:
    conversation, chat = await handed_over(["Are you there?"])
    assert words(await acts_of(conversation, UserSilent(1))) == "Are you there?"
    assert chat.last[-1]["content"] == "[The caller says nothing.]"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("collect = [", "colect = ["), "step[1].llm.colect"),
        (('goal = "Agree on a day for {{name}}."', 'goal = ""'), "step[1].llm.goal"),
        (('failed = "person"', 'failed = "nobody"'), "step[1].llm.failed"),
        (('collect = ["day"]', 'collect = ["a day"]'), "step[1].llm.collect"),
        (('id = "day"\n', 'id = "day"\nexpect = { kinds = ["free"] }\n'), "step[1].expect"),
    ],
)
def test_mistakes_are_named(change: tuple[str, str], key: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        Script.from_settings({**tomllib.loads(SCRIPT.replace(*change)), "llm": MODEL})
    assert key in [name for name, _ in caught.value.problems]


def test_a_script_that_asks_a_model_needs_one() -> None:
    with pytest.raises(SettingsRefused, match="asks a model"):
        Script.from_settings(tomllib.loads(SCRIPT))
