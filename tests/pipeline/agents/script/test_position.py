"""A position in a script: what an answer means there, and what moving on or going back keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline.agent import Expect
from pipeline.agents.script.position import Position
from pipeline.agents.script.steps import ScriptStep, read_plan
from pipeline.speech import Expected


def asking(**step: Any) -> ScriptStep:
    return read_plan({"start": "ask", "step": [{"id": "ask", "say": "?", "next": "ask", **step}]}).steps[
        "ask"
    ]


NUMBER = asking(expect={"kinds": ["digits"], "digits": 6}, collect="card", confirm="Right?", mask=True)
CHOICE = asking(expect={"kinds": ["yes_no"]}, answers={"later": ["no not now"]})


@pytest.mark.parametrize(
    ("text", "keys", "value"),
    [
        ("one two three four five six", "", "123456"),
        ("five six", "34", "123456"),
        ("nothing of the kind", "", ""),
        ("three", "", ""),
    ],
)
def test_digits_are_an_answer_when_all_of_them_are_there(text: str, keys: str, value: str) -> None:
    at = Position(NUMBER, partial="" if text.startswith("one") else "12")
    assert at.understood(text, keys) == (value, value)


def test_the_digits_that_are_there_are_kept_as_a_part() -> None:
    assert Position(NUMBER, partial="12").dictated("three") == "123"


@pytest.mark.parametrize(("text", "label"), [("no not now please", "later"), ("no", "no"), ("perhaps", "")])
def test_a_phrase_comes_before_a_kind(text: str, label: str) -> None:
    assert Position(CHOICE).understood(text) == (label, label)


def test_the_rest_of_the_digits_is_expected_or_a_yes() -> None:
    at = Position(NUMBER)
    assert at.expect() == [Expect(Expected(kinds=("digits",), digits=6), masked=True)]
    assert replace(at, partial="1234").expect() == [
        Expect(Expected(kinds=("digits",), digits=2), masked=True)
    ]
    confirming = replace(at, confirming="123456").expect()
    assert confirming == [Expect(Expected(kinds=("yes_no", "digits")), masked=True)]
    assert Position(ScriptStep(id="bye", action="hang_up")).expect() == []


def test_arriving_keeps_what_the_call_has_come_to_and_begins_the_counts_anew() -> None:
    at = Position(NUMBER, answers={"card": "1"}, nomatches=2, silences=1, partial="1", disposition="asked")
    there = at.arrived(CHOICE.model_copy(update={"goal": True}), reopened=None)
    assert (there.nomatches, there.silences, there.partial) == (0, 0, "")
    assert (there.disposition, there.reached_goal, there.answers) == ("asked", True, {"card": "1"})


def test_a_question_that_is_asked_again_takes_its_first_outcome_back_when_it_is_answered() -> None:
    asked = Position(CHOICE, disposition="asked", nomatches=1)
    ended = asked.arrived(CHOICE.model_copy(update={"goal": True, "disposition": "done"}), reopened=None)
    again = ended.returned_to(asked)
    assert (again.disposition, again.reached_goal, again.nomatches) == ("done", True, 0)
    answered = again.arrived(NUMBER, reopened=asked)
    assert (answered.disposition, answered.reached_goal) == ("asked", False)
