"""Calls that a machine answers, or nobody: the agent does what its settings say, and the record tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.agent import CallOpened, Expect, HangUp, Say, UserSaid
from pipeline.call_progress.answer_detection import AnswerDecision, AnswerDetector
from pipeline.call_progress.settings import AnswerDetectionSettings
from pipeline.engines.tables import problem_of
from pipeline.result import EndReason, SessionResult
from pipeline.session.session import Session
from pipeline.speech import Expected
from tests.support.sip.callers import at_level, spoken
from tests.support.speech.conversation import FakeAgent, FakeLeg, FakeStt, converse, voice
from tests.support.speech.lines import RATE_HZ, Wave, cadence, music, quiet, tone

HELLO = Say("good morning this is the clinic")
BYE = (Say("goodbye"), HangUp("confirmed"))
MESSAGE = "please call the clinic back"
GREETING = "You have reached the voice mail of John Baker. Please leave a message after the tone."


def greeting() -> Wave:
    """A machine that greets from 0.8 s on, and beeps."""
    said = at_level(spoken((GREETING,))[0], -20)
    return np.concatenate([quiet(0.8), said, quiet(0.6), tone((1000,), 0.4)])


def call(wave: Wave, *, agent: FakeAgent | None = None, ends_s: float = 40.0, **line: Any) -> Played:
    """One call whose far end sounds like `wave`, by an agent with these settings."""
    speaks = agent or FakeAgent([HELLO, Expect(Expected(kinds=("yes_no",)))], BYE)
    stage = AnswerDetector(AnswerDetectionSettings(**line))
    says = [(0.0, np.asarray(wave, np.int16))]
    return Played(*converse(speaks, says=says, ends_s=ends_s, answer_detector=stage), speaks)


class Played:
    """What came of it."""

    def __init__(self, result: SessionResult, leg: FakeLeg, agent: FakeAgent) -> None:
        self.result = result
        self.agent = agent
        self.first_word_s = leg.frames[0][0] - leg.started_at if leg.frames else None
        self.said = [entry.text for entry in result.transcript]
        self.hung_up = leg.hung_up


def test_a_message_is_left_after_the_beep() -> None:
    beeped_s = len(greeting()) / RATE_HZ
    played = call(greeting(), answering_machine="leave_message", message=MESSAGE)
    assert played.said == [MESSAGE]
    assert played.first_word_s == pytest.approx(beeped_s, abs=0.2)
    assert played.first_word_s is not None
    assert played.first_word_s >= beeped_s - 0.02  # not into the beep
    assert (played.result.reason, played.result.disposition) == (EndReason.AGENT, "message_left")
    assert played.result.line == "answering_machine"
    assert played.agent.events == []
    assert played.result.silences == ()


def test_a_machine_without_a_beep_gets_its_message_too() -> None:
    wave = greeting()[: -round(0.4 * RATE_HZ)]
    played = call(wave, answering_machine="leave_message", message=MESSAGE)
    assert played.said == [MESSAGE]
    assert played.first_word_s == pytest.approx(len(wave) / RATE_HZ + 0.9, abs=0.4)


def test_a_machine_is_hung_up_on() -> None:
    played = call(greeting(), answering_machine="hang_up")
    assert played.said == []
    assert played.hung_up == 1
    assert played.result.reason is EndReason.AGENT
    assert played.result.disposition == "answering_machine"
    assert played.result.duration_ms < 5000


def test_the_agent_waits_for_the_end_of_a_greeting() -> None:
    played = call(greeting(), answering_machine="wait")
    assert played.said[0] == HELLO.text
    assert played.first_word_s == pytest.approx(len(greeting()) / RATE_HZ, abs=0.2)
    assert played.result.line == "answering_machine"


@pytest.mark.parametrize("hello", ["Hello?", "Good morning, Baker here."])
def test_a_person_is_greeted_when_they_have_said_hello(hello: str) -> None:
    said = np.concatenate([quiet(0.8), at_level(spoken((hello,))[0], -20)])
    played = call(said, answering_machine="hang_up", hold_music="hang_up", ends_s=8)
    assert played.said[0] == HELLO.text
    assert played.first_word_s == pytest.approx(len(said) / RATE_HZ + 0.7, abs=0.3)
    assert isinstance(played.agent.events[0], CallOpened)
    assert played.result.line == ""
    assert not played.result.silences


def test_somebody_who_says_nothing_is_greeted_too() -> None:
    played = call(quiet(1), answering_machine="hang_up", ends_s=8)
    assert played.first_word_s == pytest.approx(2.0, abs=0.2)


def test_hold_music_is_waited_through_until_a_person_speaks() -> None:
    wave = np.concatenate([quiet(0.5), music(9), quiet(1), at_level(spoken(("Hello, Baker here.",))[0], -20)])
    played = call(wave, hold_music="wait", ends_s=20)
    assert played.said[0] == HELLO.text
    assert played.first_word_s == pytest.approx(len(wave) / RATE_HZ + 0.7, abs=0.3)
    assert played.result.line == "hold_music"


def test_hold_music_is_not_waited_through_for_ever() -> None:
    played = call(music(30), hold_music="wait", hold_s=15)
    assert played.said == []
    assert played.result.disposition == "hold_music"
    assert 15_000 < played.result.duration_ms < 20_000


def test_a_line_that_is_busy_behind_the_answer_is_hung_up() -> None:
    played = call(cadence((425,), (0.5, 0.5), times=5), answering_machine="hang_up")
    assert (played.said, played.result.disposition) == ([], "busy_tone")


@pytest.mark.parametrize("before", [(), (spoken(("Hello?",))[0], quiet(3))], ids=["nobody", "somebody"])
@pytest.mark.parametrize(
    ("hz", "on_off_s", "found"),
    [
        ((480, 620), (0.5, 0.5), "busy_tone"),
        ((425,), (0.25, 0.25), "congestion_tone"),
        ((350, 440), (40.0,), "dial_tone"),
    ],
)
def test_nobody_talks_on_to_a_line_on_which_nobody_is(
    before: tuple[Wave, ...], hz: tuple[int, ...], on_off_s: tuple[float, ...], found: str
) -> None:
    wave = np.concatenate([*before, cadence(hz, on_off_s, times=40)])
    played = call(wave, agent=FakeAgent(*[[HELLO]] * 20))
    began_ms = sum(map(len, before)) * 1000 // RATE_HZ
    assert (played.result.reason, played.result.disposition) == (EndReason.AGENT, found)
    assert played.result.duration_ms - began_ms < 4000
    assert played.hung_up == 1


def test_without_settings_nobody_waits_but_the_record_tells() -> None:
    played = call(greeting(), ends_s=12)
    assert played.first_word_s == pytest.approx(0.0, abs=0.1)
    assert played.result.line == "answering_machine"
    assert played.result.disposition == "confirmed"


def test_who_hangs_up_while_the_line_is_judged() -> None:
    played = call(greeting(), answering_machine="wait", ends_s=2)
    assert played.result.reason is EndReason.FAR_END
    assert played.agent.events == []


def test_a_call_can_be_stopped_while_the_line_is_judged() -> None:
    stage = AnswerDetector(AnswerDetectionSettings(answering_machine="hang_up"))
    stops = [(1.0, Session.stop)]
    result, _ = converse(FakeAgent(), written=[(0.5, "hello")], later=stops, answer_detector=stage)
    assert result.reason is EndReason.STOPPED


def test_what_is_said_after_the_greeting_is_understood() -> None:
    says = [(0.8, np.asarray(at_level(spoken(("Hello?",))[0], -20), np.int16)), (5.5, voice(0.5))]
    agent = FakeAgent([HELLO, Expect(Expected(kinds=("yes_no",)))], BYE)
    stage = AnswerDetector(AnswerDetectionSettings(answering_machine="hang_up"))
    result, _ = converse(agent, says=says, stt=FakeStt("yes"), answer_detector=stage)
    assert [type(event) for event in agent.events] == [CallOpened, UserSaid]
    assert result.disposition == "confirmed"


def test_what_is_heard_before_the_answer_is_on_the_record() -> None:
    stage = AnswerDetector(AnswerDetectionSettings())
    announcement = np.concatenate([at_level(spoken((GREETING,))[0], -20), quiet(1)]).astype(np.int16)
    for start in range(0, len(announcement) // 160 * 160, 160):
        stage.heard_early(announcement[start : start + 160], start / RATE_HZ)
    assert stage.early == "announcement"
    assert stage.verdict is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"answering_machine": "shout"}, "answering_machine"),
        ({"answering_machine": "leave_message"}, "message"),
        ({"answering_machine": "leave_message", "message": " "}, "message"),
        ({"hold_music": "dance"}, "hold_music"),
        ({"hold_s": 0}, "hold_s"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AnswerDetectionSettings(**settings)
    assert problem_of(caught.value.errors()[0])[0] == named


def test_nobody_talks_into_a_word_that_comes_late() -> None:
    said = at_level(spoken((GREETING,))[0], -20)
    stage = AnswerDetector(AnswerDetectionSettings(answering_machine="hang_up"))
    stage.begin(0.0)
    for index, start in enumerate(range(0, len(said) // 160 * 160, 160)):
        verdict = stage.push(said[start : start + 160].astype(np.int16), 5.0 + 0.02 * index)
        if verdict is not None:
            break
        if index == 60:
            assert stage.handle_timer(6.2) is None
    assert verdict is AnswerDecision.HANG_UP
