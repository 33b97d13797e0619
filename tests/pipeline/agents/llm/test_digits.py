"""Numbers that a language-model agent asks for: put together for it, and kept from it under a mask."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict
from typing import Any

import pytest

from pipeline.agent import Expect, Say, UserKeyed, UserSaid, UserSilent
from pipeline.agents.llm.conversation import DOUBTFUL, LlmConversation
from pipeline.agents.llm.settings import read_settings
from pipeline.errors import SettingsRefused
from pipeline.speech import Expected
from pipeline.text.redaction import MASK
from tests.support.http.chat import Call, FakeChat, Part, acts_of, context
from tests.support.http.llm import BASE, FakeWeb, agent, words
from tests.support.speech.conversation import FakeStt, Watching, converse, voice

DIGITS = "4111222233334444"
SPOKEN = "four one one one two two two two three three three three four four four four"
CARD = {"name": "card", "description": "the number of their card", "digits": 16, "mask": True}
ORDER = {"name": "order", "description": "the order's number", "terminator": "*", "key_timeout_s": 4.0}
PAY = {
    "name": "pay",
    "description": "Pay.",
    "url": "https://billing.example/payments",
    "fixed": {"card": "{{card}}", "who": "{{name}}"},
}
ASK_CARD = Call("ask_digits", {"name": "card", "question": "What is your card number?"})
ASK_ORDER = Call("ask_digits", {"name": "order", "question": "Which order?"})


def said(text: str, **more: Any) -> UserSaid:
    return UserSaid(text, 0.9, **more)


def expected(rest: int = 16) -> Expect:
    return Expect(Expected(kinds=("digits",), digits=rest), masked=True)


async def asked(
    *answers: list[Part], web: FakeWeb | None = None, **settings: Any
) -> tuple[LlmConversation, FakeChat]:
    """A conversation in which the caller has just been asked."""
    chat = FakeChat(["Of course.", ASK_CARD], *answers)
    settings = {"ask": [CARD, ORDER], "tool": [PAY]} | settings
    conversation = agent(chat, web, **settings).join(context())
    await acts_of(conversation, said("i want to pay"))
    return conversation, chat


def told(chat: FakeChat) -> str:
    """Everything that has left for the model."""
    return json.dumps(chat.requests)


# One question -----------------------------------------------------------------------------------------------


async def test_the_caller_is_asked_in_the_models_words_under_the_configurations_mask() -> None:
    chat = FakeChat(["Of course.", ASK_CARD])
    conversation = agent(chat, ask=[CARD]).join(context())
    acts = await acts_of(conversation, said("i want to pay"))
    assert acts == [Say("Of course."), expected(), Say("What is your card number?")]


@pytest.mark.parametrize("event", [UserKeyed(DIGITS), said(SPOKEN), said(f"it is {DIGITS[:8]} {DIGITS[8:]}")])
async def test_the_model_is_told_that_a_masked_number_is_there_and_a_tool_gets_it(event: Any) -> None:
    web = FakeWeb(body=f'{{"paid with": "{DIGITS}", "as": "4111 2222-3333 4444"}}'.encode())
    conversation, chat = await asked([Call("pay")], ["Paid."], web=web)
    assert words(await acts_of(conversation, event)) == "Paid."
    assert json.loads(web.asked[0][3] or b"") == {"card": DIGITS, "who": "Sara"}
    assert {"role": "user", "content": "[The caller gave card. It ends in 4444.]"} in chat.last
    result = json.loads(
        next(each["content"] for each in chat.last if each["role"] == "tool" and "paid" in each["content"])
    )
    assert json.loads(result["result"]) == {"paid with": MASK, "as": MASK}
    for secret in (DIGITS, "4111", "four one"):
        assert secret not in told(chat)
    assert conversation.report().answers == {"card": MASK}


@pytest.mark.parametrize("status", [200, 422])
async def test_no_half_of_a_number_is_left_where_a_tools_answer_is_cut(status: int) -> None:
    web = FakeWeb(status=status, body=f"{DIGITS}  ".encode() * 1000)
    conversation, chat = await asked([Call("pay")], ["Paid."], web=web)
    await acts_of(conversation, said(SPOKEN))
    assert "4111" not in told(chat)
    assert max(len(str(each["content"])) for each in chat.last if each["role"] == "tool") < 10_000


async def test_a_short_masked_number_shows_nothing_of_itself() -> None:
    pin = {"name": "pin", "description": "their pin", "digits": 4, "mask": True}
    ask = Call("ask_digits", {"name": "pin", "question": "Your pin?"})
    chat = FakeChat([ask], ["Thanks."])
    conversation = agent(chat, ask=[pin]).join(context())
    await acts_of(conversation, said("hello"))
    await acts_of(conversation, UserKeyed("9876"))
    assert chat.last[-1]["content"] == "[The caller gave pin.]"
    assert "9876" not in told(chat)


async def test_parts_are_put_together_without_the_model() -> None:
    conversation, chat = await asked(["Thank you."])
    acts = await acts_of(conversation, said("four one one one two two two"))
    assert acts == [expected(9), Say("Go on, please.")]
    assert await acts_of(conversation, said("no two three")) == [expected(9), Say("Go on, please.")]
    assert len(chat.requests) == 1
    assert words(await acts_of(conversation, UserKeyed("333344445"))) == "Thank you."
    assert "It ends in 4445." in chat.last[-1]["content"]
    assert "four one" not in told(chat)


async def test_a_number_may_be_keyed_in_part_and_its_rest_said() -> None:
    conversation, chat = await asked(["Thank you."])
    rest = "two two two two three three three three four four four four"
    assert words(await acts_of(conversation, said(rest, keyed="4111"))) == "Thank you."
    assert "It ends in 4444." in chat.last[-1]["content"]
    assert "4111" not in told(chat)


async def test_keys_before_words_that_are_no_number_are_a_part_and_shown_to_nobody() -> None:
    conversation, chat = await asked(["Thank you."])
    acts = await acts_of(conversation, said("can i say it", keyed="4111"))
    assert acts == [expected(12), Say("Go on, please.")]
    await acts_of(conversation, said(SPOKEN))
    assert "It ends in 4444." in chat.last[-1]["content"]
    assert "4111" not in told(chat)


async def test_a_model_that_asked_for_no_number_is_told_of_keys_and_words() -> None:
    chat = FakeChat(["Pardon?"])
    await acts_of(agent(chat).join(context()), said("can you hear me", keyed="41"))
    assert chat.last[-1]["content"].endswith("\n[The caller pressed the keys 41.] can you hear me")


async def test_a_half_answer_that_goes_on_is_read_once() -> None:
    conversation, chat = await asked(["Thank you."])
    half = said("four one one one two two two two", settled=asyncio.Event().wait)
    await acts_of(conversation, half, most=1)
    await acts_of(conversation, said(SPOKEN, continues=True))
    assert "It ends in 4444." in chat.last[-1]["content"]


async def test_a_whole_answer_that_goes_on_is_not_kept() -> None:
    conversation, chat = await asked(["Thank you."], ["Sorry?"], [Call("pay")], ["No."])
    await acts_of(conversation, said(SPOKEN, settled=asyncio.Event().wait), most=1)
    await acts_of(conversation, said(f"{SPOKEN} five", continues=True))
    assert chat.last[-1]["content"] == "[The caller gave something else than card.]"
    assert conversation.report().answers == {}


# What is no answer ------------------------------------------------------------------------------------------


async def test_other_words_reach_the_model_and_leave_the_mask_on() -> None:
    conversation, chat = await asked(
        ["Take your time."], ["It is on the front."], ["Are you there?"], ["Thanks."]
    )
    assert await acts_of(conversation, said("one moment please")) == [expected(), Say("Take your time.")]
    assert chat.last[-1]["content"] == "one moment please"
    assert (await acts_of(conversation, said("where does it stand")))[0] == expected()
    assert (await acts_of(conversation, UserSilent(1)))[0] == expected()
    await acts_of(conversation, said(SPOKEN))
    assert "It ends in 4444." in chat.last[-1]["content"]


@pytest.mark.parametrize(
    "event", [UserKeyed("41112222333344445"), UserKeyed("4*111"), said(f"{SPOKEN} five"), said("أربعة واحد")]
)
async def test_digits_that_are_not_the_number_are_kept_from_the_model(event: Any) -> None:
    conversation, chat = await asked(["Once more, please."], languages=["en", "ar"])
    await acts_of(conversation, event)
    assert chat.last[-1]["content"] == "[The caller gave something else than card.]"
    assert DIGITS not in told(chat)


async def test_of_a_language_without_lists_no_word_gets_past_the_mask() -> None:
    chat = FakeChat([ASK_CARD], ["Pardon ?"])
    conversation = agent(chat, ask=[CARD]).join(context(language="fr"))
    await acts_of(conversation, said("je veux payer"))
    await acts_of(conversation, said("quatre un un un"))
    assert "quatre" not in told(chat)


async def test_a_number_that_does_not_come_is_not_waited_for_for_ever() -> None:
    conversation, chat = await asked()
    for _ in range(3):
        assert (await acts_of(conversation, said("i do not know")))[0] == expected()
    assert not [act for act in await acts_of(conversation, said("no idea")) if isinstance(act, Expect)]
    assert chat.last[-1]["content"] == "no idea [The caller has not given card.]"


async def test_a_tool_that_needs_the_number_waits_for_it() -> None:
    web = FakeWeb()
    conversation, chat = await asked([Call("pay")], ["Please tell me."], web=web)
    await acts_of(conversation, said("just pay"))
    assert web.asked == []
    assert "ask_digits: card" in json.dumps(chat.last)


async def test_a_model_can_ask_for_nothing_that_is_not_configured() -> None:
    chat = FakeChat([Call("ask_digits", {"name": "password", "question": "?"})], ["Sorry."])
    assert await acts_of(agent(chat, ask=[CARD]).join(context()), said("hi")) == [Say("Sorry.")]
    chat = FakeChat([ASK_CARD], ["Sorry."])
    assert await acts_of(agent(chat).join(context()), said("hi")) == [Say("Sorry.")]


# What is doubtful -------------------------------------------------------------------------------------------


async def test_a_doubtful_part_of_a_number_does_not_make_the_whole() -> None:
    order = {"name": "order", "description": "the order's number", "digits": 6}
    chat = FakeChat([ASK_ORDER], ["Did you say four two seven?"], ["Thanks."])
    conversation = agent(chat, ask=[order]).join(context())
    await acts_of(conversation, said("my order"))
    acts = await acts_of(conversation, said("four two seven", doubtful=True))
    assert words(acts) == "Did you say four two seven?"
    assert chat.last[-1]["content"] == f"four two seven {DOUBTFUL}"
    assert words(await acts_of(conversation, said("one two three"))) == "Go on, please."
    assert conversation.report().answers == {}
    assert words(await acts_of(conversation, said("four five six"))) == "Thanks."
    assert conversation.report().answers == {"order": "123456"}


async def test_a_doubtful_number_is_on_no_record_until_it_is_given_for_certain() -> None:
    chat = FakeChat([ASK_ORDER], ["Did you say that?"], ["Which, then?"], ["Thanks."])
    conversation = agent(chat, ask=[ORDER]).join(context())
    await acts_of(conversation, said("my order"))
    await acts_of(conversation, said("two hundred and seven", doubtful=True))
    assert chat.last[-1]["content"] == f"two hundred and seven {DOUBTFUL}"
    assert conversation.report().answers == {}
    await acts_of(conversation, said("no"))
    assert conversation.report().answers == {}
    await acts_of(conversation, UserKeyed("208"))
    assert conversation.report().answers == {"order": "208"}


@pytest.mark.parametrize("keyed", ["", "4111"])
async def test_a_doubtful_masked_number_is_asked_for_again_and_shown_to_nobody(keyed: str) -> None:
    conversation, chat = await asked(["Once more, please."], ["Thank you."])
    rest = SPOKEN.removeprefix("four one one one ") if keyed else SPOKEN
    acts = await acts_of(conversation, said(rest, keyed=keyed, doubtful=True))
    assert acts == [expected(), Say("Once more, please.")]
    assert chat.last[-1]["content"] == "[The caller gave something else than card.]"
    assert conversation.report().answers == {}
    await acts_of(conversation, said(SPOKEN))
    assert "It ends in 4444." in chat.last[-1]["content"]
    assert "4111" not in told(chat)


async def test_keys_that_make_the_number_count_whatever_doubtful_words_follow() -> None:
    conversation, chat = await asked(["Thank you."])
    await acts_of(conversation, said("there", keyed=DIGITS, doubtful=True))
    assert chat.last[-1]["content"] == "[The caller gave card. It ends in 4444.]"
    assert conversation.report().answers == {"card": MASK}


# Without a mask ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "content"),
    [
        (UserKeyed("207"), "[The caller pressed the keys 207.] [order: 207]"),
        (said("it's two hundred and seven"), "it's two hundred and seven [order: 207]"),
    ],
)
async def test_a_number_without_a_mask_is_told_and_on_the_record(event: Any, content: str) -> None:
    chat = FakeChat([ASK_ORDER], ["Thanks."])
    conversation = agent(chat, ask=[ORDER]).join(context())
    acts = await acts_of(conversation, said("my order"))
    assert acts[0] == Expect(Expected(kinds=("digits",), terminator="*", key_timeout_s=4.0))
    assert await acts_of(conversation, event) == [Say("Thanks.")]
    assert chat.last[-1]["content"] == content
    assert conversation.report().answers == {"order": "207"}


# In a conversation ------------------------------------------------------------------------------------------


def logged(record: logging.LogRecord) -> dict[str, object]:
    """What a record says. Its times, thread and process are figures of their own, and may hold any digits."""
    chance = ("created", "msecs", "relativeCreated", "thread", "process")
    return {name: value for name, value in record.__dict__.items() if name not in chance}


@pytest.mark.parametrize("keyed", [False, True])
def test_nobody_but_the_tool_sees_a_masked_number(keyed: bool, caplog: pytest.LogCaptureFixture) -> None:
    chat = FakeChat([ASK_CARD], [Call("pay")], ["Paid. Goodbye.", Call("hang_up")])
    web, seen = FakeWeb(), Watching()
    caplog.set_level("DEBUG")

    result, _ = converse(
        agent(chat, web, ask=[CARD], tool=[PAY]).join(context(greeting="Hello.")),
        says=[(1.5, voice(0.6)), *([] if keyed else [(6.0, voice(2.0))])],
        keys=[(6.0, DIGITS)] if keyed else [],
        stt=FakeStt("i want to pay", SPOKEN),
        observer=seen,
    )
    assert json.loads(web.asked[0][3] or b"")["card"] == DIGITS
    everything = repr(
        (asdict(result), seen.entries, seen.turns, chat.requests, [logged(each) for each in caplog.records])
    )
    for secret in (DIGITS, "4111", "four one"):
        assert secret not in everything
    assert [turn.keyed if keyed else turn.user_text for turn in result.turns][-1] == MASK
    assert result.report.answers == {"card": MASK}


# Settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"ask": [{**CARD, "digits": 65}]}, "ask[0].digits"),
        ({"ask": [{**CARD, "terminator": "5"}]}, "ask[0].terminator"),
        ({"ask": [{**CARD, "name": "card number"}]}, "ask[0].name"),
        ({"ask": [{**CARD, "strange": 1}]}, "ask[0].strange"),
        ({"ask": [CARD, CARD]}, "ask"),
        ({"ask": [CARD], "builtin": ["hang_up"]}, "ask"),
        ({"ask": [CARD], "tool": [{**PAY, "method": "GET"}]}, "tool[0].fixed"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        read_settings({**BASE, **change})
    assert key in [name for name, _ in caught.value.problems]
