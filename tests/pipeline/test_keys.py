"""Keys as callers press them: "#" behind a PIN that was whole without it, one digit too many, one key of a
menu, a key that is stuck; and words between the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipeline.agent import AgentContext, HangUp, Say, UserKeyed, UserSaid
from pipeline.agents.script.agent import Script
from pipeline.result import SessionResult
from pipeline.text.redaction import MASK
from pipeline.transcript import Role
from pipeline.turns.gather import MAX_KEYS
from tests.support.speech.conversation import (
    FakeAgent,
    FakeStt,
    Spelling,
    Streaming,
    converse,
    latency_of,
    spoken,
    texts,
    voice,
)

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


def script(*steps: dict[str, Any]) -> Any:
    plan = {"start": steps[0]["id"], "step": list(steps)}
    return Script.from_settings(plan).join(AgentContext("call", "en", "", {}))


def heard_of(agent: Any, *texts: str, **caller: Any) -> SessionResult:
    return converse(agent, stt=FakeStt(*texts), **caller)[0]


def agents_words(result: SessionResult) -> list[str]:
    return [turn.agent_text for turn in result.turns]


def test_a_hash_behind_the_last_of_all_digits_is_no_answer_to_the_next_question() -> None:
    result = heard_of(script(ASK_PIN, MORE, BYE), "yes", says=[(7.0, voice(0.4))], keys=[(3.0, "4711#")])
    assert agents_words(result) == [ASK_PIN["say"], MORE["say"], "goodbye"]
    assert [turn.keyed for turn in result.turns] == ["", "4711", ""]
    assert result.interruptions == 0


def test_a_hash_that_comes_when_nobody_waits_for_it_any_more_is_none() -> None:
    # They had to look for it: the answer was taken a second ago.
    keys = [(3.0, "4711"), (6.5, "#")]
    long = ASK_PIN | {"expect": {"kinds": ["digits"]}}
    result = heard_of(script(long, MORE, BYE), "yes", says=[(9.5, voice(0.4))], keys=keys)
    assert agents_words(result) == [ASK_PIN["say"], MORE["say"], "goodbye"]
    assert [turn.keyed for turn in result.turns] == ["", "4711", ""]


def test_a_hash_behind_digits_that_were_keyed_ahead_is_none_either() -> None:
    protected = {"id": "hear", "say": "this call may be recorded", "interruptible": False, "next": "pin"}
    result = heard_of(
        script(protected, ASK_PIN, MORE, BYE), "yes", says=[(7.0, voice(0.4))], keys=[(0.5, "4711#")]
    )
    assert [turn.keyed for turn in result.turns] == ["", "4711", ""]
    assert agents_words(result)[1:] == [MORE["say"], "goodbye"]


def test_a_digit_too_many_of_a_masked_number_is_shown_to_nobody() -> None:
    result = heard_of(
        script(ASK_PIN | {"mask": True}, MORE, BYE), "yes", says=[(8.0, voice(0.4))], keys=[(3.0, "4711982#")]
    )
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
        result = heard_of(script(menu, MORE, BYE), keys=[(3.0, key)])
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
    result = heard_of(script(account, MORE, BYE), keys=[(3.0, "0471")])
    assert [turn.keyed for turn in result.turns[:2]] == ["", "0471"]
    result = heard_of(script(account, MORE, BYE), keys=[(3.0, "0")])
    assert agents_words(result)[1] == "goodbye"


def test_a_stuck_key_does_not_keep_the_agent_silent() -> None:
    agent = FakeAgent((Say("hello"),), (Say("goodbye"), HangUp()))
    result = heard_of(agent, keys=[(1.0, "5" * 1000)])
    keyed = [event.digits for event in agent.events if isinstance(event, UserKeyed)]
    assert keyed[0] == "5" * MAX_KEYS
    assert result.duration_ms < 120_000


# Words and keys ---------------------------------------------------------------------------------------------

CODE = ASK_PIN | {"say": "key or say your pin"}  # it is heard after 1.5 s
UNKNOWN = CODE | {"expect": {"kinds": ["digits"]}}


def says_and_keys(agent: Any, *said: tuple[float, str], keys: Sequence[tuple[float, str]]) -> SessionResult:
    """A call in which each text is said, and keys are pressed, at their second."""
    stt = Streaming(*(text for _, text in said), "")
    says = [(at, spoken(text)) for at, text in said]
    return converse(agent, says=says, keys=keys, ends_s=20.0, stt=stt)[0]


def test_who_speaks_instead_of_pressing_is_heard() -> None:
    result = says_and_keys(script(CODE, MORE, BYE), (2.5, "four seven one one"), keys=[])
    assert result.report.answers == {"pin": "4711"}


@pytest.mark.parametrize("pause_s", [0.1, 1.0, 2.2])
def test_who_begins_with_keys_may_say_the_rest(pause_s: float) -> None:
    result = says_and_keys(script(CODE, MORE, BYE), (2.7 + pause_s, "one one"), keys=[(2.5, "47")])
    assert result.report.answers == {"pin": "4711"}
    assert texts(result, Role.CALLER) == ["one one"]
    assert [turn.keyed for turn in result.turns[:2]] == ["", "47"]
    assert agents_words(result)[:2] == [CODE["say"], MORE["say"]]
    assert latency_of(result.turns[1]).endpoint_ms < 600  # two digits were all that was missing


def test_all_of_it_said_after_some_keys_is_the_answer() -> None:
    result = says_and_keys(
        script(CODE, MORE, BYE), (3.0, "sorry it is four seven one one"), keys=[(2.5, "42")]
    )
    assert result.report.answers == {"pin": "4711"}


def test_who_asks_something_over_the_keys_is_answered_at_once_and_may_go_on() -> None:
    said = (3.2, "can i say it instead")
    result = says_and_keys(script(CODE, MORE, BYE), said, keys=[(2.5, "47"), (8.0, "11")])
    assert texts(result, Role.CALLER) == [said[1]]
    assert result.turns[1].start_ms < 6000
    assert agents_words(result)[1] == "Go on, please."
    assert result.report.answers == {"pin": "4711"}


def test_some_keys_of_a_number_of_any_length_are_not_all_of_it_for_who_speaks_on() -> None:
    said = (3.2, "can i say it instead")
    result = says_and_keys(script(UNKNOWN, MORE, BYE), said, keys=[(2.5, "47"), (9.0, "4711#")])
    assert agents_words(result)[:3] == [CODE["say"], CODE["say"], MORE["say"]]
    assert result.report.answers == {"pin": "4711"}


@pytest.mark.parametrize("step", [CODE, UNKNOWN])
def test_who_reads_aloud_what_they_key_has_keyed_it(step: dict[str, Any]) -> None:
    said = [(2.45 + 0.9 * index, word) for index, word in enumerate(("four", "seven", "one", "one"))]
    keys = [(2.6 + 0.9 * index, key) for index, key in enumerate("4711")]
    result = says_and_keys(script(step, MORE, BYE), *said, keys=keys)
    assert result.report.answers == {"pin": "4711"}
    assert [turn.keyed for turn in result.turns[:2]] == ["", "4711"]
    assert agents_words(result)[:2] == [CODE["say"], MORE["say"]]


@pytest.mark.parametrize("text", ["", "um", "okay", "mm-hm"])
def test_a_noise_between_keys_is_none_of_the_answer(text: str) -> None:
    keys = [(2.5, "4"), (4.6, "711")]
    says = [(3.0, spoken(text) if text else voice(0.6))]
    result, _ = converse(script(CODE, MORE, BYE), says=says, keys=keys, ends_s=20.0, stt=Streaming(text, ""))
    assert result.report.answers == {"pin": "4711"}
    assert agents_words(result)[:2] == [CODE["say"], MORE["say"]]


def test_a_voice_without_words_does_not_keep_keys_from_being_taken() -> None:
    result = heard_of(
        script(UNKNOWN, MORE, BYE), "", says=[(3.3, voice(12.0))], keys=[(2.5, "4711")], ends_s=20.0
    )
    assert result.report.answers == {"pin": "4711"}
    assert next(turn for turn in result.turns if turn.keyed).start_ms < 7000


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_words_after_keys_count_with_a_recogniser_that_shows_none_before_the_end(delay_s: float) -> None:
    said = "can i speak to a person please"
    agent = FakeAgent([Say("key or say it")], [Say("of course"), HangUp()])
    stt = Spelling(said, "", delay_s=delay_s)
    result, _ = converse(agent, says=[(3.2, spoken(said))], keys=[(2.0, "47")], stt=stt)
    (answer,) = agent.events[1:]
    assert isinstance(answer, UserSaid)
    assert (answer.text, answer.keyed) == (said, "47")
    assert texts(result, Role.CALLER) == [said]


@pytest.mark.parametrize("stt", [FakeStt(delay_s=5.0), FakeStt(fails=True)])
def test_keys_do_not_wait_for_ever_for_a_recogniser_that_does_not_answer(stt: FakeStt) -> None:
    agent = FakeAgent([Say("key or say it")], [Say("of course"), HangUp()])
    result, _ = converse(agent, says=[(3.0, voice(8.0))], keys=[(2.0, "47")], stt=stt)
    assert agent.events[1] == UserKeyed("47", heard="key or say it")
    assert result.turns[1].start_ms < 6000


def test_masked_keys_and_words_are_seen_by_nobody() -> None:
    masked = CODE | {"mask": True}
    result = says_and_keys(script(masked, MORE, BYE), (3.7, "one one"), keys=[(2.5, "47")])
    assert texts(result, Role.CALLER) == [MASK]
    assert (result.turns[1].keyed, result.turns[1].user_text) == (MASK, MASK)
    assert agents_words(result)[:2] == [CODE["say"], MORE["say"]]
