"""What the caller has heard of the agent's answer, where a person takes the call over."""

from __future__ import annotations

import pytest

from pipeline.agent import Say
from pipeline.result import EndReason
from pipeline.session.session import Session
from tests.support.speech.conversation import FakeAgent, FakeStt, converse, voice

GREETING = Say("good morning")
FIRST, SECOND = "we have a room", "shall I book it now"


def take_over(session: Session) -> None:
    session.stop(EndReason.TAKEN_OVER)


@pytest.mark.parametrize(
    ("acts", "at_s", "heard", "cut"),
    [
        ([Say(FIRST), Say(SECOND)], 4.25, f"{FIRST} shall I", True),
        ([Say(FIRST), 5.0, Say(SECOND)], 5.5, FIRST, True),  # between both
        ([5.0, Say(FIRST)], 4.0, "", True),  # before the first sound
        ([Say(FIRST)], 7.0, FIRST, False),
    ],
)
def test_what_was_heard_of_all_that_the_agent_said(
    acts: list[Say | float], at_s: float, heard: str, cut: bool
) -> None:
    agent = FakeAgent([GREETING], acts)
    result, _ = converse(agent, stt=FakeStt("yes"), says=[(1.5, voice(0.5))], later=[(at_s, take_over)])
    assert result.reason is EndReason.TAKEN_OVER
    assert len(agent.events) == 2
    assert (result.heard, result.cut_short) == (heard, cut)


def test_an_answer_that_the_caller_had_stopped_before() -> None:
    agent = FakeAgent([Say(f"{FIRST} {SECOND}")])
    said = [(0.9, voice(3.0))]
    result, _ = converse(agent, stt=FakeStt("wait"), says=said, later=[(3.0, take_over)])
    assert result.cut_short
    assert result.heard
    assert FIRST.startswith(result.heard) or result.heard.startswith(FIRST)


def test_nothing_was_said_yet() -> None:
    result, _ = converse(FakeAgent([3.0, GREETING]), later=[(1.0, take_over)])
    assert (result.heard, result.cut_short) == ("", True)
