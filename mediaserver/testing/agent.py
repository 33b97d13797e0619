"""What an agent must do (`pipeline.agent.Agent`).

Run by its author: `pytest --pyargs mediaserver.testing.agent --engine my:Agent --engine-options '{...}'`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from mediaserver.testing.fixtures import test_unknown_options_are_refused  # noqa: F401
from pipeline.agent import (
    AgentAct,
    AgentContext,
    AgentEvent,
    AgentReport,
    CallOpened,
    Conversation,
    Debriefing,
    HangUp,
    Say,
    Summarising,
    Transfer,
    TransferFailed,
    UserKeyed,
    UserSaid,
    UserSilent,
)
from pipeline.engines.aio import CLOSE_LIMIT_S, closing
from pipeline.transcript import Role, TranscriptEntry

pytest_plugins = ("mediaserver.testing.fixtures",)
InEngine = Callable[..., Any]
ANSWER_S = 10.0
"""Longest wait for all acts of an answer."""


def _context(language: str, number: int = 0) -> AgentContext:
    return AgentContext(call_id=f"call-{number}", language=language, greeting="", variables={"name": "Mary"})


async def _acts(conversation: Conversation, event: AgentEvent) -> list[AgentAct]:
    """The acts of an answer: known ones, and none after the end of the call."""
    acts: list[AgentAct] = []
    async with asyncio.timeout(ANSWER_S), closing(conversation.respond(event)) as answer:
        async for act in answer:
            assert isinstance(act, AgentAct), f"{act!r} is no act"
            ended = [each for each in acts if isinstance(each, HangUp | Transfer)]
            assert not ended, f"{act!r} comes after {ended[0]!r}, and is never carried out"
            acts.append(act)
    for act in acts:
        if isinstance(act, Say):
            assert isinstance(act.text, str)
    return acts


async def _close(answer: AsyncIterator[AgentAct]) -> None:
    """Closes an answer within the time that the session gives it."""
    aclose: Any = getattr(answer, "aclose", None)
    if aclose is not None:
        await asyncio.wait_for(aclose(), CLOSE_LIMIT_S)


def _ended(acts: Sequence[AgentAct]) -> bool:
    return any(isinstance(act, HangUp | Transfer) for act in acts)


def test_a_caller_is_spoken_to(in_engine: InEngine, engine_says: str, engine_language: str) -> None:
    """No dead air: the call's beginning or the caller's first words are answered with words."""

    async def use(engine: Any) -> None:
        conversation = engine.join(_context(engine_language))
        acts = await _acts(conversation, CallOpened())
        if not _ended(acts):
            acts += await _acts(conversation, UserSaid(engine_says, 0.9))
        assert [act.text for act in acts if isinstance(act, Say) and act.text.strip()]

    in_engine(use)


def test_every_event_is_taken(in_engine: InEngine, engine_says: str, engine_language: str) -> None:
    """Words, words that were not understood, keys, silence, a failed transfer: as answers to the greeting."""
    events: tuple[AgentEvent, ...] = (
        UserSaid(engine_says, 0.9),
        UserSaid("", 0.0),
        UserSaid(engine_says, 0.3, doubtful=True),
        UserSaid(engine_says, 0.9, keyed="1"),
        UserSaid("\N{ARABIC LETTER NOON}\N{ARABIC LETTER AIN}\N{ARABIC LETTER MEEM}", 0.9),
        UserSaid("word " * 800, 0.9),
        UserKeyed("12#"),
        UserKeyed(""),
        UserSilent(1),
        UserSilent(2),
        TransferFailed("+15550100", "busy"),
    )

    async def use(engine: Any) -> None:
        for number, event in enumerate(events):
            conversation = engine.join(_context(engine_language, number))
            if not _ended(await _acts(conversation, CallOpened())):
                await _acts(conversation, event)
        conversation = engine.join(_context(engine_language))
        await _acts(conversation, TransferFailed("+15550100", "no_answer"))

    in_engine(use)


def test_a_caller_who_interrupts_is_answered(
    in_engine: InEngine, engine_says: str, engine_language: str
) -> None:
    """The iterator of an answer is closed after its first act; the next event tells what was heard of it."""

    async def use(engine: Any) -> None:
        conversation = engine.join(_context(engine_language))
        answer = conversation.respond(CallOpened())
        await asyncio.wait_for(anext(answer, None), ANSWER_S)
        await _close(answer)
        await _acts(conversation, UserSaid(engine_says, 0.9, heard="", interrupted=True))

    in_engine(use)


def test_an_answer_that_was_asked_for_too_early_is_taken_back(
    in_engine: InEngine, engine_says: str, engine_language: str
) -> None:
    """The caller went on: the turn that was presumed to be over never is, and the next event has its words
    too."""

    async def use(engine: Any) -> None:
        conversation = engine.join(_context(engine_language))
        if _ended(await _acts(conversation, CallOpened())):
            return
        never = asyncio.Event()

        async def settled() -> None:
            await never.wait()

        answer = conversation.respond(UserSaid(engine_says, 0.9, settled=settled))
        asking = asyncio.create_task(anext(answer, None))
        await asyncio.wait((asking,), timeout=ANSWER_S)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await _close(answer)
        await _acts(conversation, UserSaid(f"{engine_says} {engine_says}", 0.9, continues=True))

    in_engine(use)


def test_two_calls_do_not_mix(in_engine: InEngine, engine_says: str, engine_language: str) -> None:
    """One agent has all calls of the process: what a caller says changes nothing in another's call."""

    async def use(engine: Any) -> None:
        alone = engine.join(_context(engine_language, 1))
        expected = await _kinds(alone, CallOpened())
        first, second = (engine.join(_context(engine_language, number)) for number in (2, 3))
        if not _ended(await _acts(first, CallOpened())):
            await _acts(first, UserSaid(engine_says, 0.9))
        assert await _kinds(second, CallOpened()) == expected

    in_engine(use)


async def _kinds(conversation: Conversation, event: AgentEvent) -> list[str]:
    return [type(act).__name__ for act in await _acts(conversation, event)]


def test_a_report_may_be_asked_for_at_any_time(
    in_engine: InEngine, engine_says: str, engine_language: str
) -> None:
    """Before the first event, in an answer, after the call; its fields become JSON."""

    async def use(engine: Any) -> None:
        conversation = engine.join(_context(engine_language))
        _check(conversation.report())
        answer = conversation.respond(CallOpened())
        await asyncio.wait_for(anext(answer, None), ANSWER_S)
        _check(conversation.report())
        await _close(answer)
        await _acts(conversation, UserSaid(engine_says, 0.9))
        _check(conversation.report())

    in_engine(use)


def _check(report: AgentReport) -> None:
    assert isinstance(report, AgentReport)
    json.dumps([dict(report.answers), dict(report.extracted), report.disposition, report.summary])
    assert report.reached_goal in (None, True, False)


def test_the_whole_call_is_looked_at_afterwards(
    in_engine: InEngine, engine_says: str, engine_language: str
) -> None:
    """Of conversations with `debrief` or `summarise`."""
    transcript = (
        TranscriptEntry(Role.AGENT, "hello", 0, 500),
        TranscriptEntry(Role.CALLER, engine_says, 1000, 2000),
    )

    async def use(engine: Any) -> None:
        for entries in ((), transcript):
            conversation = engine.join(_context(engine_language))
            await _acts(conversation, CallOpened())
            if isinstance(conversation, Summarising):
                assert isinstance(await conversation.summarise(entries), str)
            if isinstance(conversation, Debriefing):
                _check(await conversation.debrief(entries))

    in_engine(use)
