"""Callers who have more to say when the agent says goodbye, and those who only say goodbye themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.agent import AgentContext, DoNotCall, HangUp, Say, Transfer, UserSaid
from pipeline.agents.script.agent import Script
from pipeline.audio import Pcm
from pipeline.result import EndReason, SessionResult
from pipeline.settings import SessionSettings
from pipeline.text.word_lists import is_parting
from tests.support.speech.conversation import (
    RATE_HZ,
    WORD_S,
    FakeAgent,
    FakeLeg,
    FakeStt,
    Streaming,
    agent_texts,
    converse,
    spoken,
    voice,
)

SETTINGS = SessionSettings()
WELL = Say("well")
GOODBYE = Say("thank you for calling the clinic have a nice day goodbye")
FAREWELL_S = len(GOODBYE.text.split()) * WORD_S
OTHER = (Say("of course"), HangUp("helped"))
MORE = "wait i also need a receipt"


def parted(
    agent: Any, *said: tuple[float, str], sounds: Sequence[tuple[float, Pcm]] = (), **call: Any
) -> tuple[SessionResult, FakeLeg]:
    """Plays a call in which the caller says each text at its second."""
    says = [*((at, spoken(text)) for at, text in said), *sounds]
    return converse(agent, says=says, stt=Streaming(*(text for _, text in said), ""), **call)


def parting_agent(*more: Any) -> FakeAgent:
    return FakeAgent([GOODBYE, HangUp("done")], *more)


# Who has more to say ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [MORE, "could you send me a receipt too", "hold on please"])
def test_words_for_the_agent_stop_a_farewell_and_the_conversation_goes_on(text: str) -> None:
    agent = parting_agent(OTHER)
    result, _ = parted(agent, (1.0, text))
    event = agent.events[1]
    assert isinstance(event, UserSaid)
    assert (event.text, event.interrupted) == (text, True)
    assert GOODBYE.text.startswith(event.heard)
    assert event.heard != GOODBYE.text
    assert agent_texts(result) == [event.heard, "of course"]
    assert (result.reason, result.disposition) == (EndReason.AGENT, "helped")
    assert result.interruptions == 1


@pytest.mark.parametrize(
    "text",
    [
        "bye", "okay bye bye", "thank you so much for your help have a lovely day", "no thats all thanks",
        "you too", "mm-hm",
    ],
)  # fmt: skip
@pytest.mark.parametrize("at_s", [1.0, FAREWELL_S - 0.3, FAREWELL_S - 0.05])
def test_who_says_goodbye_too_hears_the_farewell_to_its_end(text: str, at_s: float) -> None:
    agent = parting_agent(OTHER)
    result, leg = parted(agent, (at_s, text))
    assert agent_texts(result) == [GOODBYE.text]
    assert len(agent.events) == 1
    assert (result.reason, result.disposition) == (EndReason.AGENT, "done")
    over_s = max(FAREWELL_S, at_s + len(text.split()) * WORD_S)
    assert result.duration_ms / 1000 < over_s + 1.4
    assert leg.hung_up == 1


@pytest.mark.parametrize("after_s", [-0.4, -0.2, -0.05, 0.0, 0.06])
def test_what_is_said_as_the_farewell_ends_counts_too(after_s: float) -> None:
    agent = parting_agent(OTHER)
    result, _ = parted(agent, (FAREWELL_S + after_s, MORE))
    assert [event.text for event in agent.events if isinstance(event, UserSaid)] == [MORE]
    assert agent_texts(result) == [GOODBYE.text, "of course"]


def test_a_noise_keeps_nobody_on_the_line() -> None:
    hiss = np.random.default_rng(7).standard_normal(RATE_HZ // 2) * 3000
    noise = hiss.clip(-32768, 32767).astype(np.int16)
    for at_s in (1.0, FAREWELL_S - 0.3, FAREWELL_S + 0.04):
        agent = parting_agent(OTHER)
        result, _ = parted(agent, sounds=[(at_s, noise)])
        assert agent_texts(result) == [GOODBYE.text]
        assert result.duration_ms / 1000 < FAREWELL_S + 2.5


@pytest.mark.parametrize("at_s", [1.0, FAREWELL_S - 0.3, FAREWELL_S + 0.04])
def test_a_television_that_no_recogniser_understands_does_not_silence_a_farewell_for_long(
    at_s: float,
) -> None:
    talk = np.tile(np.concatenate((voice(0.4), np.zeros(RATE_HZ * 6 // 100, np.int16))), 90)
    result, _ = converse(parting_agent(), says=[(at_s, talk)], stt=FakeStt(fails=True))
    assert agent_texts(result) == [GOODBYE.text]
    assert result.duration_ms < 20_000  # the limit of a farewell is 30 s


def test_nobody_can_stop_more_than_two_farewells() -> None:
    farewell = (GOODBYE, HangUp("done"))
    agent = FakeAgent(farewell, farewell, farewell, farewell)
    result, _ = parted(agent, *((1.0 + 4.0 * index, MORE) for index in range(5)))
    assert len(agent.events) == 3
    assert agent_texts(result)[-1] == GOODBYE.text
    assert result.reason is EndReason.AGENT


@pytest.mark.parametrize("said", ["yes", "sounds good", "no thanks"])
def test_who_says_they_are_there_after_all_is(said: str) -> None:
    """The agent has asked often enough, and says goodbye to somebody who was away from the telephone."""
    settings = SessionSettings(max_reprompts=0, reprompt_s=2.0, goodbye="nobody seems to be there goodbye")
    agent = FakeAgent([WELL], OTHER)
    result, _ = parted(agent, (2.6, said), settings=settings)
    assert [event.text for event in agent.events if isinstance(event, UserSaid)] == [said]
    assert agent_texts(result)[-1] == "of course"
    assert result.reason is EndReason.AGENT


def test_a_goodbye_to_nobody_ends_the_call() -> None:
    settings = SessionSettings(max_reprompts=0, reprompt_s=2.0)
    result, _ = parted(FakeAgent([WELL]), settings=settings)
    assert agent_texts(result) == ["well", settings.goodbye]
    assert result.reason is EndReason.SILENCE


def test_a_caller_who_is_being_handed_on_may_say_that_they_would_rather_not() -> None:
    agent = FakeAgent([GOODBYE, Transfer("desk")], OTHER)
    result, leg = parted(agent, (1.0, "wait i would rather not"))
    assert (result.reason, result.transfer_target) == (EndReason.AGENT, "")
    assert leg.hung_up == 1


def test_a_caller_who_hangs_up_after_taking_the_farewell_back_has_not_been_hung_up_on() -> None:
    agent = parting_agent([Say("let me see what i can do about that for you")])
    result, _ = parted(agent, (1.0, MORE), ends_s=4.0)
    assert (result.reason, result.disposition) == (EndReason.FAR_END, "reported")


# Keys and chat ----------------------------------------------------------------------------------------------


def test_keys_over_a_farewell_stop_nothing() -> None:
    agent = parting_agent(OTHER)
    result, _ = parted(agent, keys=[(1.0, "12#")])
    assert agent_texts(result) == [GOODBYE.text]


@pytest.mark.parametrize("text", ["bye!", "Thank you :-)", "👍"])
def test_a_goodbye_in_the_chat_stops_nothing(text: str) -> None:
    agent = parting_agent(OTHER)
    result, _ = parted(agent, written=[(1.0, text)])
    assert agent_texts(result) == [GOODBYE.text]


@pytest.mark.parametrize("at_s", [1.0, FAREWELL_S + 0.1])
def test_a_question_in_the_chat_stops_a_farewell(at_s: float) -> None:
    agent = parting_agent(OTHER)
    result, _ = parted(agent, written=[(at_s, "Where can I park?")])
    assert [event.text for event in agent.events if isinstance(event, UserSaid)] == ["Where can I park?"]
    assert agent_texts(result)[-1] == "of course"


# What is final ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "acts", [[GOODBYE, HangUp("done", final=True)], [DoNotCall("asked"), GOODBYE, HangUp("done")]]
)
@pytest.mark.parametrize("at_s", [1.0, FAREWELL_S - 0.1])
def test_a_final_farewell_is_not_stopped(acts: list[Any], at_s: float) -> None:
    agent = FakeAgent(acts, OTHER)
    result, _ = parted(agent, (at_s, MORE))
    assert agent_texts(result) == [GOODBYE.text]
    assert result.reason is EndReason.AGENT


def test_an_apology_for_what_broke_is_not_stopped() -> None:
    agent = FakeAgent([RuntimeError("broken")], OTHER)
    result, _ = parted(agent, (0.5, MORE), settings=SessionSettings(max_failures=0))
    assert agent_texts(result) == [SETTINGS.apology]
    assert result.reason is EndReason.ENGINE_ERROR


def test_a_farewell_on_a_held_line_ends_too() -> None:
    leg = FakeLeg()
    result, _ = converse(parting_agent(), leg, later=[(0.5, lambda _: setattr(leg, "held", True))])
    assert result.reason is EndReason.AGENT
    assert result.duration_ms < 40_000


# A script ---------------------------------------------------------------------------------------------------

CONFIRM = {
    "id": "confirm",
    "say": "can you come",
    "expect": {"kinds": ["yes_no"]},
    "answers": {"person": ["talk to a person"]},
    "collect": "comes",
    "on": {"yes": "bye", "no": "again", "person": "desk"},
    "next": "bye",
}
BYE = {
    "id": "bye",
    "say": GOODBYE.text,
    "action": "hang_up",
    "disposition": "confirmed",
    "goal": True,
}
AGAIN = {"id": "again", "say": "we will call again", "action": "hang_up", "disposition": "later"}
DESK = {"id": "desk", "say": "one moment please", "action": "transfer", "target": "desk"}


def script(*steps: dict[str, Any]) -> Any:
    plan = {"start": steps[0]["id"], "step": list(steps)}
    return Script.from_settings(plan).join(AgentContext("call", "en", "", {}))


def after_the_farewell(agent: Any, *said: tuple[float, str]) -> SessionResult:
    """The caller has said yes, and then what is given, in seconds after the farewell began."""
    began_s = 1.5 + 0.3 + 0.6
    return parted(agent, (1.5, "yes"), *((began_s + at, text) for at, text in said))[0]


def test_a_script_asks_its_last_question_again() -> None:
    result = after_the_farewell(script(CONFIRM, BYE, AGAIN, DESK), (0.8, "wait i am not sure"), (5.0, "no"))
    assert agent_texts(result)[-2:] == [CONFIRM["say"], AGAIN["say"]]
    assert result.disposition == "later"
    assert result.report.reached_goal is False
    assert result.report.answers == {"comes": "no"}


def test_a_script_takes_an_answer_that_is_among_the_words() -> None:
    result = after_the_farewell(script(CONFIRM, BYE, AGAIN, DESK), (0.8, "wait can i talk to a person"))
    assert (result.reason, result.transfer_target) == (EndReason.TRANSFER, "desk")


def test_what_a_script_has_reached_stands_until_the_question_is_answered_anew() -> None:
    result, _ = parted(script(CONFIRM, BYE, AGAIN, DESK), (1.5, "yes"), (3.2, MORE), ends_s=7.0)
    assert agent_texts(result)[-1] == CONFIRM["say"]
    assert result.report.disposition == "confirmed"
    assert result.report.reached_goal
    assert result.report.answers == {"comes": "yes"}


def test_a_script_that_has_asked_nothing_says_what_it_has_to_say() -> None:
    result, _ = parted(script(BYE), (1.0, MORE))
    assert agent_texts(result) == [GOODBYE.text]
    assert result.disposition == "confirmed"


def test_a_farewell_that_a_script_protects_is_final() -> None:
    protected = BYE | {"interruptible": False}
    result = after_the_farewell(script(CONFIRM, protected, AGAIN, DESK), (FAREWELL_S - 0.1, MORE))
    assert agent_texts(result) == [CONFIRM["say"], GOODBYE.text]


# The words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Bye!", "Thanks very much, you have a good evening.", "You too, bye-bye.", "No, that's all.",
        "Alright then, goodbye.", "", "uh", "شكرا مع السلامة",
    ],
)  # fmt: skip
def test_what_people_say_at_parting(text: str) -> None:
    assert is_parting(text.replace("Alright then", "all right then"), "ar" if "ش" in text else "en")


@pytest.mark.parametrize(
    "text", ["Wait!", "No.", "Thanks, but what about my order?", "Bye the way", "انتظر لحظة", "yes"]
)
def test_what_they_do_not(text: str) -> None:
    assert not is_parting(text, "ar" if "ن" in text else "en")
