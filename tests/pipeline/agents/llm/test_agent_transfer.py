"""A model whose transfer failed, and what it tells the colleague before."""

from __future__ import annotations

import pytest

from pipeline.agent import Say, Summarising, Transfer, TransferFailed
from pipeline.errors import EngineError
from pipeline.transcript import Role, TranscriptEntry
from tests.pipeline.agents.llm.test_agent import joined, said
from tests.support.http.chat import Call, FakeChat, acts_of

LINES = [TranscriptEntry(Role.CALLER, "where is order forty two", 0, 900)]


async def test_a_model_is_told_why_the_caller_is_back() -> None:
    chat = FakeChat(["One moment.", Call("transfer", {"target": "sales"})], ["They are busy."])
    conversation = joined(chat, transfer_targets=["sales"])
    assert await acts_of(conversation, said("sales please")) == [Say("One moment."), Transfer("sales")]
    assert await acts_of(conversation, TransferFailed("sales", "busy")) == [Say("They are busy.")]
    assert "The transfer to sales failed: busy" in chat.last[-1]["content"]
    assert conversation.report().disposition != "transferred"


async def test_a_model_sums_the_call_up_for_a_colleague() -> None:
    chat = FakeChat(forms=["<think>hm</think> Sara asks for order 42.", EngineError("no", retryable=True)])
    conversation = joined(chat)
    assert isinstance(conversation, Summarising)
    assert await conversation.summarise(LINES) == "Sara asks for order 42."
    messages = chat.requests[0]["messages"]
    assert "order forty two" in messages[1]["content"]
    assert "order forty two" not in messages[0]["content"]  # callers' words are data
    with pytest.raises(EngineError):
        await conversation.summarise(LINES)
