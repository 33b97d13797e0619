"""Recorded people through the embedded recogniser and a script, on the virtual clock: other words fill no
answer, and an answer that the recogniser doubts is confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bench.embedded_stt.corpus import LINE_HZ, RATE_HZ, flite, on_the_line, prompt
from bench.people.corpus import PLAYER, said
from bench.support.virtual_clock import VirtualLoop
from pipeline.agent import AgentContext
from pipeline.agents.script.agent import Script
from pipeline.audio import Pcm
from pipeline.result import SessionResult
from pipeline.session.prompts import Phrases
from pipeline.session.session import Session
from pipeline.settings import SessionSettings
from pipeline.stt.pocketsphinx import PocketSphinx
from pipeline.transcript import Role
from tests.support.speech.conversation import FakeLeg, FakeTts

SETTINGS = SessionSettings()
QUESTION = "What do you see?"
AGAIN = "Sorry, what is it?"
NAMES = (
    "flower", "sign", "olive", "astronaut", "hat", "lemon", "piano", "zebra", "umbrella", "watch",
)  # fmt: skip
SCRIPT: dict[str, Any] = {
    "start": "thing",
    "step": [
        {
            "id": "thing",
            "say": QUESTION,
            "expect": {"phrases": NAMES},
            "collect": "thing",
            "nomatch": {"say": AGAIN},
            "next": "bye",
        },
        {"id": "bye", "say": "Thank you.", "action": "hang_up", "disposition": "done"},
    ],
}


class AtOnce(VirtualLoop):
    """What other threads do takes none of the clock's time."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def converse(*words: tuple[float, Pcm], over_s: float = 14.0) -> tuple[SessionResult, list[str]]:
    """A call of somebody who says each at its second and hangs up at `over_s`; what the agent said."""

    async def scene() -> SessionResult:
        leg = FakeLeg(words)
        leg.ends(over_s)
        stt = PocketSphinx()
        await stt.start()
        session = Session(
            leg=leg,
            agent=Script.from_settings(SCRIPT).join(AgentContext("call", "en", "", {})),
            stt=stt,
            tts=FakeTts(),
            settings=SETTINGS,
            phrases=await Phrases.prepare([FakeTts()], SETTINGS),
        )
        result = await session.run()
        await stt.close()
        return result

    with asyncio.Runner(loop_factory=AtOnce) as runner:
        result = runner.run(scene())
    return result, [entry.text for entry in result.transcript if entry.role is Role.AGENT]


def named(name: str) -> Pcm:
    """A word of the children's game, by another person."""
    (found,) = (each for each in said(LINE_HZ) if each.voice == PLAYER and each.text == name)
    return found.samples


def spoken(text: str) -> Pcm:
    return on_the_line(flite(text, "kal16"), RATE_HZ)


@pytest.mark.parametrize(
    "other", ["digits/11", "digits/2", "digits/0", "time", "digits/day-0", "digits/h-10", "extension"]
)
def test_another_word_of_a_recorded_person_fills_no_answer(other: str) -> None:
    # Without doubt, five of them were taken for names, with confidence 0.7 to 0.9.
    result, agent = converse((2.0, prompt(other)))
    assert result.report.answers == {}
    assert agent[0] == QUESTION
    assert agent[1] in {AGAIN, *(f"Did you say {name}?" for name in NAMES)}
    heard = [entry for entry in result.transcript if entry.role is Role.CALLER]
    assert all(entry.confidence < 0.5 for entry in heard)


def test_a_recorded_answer_in_doubt_is_taken_when_the_caller_says_yes() -> None:
    result, agent = converse((2.0, named("sign")), (7.0, spoken("yes please")))
    assert agent == [QUESTION, "Did you say sign?", "Thank you."]
    assert (result.report.answers, result.disposition) == ({"thing": "sign"}, "done")


def test_a_no_asks_again_and_an_answer_that_is_certain_is_taken_at_once() -> None:
    words = (2.0, named("sign")), (7.0, prompt("vm-no")), (12.0, named("umbrella"))
    result, agent = converse(*words, over_s=30)
    assert agent == [QUESTION, "Did you say sign?", QUESTION, "Thank you."]
    assert result.report.answers == {"thing": "umbrella"}


def test_who_is_silent_after_the_doubt_is_asked_again_and_has_answered_nothing() -> None:
    result, agent = converse((2.0, named("sign")), over_s=40)
    assert result.report.answers == {}
    assert agent[:3] == [QUESTION, "Did you say sign?", "Did you say sign?"]


def test_an_answer_in_doubt_over_the_question_is_asked_about_too() -> None:
    result, agent = converse((0.4, named("sign")), (7.0, spoken("yes please")))
    assert agent[-2:] == ["Did you say sign?", "Thank you."]
    assert result.report.answers == {"thing": "sign"}
