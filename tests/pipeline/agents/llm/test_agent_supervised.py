"""A model whose call is supervised: it is told what a supervisor whispers, and what was said without it."""

from __future__ import annotations

from pipeline.agent import Advised, HandedBack, Say
from pipeline.transcript import Role, TranscriptEntry
from tests.pipeline.agents.llm.test_agent import joined, said
from tests.support.http.chat import FakeChat, acts_of

MEANWHILE = (
    TranscriptEntry(Role.CALLER, "is it free", 0, 900),
    TranscriptEntry(Role.COLLEAGUE, "yes for <b>you</b>", 1000, 1900),
)


async def test_a_whisper_is_an_instruction_from_the_next_answer_on() -> None:
    chat = FakeChat(["At nine."], ["On Saturday, too."], ["Goodbye."])
    conversation = joined(chat)
    assert isinstance(conversation, Advised)
    assert await acts_of(conversation, said("when")) == [Say("At nine.")]
    assert conversation.advise("Offer Saturday, too.")
    assert await acts_of(conversation, said("and else")) == [Say("On Saturday, too.")]
    assert await acts_of(conversation, said("thank you")) == [Say("Goodbye.")]
    before, *after = (request["messages"] for request in chat.requests)
    assert not any("Saturday" in message["content"] for message in before)
    for messages in after:
        assert "Offer Saturday, too." in messages[0]["content"]
        assert [message["role"] for message in messages].count("system") == 1


async def test_a_model_knows_what_was_said_while_a_person_had_the_call() -> None:
    chat = FakeChat(["We have rooms from"], ["Anything else?"])
    conversation = joined(chat)
    await acts_of(conversation, said("have you rooms"))
    back = HandedBack(MEANWHILE, heard="We have", interrupted=True)
    assert await acts_of(conversation, back) == [Say("Anything else?")]
    messages = chat.requests[-1]["messages"]
    assert '"colleague": "yes for' in messages[-1]["content"]
    assert "<b>" not in messages[-1]["content"]  # what callers say cannot end its own block
    assert not any("rooms from" in message["content"] for message in messages)  # nobody heard it
