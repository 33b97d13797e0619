"""Engines and agents that raise what nobody foresaw: others take over, and what was said stays private."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from pipeline.agent import HangUp, Say
from pipeline.agents.llm.attempt import ChatModel
from pipeline.agents.llm.chat import Chat, ChatSettings
from pipeline.engines.guard import Guard, GuardedVoice
from pipeline.errors import EngineError, boundary
from pipeline.result import EndReason
from pipeline.session.prompts import Phrases
from pipeline.settings import SessionSettings
from pipeline.speech import Expected, SpeechChunk
from pipeline.stt.fallback import FallbackRecognizer, GuardedRecognizer
from pipeline.text.prompts import Phrase
from pipeline.transcript import Role
from tests.support.speech.conversation import (
    FakeAgent,
    FakeListening,
    FakeStt,
    FakeTts,
    converse,
    play,
    texts,
    voice,
)

SECRET = "my password is hunter2, call +14155550123"


class Raising(FakeListening):
    """Raises what no recogniser should, where `at` says."""

    at = ""

    def push(self, samples: Any) -> None:
        super().push(samples)
        self._do("push")

    def partial(self) -> str:
        self._do("partial")
        return ""

    async def result(self) -> Any:
        self._do("result")
        return await super().result()

    def close(self) -> None:
        super().close()
        self._do("close")

    def _do(self, what: str) -> None:
        if what == self.at or (self.at == "close" and what == "result"):
            raise RecursionError(SECRET)


class BrokenStt(FakeStt):
    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def listen(self, *, rate_hz: int, language: str, expected: Expected | None) -> FakeListening:
        if self.at == "listen":
            raise KeyError(SECRET)
        made = Raising(self, expected)
        made.at = self.at
        self.listenings.append(made)
        return made


class BrokenTts(FakeTts):
    """Raises a foreign exception at its third word; `at_once`: before there is anything to iterate over."""

    def __init__(self, *, at_once: bool = False) -> None:
        super().__init__()
        self.at_once = at_once

    def speak(self, text: str, *, language: str) -> AsyncIterator[SpeechChunk]:
        if self.at_once:
            raise UnicodeError(SECRET)
        return self._words(text, language)

    async def _words(self, text: str, language: str) -> AsyncIterator[SpeechChunk]:
        left = 2
        async for chunk in super().speak(text, language=language):
            if not left:
                raise LookupError(SECRET)
            left -= 1
            yield chunk


@pytest.mark.parametrize("at", ["listen", "push", "partial", "result", "close"])
def test_a_recogniser_that_breaks_loses_no_word(at: str, caplog: pytest.LogCaptureFixture) -> None:
    broken, alive = Guard("stt", "broken"), FakeStt("on monday")
    chain = FallbackRecognizer(
        [GuardedRecognizer(BrokenStt(at), broken), GuardedRecognizer(alive, Guard("stt", "alive"))]
    )
    agent = FakeAgent([Say("When?")], [Say("thank you"), HangUp()])
    result, _ = converse(agent, stt=chain, says=[(3.0, voice(0.8))], call_id="call-1")
    assert texts(result, Role.CALLER) == ["on monday"]
    assert alive.listenings[0].samples >= 0.8 * 8000
    assert broken.health.errors == 1
    assert result.reason is EndReason.AGENT
    calls = [getattr(each, "call_id", "") for each in caplog.records if each.message == "engine broke"]
    assert calls == ["call-1"] * (2 if at == "close" else 1)  # `Raising` breaks at two places for "close"


def test_a_recogniser_that_breaks_again_and_again_is_left_alone() -> None:
    broken, alive = Guard("stt", "broken"), FakeStt(*["yes"] * 6)
    chain = FallbackRecognizer(
        [GuardedRecognizer(BrokenStt("result"), broken), GuardedRecognizer(alive, Guard("stt", "alive"))]
    )
    agent = FakeAgent(*[[Say("Well?")]] * 6, [Say("thank you"), HangUp()])
    converse(agent, stt=chain, says=[(3.0 + 3 * n, voice(0.8)) for n in range(6)])
    assert 3 <= broken.health.errors < 6


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("guarded", [True, False])
def test_a_voice_that_breaks_is_replaced_at_the_word(at_once: bool, guarded: bool) -> None:
    first: Any = BrokenTts(at_once=at_once)
    guard, second = Guard("tts", "first"), FakeTts()
    voice_of_call = GuardedVoice(first, guard, last=False) if guarded else first
    agent = FakeAgent([Say("one two three four five six"), HangUp()])
    result, _ = converse(agent, tts=voice_of_call, fallback_tts=[second])
    assert texts(result, Role.AGENT) == ["one two three four five six"]
    assert result.reason is EndReason.AGENT
    assert second.asked == (["one two three four five six"] if at_once else ["five six"])
    assert guard.health.errors == (2 if guarded else 0)


def test_phrases_are_prepared_by_the_next_voice() -> None:
    phrases = play(lambda: Phrases.prepare([BrokenTts(at_once=True), FakeTts()], SessionSettings()))
    assert phrases.at(Phrase.GOODBYE, 16000).text == "Goodbye."


class Model:
    """A chat endpoint whose first answers are the exceptions given."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)

    async def stream_sse(self, path: str, body: Any, **_: Any) -> AsyncIterator[str]:
        if self.failures:
            raise self.failures.pop(0)
        yield '{"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]}'


