"""Keys as callers press them: "#" behind a PIN that was whole without it, one digit too many, one key of a
menu, a key that is stuck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.agent import AgentContext, HangUp, Say, UserKeyed
from pipeline.engines.script import Script
from pipeline.masking import MASK
from pipeline.outcome import SessionResult
from pipeline.session import Session
from pipeline.turn_keys import MAX_KEYS
from tests.support.conversation import FakeAgent, FakeLeg, FakeStt, FakeTts, play, voice

ASK_PIN = {
    "id": "pin",
    "say": "enter your pin and press hash",
    "expect": {"kinds": ["digits"], "digits": 4},
    "collect": "pin",
    "next": "more",
}
MORE = {
    "id": "more",
    "say": "thank you do you want to go on",
    "expect": {"kinds": ["yes_no"]},
    "next": "bye",
}
BYE = {"id": "bye", "say": "goodbye", "action": "hang_up"}


def converse(agent: Any, caller: Callable[[FakeLeg], None], *texts: str) -> SessionResult:
    async def scene() -> SessionResult:
        leg = FakeLeg()
        caller(leg)
        return await Session(leg=leg, agent=agent, stt=FakeStt(*texts), tts=FakeTts()).run()

    return play(scene)


def script(*steps: dict[str, Any]) -> Any:
    plan = {"start": steps[0]["id"], "step": list(steps)}
    return Script.from_settings(plan).join(AgentContext("call", "en", "", {}))


def agents_words(result: SessionResult) -> list[str]:
    return [turn.agent_text for turn in result.turns]


def test_a_hash_behind_the_last_of_all_digits_is_no_answer_to_the_next_question() -> None:
    def caller(leg: FakeLeg) -> None:
        leg.keys(3.0, "4711#")
        leg.says(7.0, voice(0.4))

    result = converse(script(ASK_PIN, MORE, BYE), caller, "yes")
    assert agents_words(result) == [ASK_PIN["say"], MORE["say"], "goodbye"]
    assert [turn.keyed for turn in result.turns] == ["", "4711", ""]
    assert result.interruptions == 0


def test_a_hash_that_comes_when_nobody_waits_for_it_any_more_is_none() -> None:
    def caller(leg: FakeLeg) -> None:
        leg.keys(3.0, "4711")
        leg.keys(6.5, "#")  # they had to look for it: the answer was taken a second ago
        leg.says(9.5, voice(0.4))

    long = ASK_PIN | {"expect": {"kinds": ["digits"]}}
    result = converse(script(long, MORE, BYE), caller, "yes")
    assert agents_words(result) == [ASK_PIN["say"], MORE["say"], "goodbye"]
    assert [turn.keyed for turn in result.turns] == ["", "4711", ""]


def test_a_hash_behind_digits_that_were_keyed_ahead_is_none_either() -> None:
    protected = {"id": "hear", "say": "this call may be recorded", "interruptible": False, "next": "pin"}

    def caller(leg: FakeLeg) -> None:
        leg.keys(0.5, "4711#")
        leg.says(7.0, voice(0.4))

    result = converse(script(protected, ASK_PIN, MORE, BYE), caller, "yes")
    assert [turn.keyed for turn in result.turns] == ["", "4711", ""]
    assert agents_words(result)[1:] == [MORE["say"], "goodbye"]


def test_a_digit_too_many_of_a_masked_number_is_shown_to_nobody() -> None:
    def caller(leg: FakeLeg) -> None:
        leg.keys(3.0, "4711982#")
        leg.says(8.0, voice(0.4))

    result = converse(script(ASK_PIN | {"mask": True}, MORE, BYE), caller, "yes")
    assert [turn.keyed for turn in result.turns] == ["", MASK, ""]
    assert agents_words(result) == [ASK_PIN["say"], MORE["say"], "goodbye"]


def test_a_key_of_a_menu_needs_no_pause_behind_it() -> None:
    menu = {
        "id": "menu",
        "say": "for sales press one",
        "expect": {"phrases": ["sales"]},
        "on": {"1": "bye", "20": "bye", "2": "more", "sales": "bye"},
        "next": "bye",
    }

    def chosen_after_s(key: str) -> float:
        result = converse(script(menu, MORE, BYE), lambda leg: leg.keys(3.0, key))
        return result.turns[1].start_ms / 1000 - 3.0

    assert chosen_after_s("1") < 0.1
    assert chosen_after_s("2") > 1.0  # it may become 20
    assert chosen_after_s("20") < 0.5


def test_one_key_is_not_all_of_a_number_that_begins_with_it() -> None:
    account = {
        "id": "account",
        "say": "your account or zero for a person",
        "expect": {"kinds": ["digits"], "digits": 4},
        "collect": "account",
        "on": {"0": "bye"},
        "next": "more",
    }
    result = converse(script(account, MORE, BYE), lambda leg: leg.keys(3.0, "0471"))
    assert [turn.keyed for turn in result.turns[:2]] == ["", "0471"]
    result = converse(script(account, MORE, BYE), lambda leg: leg.keys(3.0, "0"))
    assert agents_words(result)[1] == "goodbye"


def test_a_stuck_key_does_not_keep_the_agent_silent() -> None:
    agent = FakeAgent((Say("hello"),), (Say("goodbye"), HangUp()))
    result = converse(agent, lambda leg: leg.keys(1.0, "5" * 1000))
    keyed = [event.digits for event in agent.events if isinstance(event, UserKeyed)]
    assert keyed[0] == "5" * MAX_KEYS
    assert result.duration_ms < 120_000
