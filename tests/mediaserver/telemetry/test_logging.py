"""Whatever breaks, and whatever its exception says: a caller's words and number are in no log line."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mediaserver.errors import StoreUnavailable
from mediaserver.telemetry import logging as logs
from pipeline.agent import HangUp, Say
from pipeline.errors import EngineError
from pipeline.session.session import Session
from tests.support.http.chat import FakeChat, context
from tests.support.http.llm import agent as llm_agent
from tests.support.speech.conversation import FakeAgent, FakeLeg, FakeStt, FakeTts, play

WORDS = "my password is hunter2"
NUMBER = "+14155550123"
SECRET = f"{WORDS}, call {NUMBER}"


@pytest.fixture(params=["json", "plain"])
def lines(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Everything logged until now, as the server writes it."""
    stream = io.StringIO()
    sink = logging.StreamHandler(stream)
    sink.setFormatter(logs.JsonLines() if request.param == "json" else logs.PlainLines())
    logging.getLogger().addHandler(sink)
    yield stream.getvalue
    logging.getLogger().removeHandler(sink)


def logged(error: BaseException) -> None:
    try:
        raise error
    except BaseException:
        logging.getLogger("test").exception("it broke")


def chained() -> Exception:
    try:
        raise KeyError(SECRET)
    except KeyError as cause:
        try:
            raise ValueError(SECRET) from cause
        except ValueError as error:
            error.add_note(SECRET)
            return error


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (ValueError(SECRET), ["ValueError"]),
        (UnicodeEncodeError("utf-8", SECRET, 0, 1, SECRET), ["UnicodeEncodeError"]),
        (chained(), ["KeyError", "ValueError"]),
        (ExceptionGroup(SECRET, [TypeError(SECRET), chained()]), ["ExceptionGroup", "TypeError", "KeyError"]),
        (FileNotFoundError(2, "gone", SECRET), ["FileNotFoundError: No such file or directory"]),
    ],
)
def test_an_exception_is_told_by_place_and_kind(
    lines: Callable[[], str], error: BaseException, kinds: list[str]
) -> None:
    logged(error)
    text = lines()
    assert all(kind in text for kind in kinds)
    assert "test_logging.py" in text
    assert "in logged" in text
    assert "hunter2" not in text
    assert NUMBER not in text


@pytest.mark.parametrize(
    "error", [EngineError("tts.example answered 500", retryable=True), StoreUnavailable("full")]
)
def test_reasons_of_our_own_are_told(lines: Callable[[], str], error: Exception) -> None:
    logged(error)
    assert str(error) in lines()


def test_a_recursion_is_told_shortly(lines: Callable[[], str]) -> None:
    def down(depth: int) -> int:
        return up(depth) + 1

    def up(depth: int) -> int:
        return down(depth) + 1

    try:
        down(0)
    except RecursionError as error:
        logged(error)
    assert len(lines()) < 20_000


def test_numbers_in_reasons_are_masked(lines: Callable[[], str]) -> None:
    logging.getLogger("test").warning("not placed", extra={"reason": f"{NUMBER} is no number"})
    assert NUMBER not in lines()
    assert "…23 is no number" in lines()


def test_what_nobody_handled_is_told_without_its_arguments(lines: Callable[[], str]) -> None:
    def callback(text: str) -> None:
        raise ValueError(text)

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(logs.unhandled)
        loop.call_soon(callback, SECRET)
        task = asyncio.create_task(asyncio.to_thread(callback, SECRET), name="lost")
        await asyncio.wait([task])
        del task
        loop.call_exception_handler({"message": SECRET, "handle": SECRET})
        await asyncio.sleep(0)

    asyncio.run(scene())
    text = lines()
    assert text.count("unhandled exception") == 2
    assert "lost" in text
    assert "event loop complains" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("how", ["agent", "report", "model"])
def test_a_call_that_breaks_keeps_its_words_to_itself(lines: Callable[[], str], how: str) -> None:
    async def scene() -> Any:
        leg = FakeLeg()
        leg.ends(10)
        if how == "model":
            agent: Any = llm_agent(FakeChat(["Hello."], [ValueError(SECRET)])).join(context())
        else:
            agent = FakeAgent([Say("Hello.")], [ValueError(SECRET) if how == "agent" else HangUp()])
        if how == "report":
            agent.report = lambda: int(SECRET)
        session = Session(leg=leg, agent=agent, stt=FakeStt(), tts=FakeTts())
        loop = asyncio.get_running_loop()
        loop.call_at(loop.time() + 3, session.write, f"{SECRET} \ud83d")
        return await session.run()

    result = play(scene)
    assert result.faults
    for text in (lines(), repr(result.faults)):
        assert "hunter2" not in text
        assert NUMBER not in text


def test_lines_stay_lines(lines: Callable[[], str]) -> None:
    logged(ValueError(SECRET))
    if lines().startswith("{"):
        (line,) = lines().splitlines()
        assert json.loads(line)["error"].endswith("ValueError")