@pytest.mark.parametrize("failures", [1, 3, 50])
def test_a_model_that_breaks_is_asked_again(failures: int) -> None:
    faults: list[str] = []

    async def note(reason: str) -> None:
        faults.append(reason)

    async def scene() -> str:
        model = cast(Any, Model(*[TypeError(SECRET)] * failures))
        chat = Chat([ChatModel("any", model, Guard("llm", "the model"))], ChatSettings())
        return "".join([str(part) async for part in chat.stream([], on_fault=note)])

    if failures < 50:
        assert play(scene) == "Hello."
    else:
        with pytest.raises(EngineError, match="TypeError"):
            play(scene)
    assert faults == ["the model broke (TypeError)"]


# What is told of it -----------------------------------------------------------------------------------------


def test_of_a_foreign_exception_nothing_but_its_kind_is_on_the_record() -> None:
    broken = FallbackRecognizer([GuardedRecognizer(BrokenStt("result"), Guard("stt", "ears"))])
    agent = FakeAgent([Say("what may it be then")], [ValueError(SECRET)])
    agent.report = cast(Any, lambda: int(SECRET))  # type: ignore[method-assign]
    result, _ = converse(
        agent, stt=broken, tts=BrokenTts(), fallback_tts=[FakeTts()], says=[(3.0, voice(0.8))]
    )
    kinds = {fault.message.partition("(")[2].rstrip(")") for fault in result.faults}
    assert {"RecursionError", "LookupError", "ValueError"} <= kinds
    assert "hunter2" not in repr(result)


def test_a_recogniser_without_a_guard_is_contained_too() -> None:
    agent = FakeAgent([Say("Well?")], [Say("again?")])
    result, _ = converse(agent, says=[(2.0, voice(0.8))], ends_s=12, stt=BrokenStt("result"))
    assert "hunter2" not in repr(result)
    assert "stt" in {fault.role for fault in result.faults}


def test_a_boundary_logs_once_in_the_name_of_its_user_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("a.task")
    with boundary(log, "task failed", call_id="call-7") as failure:
        raise LookupError(SECRET)
    assert (failure.kind, str(failure.error)) == ("LookupError", SECRET)
    (record,) = caplog.records
    assert (record.name, record.message, record.__dict__["call_id"]) == ("a.task", "task failed", "call-7")
    assert (record.exc_info or (None,))[0] is LookupError
    assert record.pathname == __file__


def test_a_boundary_lets_a_cancelled_task_end() -> None:
    with pytest.raises(asyncio.CancelledError), boundary(logging.getLogger("a.task"), "task failed"):
        raise asyncio.CancelledError
    with boundary(logging.getLogger("a.task"), "task failed") as failure:
        pass
    assert (failure.kind, failure.error) == ("", None)
