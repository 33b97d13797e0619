"""The language-model agent over real HTTP: servers that are busy, dead, slow or stalled; and what the
caller hears then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipeline.agent import Say, Trouble, UserSaid
from pipeline.agents.llm.agent import Llm
from pipeline.errors import EngineError
from pipeline.net.egress import EgressPolicy, egress_policy
from pipeline.result import EndReason, SessionResult
from pipeline.session.prompts import Phrases
from pipeline.session.session import Session
from pipeline.settings import SessionSettings
from pipeline.transcript import Role
from tests.support.http.chat import Call, FakeChat, Part, acts_of, context, serving_chat
from tests.support.http.llm import agent
from tests.support.speech.conversation import FakeLeg, FakeStt, FakeTts, voice

HELLO = UserSaid("hello", 0.9)


pytestmark = pytest.mark.usefixtures("at_home")


def made(base_url: str, **settings: Any) -> Llm:
    table = {"base_url": base_url, "model": "m", "prompt": "Be kind.", "api_key": "canary"}
    return Llm.from_settings({**table, **settings})


async def collect(llm: Llm, said: list[Any]) -> None:
    async for act in llm.join(context()).respond(HELLO):
        said.append(act)


@pytest.mark.parametrize("statuses", [[], [429], [500], [503], [503, 500]])
async def test_a_busy_server_is_asked_again(statuses: list[int]) -> None:
    async with serving_chat(FakeChat(["I am here."])) as server:
        server.statuses = list(statuses)
        llm = made(server.base_url)
        said = await acts_of(llm.join(context()), HELLO)
        assert [type(act) for act in said] == [Trouble] * len(statuses) + [Say]
        await llm.close()


@pytest.mark.parametrize(
    ("statuses", "answers", "before"),
    [
        ([500] * 9, [["never"]], 0),
        ([401], [["never"]], 0),
        ([], [[EngineError("cut", retryable=True)]] * 9, 0),
        ([], [["First this. Then ", 5.0, "never"]] * 2, 2),
        ([], [["First this. Then ", EngineError("cut", retryable=True)]] * 2, 2),
        ([], [[5.0, "never"], [5.0, "never"]], 0),
    ],
    ids=["broken", "refused", "cut", "stalled", "cut-later", "slow"],
)
async def test_a_server_that_fails_is_an_engines_error(
    statuses: list[int], answers: list[Sequence[Part]], before: int
) -> None:
    async with serving_chat(FakeChat(*answers)) as server:
        server.statuses = list(statuses)
        llm = made(server.base_url, timeout_s=0.6, stall_s=0.3)
        said: list[Any] = []
        with pytest.raises(EngineError) as caught:
            await collect(llm, said)
        await llm.close()
    assert [act for act in said if isinstance(act, Say)] == [Say("First this.")] * before
    assert "canary" not in str(caught.value)


async def test_a_server_that_is_not_there_is_an_engines_error() -> None:
    llm = made("http://127.0.0.1:9/v1", timeout_s=1)
    with pytest.raises(EngineError):
        await acts_of(llm.join(context()), HELLO)
    await llm.close()


async def test_a_server_behind_the_wall_is_not_reached() -> None:
    async with serving_chat(FakeChat(["never"])) as server:
        with egress_policy(EgressPolicy()):
            llm = made(server.base_url)
        with pytest.raises(EngineError):
            await acts_of(llm.join(context()), HELLO)
        await llm.close()
        assert server.chat.requests == []


PHRASES = SessionSettings()


async def call(chat: FakeChat, leg: FakeLeg, *says: str) -> SessionResult:
    """A caller who says "my order" to the agent that `chat` leads, or `says` something else."""
    return await Session(
        leg=leg,
        agent=agent(chat).join(context()),
        stt=FakeStt(*(says or ("my order",))),
        tts=FakeTts(),
        phrases=await Phrases.prepare([FakeTts()], SessionSettings()),
    ).run()


@pytest.mark.virtual_clock
async def test_a_caller_whose_model_breaks_off_hears_the_rest() -> None:
    cut = EngineError("cut", retryable=True)
    chat = FakeChat(["How can I help?"], ["It was sent on monday. It", 0.5, cut], [1.5, "It comes tomorrow."])
    leg = FakeLeg([(4.0, voice(1.0))])
    leg.ends(14.0)
    result = await call(chat, leg)
    assert result.reason is EndReason.FAR_END
    assert [fault.message for fault in result.faults] == ["cut"]
    spoken = [entry.text for entry in result.transcript if entry.role is Role.AGENT]
    assert spoken[-2:] == ["It was sent on monday.", "It comes tomorrow."]


@pytest.mark.virtual_clock
async def test_a_caller_whose_model_is_gone_hears_an_apology() -> None:
    gone = EngineError("model gone", retryable=True)
    chat = FakeChat(["How can I help you today?"], *[[gone]] * 100)
    leg = FakeLeg([(4.0, voice(1.0)), (18.0, voice(1.0)), (32.0, voice(1.0))])
    result = await call(chat, leg, "my order", "my order", "my order")
    assert result.reason is EndReason.ENGINE_ERROR
    assert max(leg.gaps()) < 9, "a filler, words, or the caller's turn"
    assert any("model gone" in fault.message for fault in result.faults if fault.role == "agent")
    spoken = [entry.text for entry in result.transcript if entry.role is Role.AGENT]
    assert spoken[0] == "How can I help you today?"
    assert [text for text in spoken[1:] if text != PHRASES.filler] == [
        PHRASES.retry, PHRASES.retry, PHRASES.apology,
    ]  # fmt: skip
    assert len([text for text in spoken if text == PHRASES.filler]) >= 3


@pytest.mark.virtual_clock
async def test_a_caller_whose_turn_failed_says_it_again_and_is_answered() -> None:
    refused = EngineError("no such key", retryable=False)
    chat = FakeChat(["How can I help?"], [refused], ["It comes tomorrow.", Call("hang_up")])
    leg = FakeLeg([(4.0, voice(1.0)), (11.0, voice(1.0))])
    result = await call(chat, leg, "my order", "where is my order")
    assert result.reason is EndReason.AGENT
    spoken = [entry.text for entry in result.transcript if entry.role is Role.AGENT]
    assert spoken == ["How can I help?", PHRASES.retry, "It comes tomorrow."]
    assert result.silences == ()
