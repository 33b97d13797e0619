"""Silences in our turn, and what they are put down to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pipeline.agent import AgentAct, HangUp, Say, SendDigits, Trouble
from pipeline.result import SessionResult
from pipeline.session.dead_air import DeadAirWatch
from tests.support.speech.conversation import FakeAgent, FakeStt, converse, voice

Noted = list[tuple[float, float, str]]


def watched() -> tuple[DeadAirWatch, Noted]:
    """The agent was heard up to 0, the caller spoke from 1 to 3."""
    noted: Noted = []
    watch = DeadAirWatch(lambda *silence: noted.append((silence[0], round(silence[1], 6), silence[2])), 0.0)
    watch.voice(1.0)
    watch.phase("endpointing", 3.0)
    watch.caller(3.0)
    watch.phase("agent_late", 3.5)
    return watch, noted


def test_a_long_silence_has_the_cause_that_most_of_it_was_spent_on() -> None:
    watch, noted = watched()
    watch.sound(6.0)
    assert noted == [(3.0, 3.0, "agent_late")]


def test_a_noise_that_is_taken_for_the_caller_again_and_again_breaks_no_silence() -> None:
    watch, noted = watched()
    for moment in (3.8, 4.6, 5.4):
        watch.voice(moment)
        watch.phase("", moment)
        watch.phase("noise", moment)  # found out half a second later
        watch.phase("endpointing", moment + 0.6)
    watch.sound(6.0)
    assert [(began, cause) for began, _, cause in noted] == [(3.0, "noise")]


def test_a_caller_who_asks_into_a_silence_breaks_it() -> None:
    watch, noted = watched()
    watch.voice(4.5)
    watch.phase("", 4.5)
    watch.phase("endpointing", 5.0)
    watch.caller(5.0)
    watch.phase("agent_late", 5.5)
    watch.sound(6.5)
    assert noted == []


def test_a_silence_that_the_caller_ends_is_noted_too() -> None:
    watch, noted = watched()
    watch.voice(5.5)
    watch.phase("", 5.5)
    watch.caller(6.0)
    assert noted == [(3.0, 2.5, "agent_late")]


def test_noise_while_the_floor_is_the_callers_is_nobodys_silence() -> None:
    noted: Noted = []
    watch = DeadAirWatch(lambda *silence: noted.append((silence[0], round(silence[1], 6), silence[2])), 0.0)
    for moment in (1.0, 3.0, 5.0):
        watch.voice(moment)
        watch.phase("endpointing", moment + 0.2)
        watch.nobody(moment + 1.2)
        watch.phase("", moment + 1.2)
    watch.sound(7.0)
    assert noted == []


@pytest.mark.parametrize("answer", [(), (Say("\N{GRINNING FACE} ..."),), (Trouble("nothing found"),)])
def test_an_agent_that_has_nothing_to_say_to_the_caller_owes_them_the_silence(
    answer: Sequence[AgentAct],
) -> None:
    result = asked_once(answer)
    (silence,) = result.silences
    assert silence.cause == "agent_silent"
    assert silence.ms >= 7500


@pytest.mark.parametrize("answer", [(Say("yes"),), (SendDigits("1"),)])
def test_the_silence_of_a_caller_who_was_answered_is_their_own(answer: Sequence[AgentAct]) -> None:
    assert asked_once(answer).silences == ()


def asked_once(answer: Sequence[AgentAct]) -> SessionResult:
    """A call in which the caller says one thing, is answered, and says no more."""
    agent = FakeAgent((Say("hello"),), answer, (Say("goodbye"), HangUp()))
    return converse(agent, says=[(2.0, voice(0.5))], stt=FakeStt("hello"))[0]
