"""What an agent may do beside talking, answers that are prepared early, and silences that have a cause."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from pipeline.agent import (
    AgentAct,
    AgentEvent,
    CallOpened,
    DoNotCall,
    Expect,
    HangUp,
    Say,
    SendDigits,
    SwitchLanguage,
    Transfer,
    UserSaid,
    UserSilent,
    Wait,
)
from pipeline.result import EndReason
from pipeline.settings import SessionSettings
from pipeline.speech import Expected
from pipeline.transcript import Role
from tests.support.speech.conversation import (
    Bilingual,
    FakeAgent,
    FakeLeg,
    FakeListening,
    FakeStt,
    FakeTts,
    Polyglot,
    Watching,
    agent_texts,
    converse,
    latency_of,
    voice,
)

SETTINGS = SessionSettings()
GREETING = Say("hello this is the clinic calling")
BYE = (Say("thank you goodbye"), HangUp("confirmed"))


def longest_gap(leg: FakeLeg) -> float:
    return max(b - a for (a, _), (b, _) in pairwise(leg.frames))


# Answers that are prepared early ----------------------------------------------------------------------------


def test_an_answer_that_takes_less_than_the_silence_costs_nothing() -> None:
    agent = FakeAgent([GREETING], [0.2, *BYE])
    result, _ = converse(
        agent, stt=FakeStt("tuesday", delay_s=0.05), tts=FakeTts(delay_s=0.1), says=[(3.0, voice(0.5))]
    )
    latency = latency_of(result.turns[-1])
    assert latency.voice_to_voice_ms == pytest.approx(SETTINGS.endpoint_ms, abs=1)
    assert latency.agent_ms == latency.tts_ms == 0


def test_what_is_left_of_it_is_all_that_is_waited_for() -> None:
    agent = FakeAgent([GREETING], [0.6, *BYE])
    result, _ = converse(agent, stt=FakeStt("tuesday", delay_s=0.05), says=[(3.0, voice(0.5))])
    latency = latency_of(result.turns[-1])
    assert latency.voice_to_voice_ms == pytest.approx(100 + 50 + 600, abs=1)
    assert latency.agent_ms == pytest.approx(100 + 50 + 600 - SETTINGS.endpoint_ms, abs=1)
    assert latency.server_ms == pytest.approx(0, abs=1)


class Growing(FakeStt):
    """Understands all that was said so far: a word for each stretch of voice."""

    def understand(self, listening: FakeListening) -> str:
        loud = [bool(abs(frame).max() > 500) for frame in listening.pushed]
        stretches = sum(1 for before, after in pairwise([False, *loud]) if after and not before)
        return " ".join(["red", "green", "blue", "white"][:stretches])


def test_who_goes_on_hears_nothing_of_an_answer_to_half_of_it() -> None:
    agent = FakeAgent([GREETING], [Say("never heard")], BYE)
    result, leg = converse(agent, stt=Growing(), says=[(3.0, voice(0.5)), (3.8, voice(0.5))])
    said = [event for event in agent.events if isinstance(event, UserSaid)]
    assert [(event.text, event.continues) for event in said] == [("red", False), ("red green", True)]
    assert agent_texts(result) == [GREETING.text, "thank you goodbye"]
    assert [turn.user_text for turn in result.turns] == ["", "red green"]
    assert not [moment for moment, _ in leg.frames if 3.0 < moment - leg.started_at < 4.3]


class Careful:
    """An agent that does what cannot be undone, and waits until the turn is certain before it does more."""

    def __init__(self, *acts: AgentAct) -> None:
        self.acts = acts
        self.done: list[tuple[str, float]] = []
        self.events: list[AgentEvent] = []

    async def respond(self, event: AgentEvent) -> AsyncIterator[AgentAct]:
        self.events.append(event)
        if isinstance(event, CallOpened):
            yield GREETING
        elif isinstance(event, UserSaid):
            if event.settled is not None:
                await event.settled()
            self.done.append((event.text, asyncio.get_running_loop().time()))
            for act in self.acts:
                yield act

    def report(self) -> Any:
        return FakeAgent().report()


def test_an_agent_can_wait_until_the_turn_is_certain() -> None:
    agent = Careful(*BYE)
    result, leg = converse(agent, stt=Growing(), says=[(3.0, voice(0.5)), (3.8, voice(0.5))])
    assert [text for text, _ in agent.done] == ["red green"]
    assert agent.done[0][1] - leg.started_at == pytest.approx(4.3 + SETTINGS.endpoint_ms / 1000, abs=0.03)
    assert result.reason is EndReason.AGENT


@pytest.mark.parametrize("act", [SendDigits("7"), HangUp("early"), Transfer("desk"), DoNotCall(), Wait(1.0)])
def test_nothing_is_done_for_a_turn_that_goes_on(act: AgentAct) -> None:
    agent = FakeAgent([GREETING], [act], BYE)
    seen = Watching()
    result, leg = converse(agent, stt=Growing(), says=[(3.0, voice(0.5)), (3.8, voice(0.5))], observer=seen)
    assert (result.reason, result.disposition) == (EndReason.AGENT, "confirmed")
    assert leg.dtmf == ""
    assert result.do_not_call is None
    assert "waiting" not in seen.states


def test_the_next_question_does_not_change_how_the_rest_of_the_answer_is_heard() -> None:
    digits = Expected(kinds=("digits",), digits=4)
    agent = FakeAgent([GREETING], [Expect(digits), Say("which digits")], [Expect(digits), Say("which")], BYE)
    stt = Growing()
    converse(agent, stt=stt, says=[(3.0, voice(0.5)), (3.8, voice(0.5)), (7.0, voice(0.5))])
    assert [listening.expected for listening in stt.listenings] == [None, digits]


def test_an_agent_that_fails_early_is_not_heard_to_fail_before_the_turn_is_over() -> None:
    agent = FakeAgent([GREETING], [RuntimeError("no")], BYE)
    result, _ = converse(agent, stt=Growing(), says=[(3.0, voice(0.5)), (3.8, voice(0.5))])
    assert result.reason is EndReason.AGENT
    assert SETTINGS.apology not in agent_texts(result)


def test_who_hangs_up_in_a_second_thought_is_quoted_whole() -> None:
    result, _ = converse(
        FakeAgent([GREETING], [Say("never heard")]),
        stt=Growing(),
        says=[(3.0, voice(0.5)), (3.8, voice(0.5))],
        ends_s=4.32,
    )
    assert [entry.text for entry in result.transcript if entry.role is Role.CALLER] == ["red green"]


def test_a_cough_while_the_agent_thinks_does_not_make_it_think_again() -> None:
    agent = FakeAgent([GREETING], [1.2, *BYE])
    result, _ = converse(agent, stt=FakeStt("tuesday"), says=[(3.0, voice(0.5)), (4.2, voice(0.2))])
    assert [event.text for event in agent.events if isinstance(event, UserSaid)] == ["tuesday"]
    assert agent.closed_early == 0
    assert result.reason is EndReason.AGENT


# What an agent may do ---------------------------------------------------------------------------------------


def test_an_agent_that_waits_is_silent_without_a_filler_or_a_reprompt() -> None:
    agent = FakeAgent([Say("take your time"), Wait(20.0), *BYE])
    result, leg = converse(agent)
    assert agent_texts(result) == ["take your time", "thank you goodbye"]
    assert [type(event) for event in agent.events] == [CallOpened]
    assert longest_gap(leg) == pytest.approx(20.02, abs=0.05)
    (silence,) = result.silences
    assert silence.cause == "waiting"
    assert silence.ms == pytest.approx(20_000, abs=50)


def test_the_caller_ends_a_wait_and_a_cough_does_not() -> None:
    agent = FakeAgent([Say("take your time"), Wait(20.0), Say("are you back")], BYE)
    result, _ = converse(agent, stt=FakeStt("i am back"), says=[(4.0, voice(0.12)), (8.0, voice(0.6))])
    said = [event for event in agent.events if isinstance(event, UserSaid)]
    assert [event.text for event in said] == ["i am back"]
    assert agent_texts(result) == ["take your time", "thank you goodbye"]
    assert result.duration_ms < 12_000


def test_nobody_waits_for_ever() -> None:
    result, _ = converse(FakeAgent([GREETING, Wait(10_000.0), *BYE]))
    assert result.duration_ms < 65_000


def test_both_sides_change_the_language() -> None:
    agent = FakeAgent([GREETING], [SwitchLanguage("ar"), Say("مرحبا كيف حالك")], BYE)
    tts, stt = Polyglot(), Bilingual("arabic please", "لحظة", "شكرا")
    result, _ = converse(agent, stt=stt, tts=tts, says=[(3.0, voice(0.5)), (6.0, voice(0.5))])
    assert [language for language, _ in tts.said] == ["en", "ar", "ar"]
    assert stt.languages == ["en", "ar"]
    latency = latency_of(result.turns[-1])
    assert latency.endpoint_ms == pytest.approx(SETTINGS.endpoint_unfinished_ms, abs=1)  # "one moment"


def test_who_does_not_want_to_be_called_is_told_of_at_once() -> None:
    asked: list[str] = []

    class Told(Watching):
        def do_not_call(self, reason: str, now: float) -> None:
            asked.append(reason)

    agent = FakeAgent([GREETING, DoNotCall("never again")])
    result, _ = converse(agent, observer=Told(), ends_s=5.0)
    assert asked == ["never again"]
    assert result.do_not_call == "never again"


# No dead air ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "stt", "tts", "cause"),
    [
        (FakeAgent([GREETING], [6.0, *BYE]), FakeStt("tuesday"), FakeTts(), "agent_late"),
        (FakeAgent([GREETING], BYE), FakeStt("tuesday", delay_s=60.0), FakeTts(), "stt_late"),
        (FakeAgent([GREETING], BYE), FakeStt("tuesday"), FakeTts(delay_s=2.6), "tts_late"),
    ],
)
def test_a_long_silence_names_who_was_late(agent: Any, stt: FakeStt, tts: FakeTts, cause: str) -> None:
    settings = SessionSettings(dead_air_ms=2500, stt_deadline_ms=2200, tts_stall_ms=4000)
    result, _ = converse(agent, stt=stt, tts=tts, settings=settings, says=[(6.0, voice(0.5))])
    late = [silence for silence in result.silences if silence.start_ms > 5000]
    assert late
    assert late[0].cause == cause
    assert late[0].start_ms == pytest.approx(6500, abs=60)
    assert late[0].ms > 2000
    assert late[0] in [silence for turn in result.turns for silence in turn.silences]


def test_a_line_on_hold_is_a_silence_of_the_far_end() -> None:
    leg = FakeLeg()
    leg.held = True
    result, _ = converse(FakeAgent([GREETING, HangUp()]), leg, later=[(20.0, lambda _: leg.resume())])
    (silence,) = result.silences
    assert silence.cause in ("held", "closing")
    assert silence.ms == pytest.approx(20_000, abs=50)


def test_a_caller_who_thinks_is_no_silence_of_ours() -> None:
    result, _ = converse(FakeAgent([GREETING], BYE), stt=FakeStt("tuesday"), says=[(9.0, voice(0.5))])
    assert result.silences == ()


@pytest.mark.parametrize("thinks_s", [1000.0, 6.0])
def test_no_silence_outlasts_the_filler(thinks_s: float) -> None:
    agent = FakeAgent([GREETING], [thinks_s, *BYE])
    _, leg = converse(
        agent, stt=FakeStt("tuesday"), says=[(3.0, voice(0.5))], settings=SessionSettings(max_failures=0)
    )
    moments = [leg.started_at + 3.5, *(moment for moment, _ in leg.frames if moment > leg.started_at + 3.5)]
    assert max(b - a for a, b in pairwise(moments)) < SETTINGS.dead_air_ms / 1000 + 0.05


def test_a_caller_whose_agent_broke_is_handed_to_a_person(caplog: pytest.LogCaptureFixture) -> None:
    settings = SessionSettings(rescue="desk", max_failures=0)
    with caplog.at_level(logging.CRITICAL):
        result, leg = converse(
            FakeAgent([GREETING], [RuntimeError("no")]),
            stt=FakeStt("tuesday"),
            settings=settings,
            says=[(3.0, voice(0.5))],
        )
    assert agent_texts(result)[-1] == settings.apology
    assert (result.reason, result.transfer_target) == (EndReason.TRANSFER, "desk")
    assert [fault.role for fault in result.faults] == ["agent"]
    assert leg.hung_up == 0


def test_a_silent_caller_is_not_handed_on() -> None:
    agent = FakeAgent([GREETING], [Say("are you there")], [Say("hello hello")])
    result, _ = converse(agent, settings=SessionSettings(rescue="desk"))
    assert [event.count for event in agent.events if isinstance(event, UserSilent)] == [1, 2]
    assert result.reason is EndReason.SILENCE
