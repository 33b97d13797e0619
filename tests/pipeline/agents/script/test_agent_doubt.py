"""Answers that the recogniser doubts: the caller is asked about the words before they count."""

from __future__ import annotations

import pytest

from pipeline.agent import (
    AgentEvent,
    Expect,
    HangUp,
    Say,
    UserKeyed,
    UserSaid,
    UserSilent,
)
from pipeline.agents.script.agent import ScriptConversation
from pipeline.speech import Expected
from tests.support import script_talk
from tests.support.http.llm import words
from tests.support.script_talk import talk, told

DESK = """
start = "desk"
[[step]]
id = "desk"
say = "Sales or support?"
expect = { phrases = ["sales", "technical support"] }
collect = "desk"
nomatch = { say = "Please say sales or support.", max = 2 }
on = { sales = "code" }
next = "bye"
[[step]]
id = "code"
say = "What is your code?"
expect = { digits = 4 }
collect = "code"
next = "glad"
[[step]]
id = "glad"
say = "Are you glad?"
expect = { kinds = ["yes_no"] }
collect = "glad"
nomatch = { say = "Yes or no?" }
next = "bye"
[[step]]
id = "bye"
say = "{{desk}} it is. Goodbye."
action = "hang_up"
"""

SECRET = """
start = "pin"
[[step]]
id = "pin"
say = "What is your PIN?"
expect = { digits = 4 }
collect = "pin"
mask = true
CONFIRM
next = "bye"
[[step]]
id = "bye"
action = "hang_up"
"""

WHICH = "Sales or support?"


def doubted(text: str, *, continues: bool = False) -> UserSaid:
    return UserSaid(text, 0.3, doubtful=True, continues=continues)


def joined(text: str = DESK, language: str = "en") -> ScriptConversation:
    return script_talk.joined(text, language)


def answers(conversation: ScriptConversation) -> dict[str, str]:
    return dict(conversation.report().answers)


async def test_doubtful_words_are_asked_about_and_a_yes_takes_them() -> None:
    conversation = joined()
    acts = await talk(conversation, doubted("sales"))
    assert acts == [Expect(Expected(kinds=("yes_no",))), Say("Did you say sales?")]
    assert answers(conversation) == {}
    assert words(await told(conversation, "yes")) == "What is your code?"
    assert answers(conversation) == {"desk": "sales"}


async def test_a_no_asks_the_question_again_and_takes_nothing() -> None:
    conversation = joined()
    assert words(await talk(conversation, doubted("sales"), "no")) == WHICH
    assert answers(conversation) == {}
    assert words(await told(conversation, "technical support")).startswith("technical support it is.")


async def test_a_certain_answer_is_not_asked_about() -> None:
    assert words(await talk(joined(), "sales")) == "What is your code?"


async def test_doubtful_words_that_are_no_answer_are_not_understood() -> None:
    assert words(await talk(joined(), doubted("hello there"))) == "Please say sales or support."
    assert words(await talk(joined(), doubted("hello there"), "sales")) == "What is your code?"


@pytest.mark.parametrize("reply", ["no", "hello there", ""])
async def test_it_is_asked_no_more_often_than_what_is_not_understood(reply: str) -> None:
    conversation = joined()
    await talk(conversation)
    for _ in range(6):
        acts = await told(conversation, doubted("sales"))
        if not isinstance(acts[-1], HangUp):
            acts = await told(conversation, reply)
        if isinstance(acts[-1], HangUp):
            break
    assert acts[-1] == HangUp("not_understood")
    assert answers(conversation) == {}


async def test_a_doubtful_yes_confirms_nothing() -> None:
    conversation = joined()
    assert words(await talk(conversation, doubted("sales"), doubted("yes"))) == "Did you say sales?"
    assert answers(conversation) == {}


async def test_silence_has_the_doubt_asked_about_again() -> None:
    conversation = joined()
    acts = await talk(conversation, doubted("sales"), UserSilent(1))
    assert acts == [Expect(Expected(kinds=("yes_no",))), Say("Did you say sales?")]


async def test_a_caller_who_goes_on_is_asked_about_the_whole() -> None:
    conversation = joined()
    acts = await talk(conversation, doubted("sales"), doubted("technical support", continues=True))
    assert words(acts) == "Did you say technical support?"
    assert words(await told(conversation, UserSaid("sales", 0.9, continues=True))) == "What is your code?"


async def test_doubtful_digits_are_read_back_one_by_one() -> None:
    conversation = joined()
    acts = await talk(conversation, "sales", doubted("one two double five"))
    assert acts == [Expect(Expected(kinds=("yes_no", "digits"))), Say("Did you say 1 2 5 5?")]
    assert words(await told(conversation, "no nine six")) == "Did you say 1 2 9 6?"
    assert answers(conversation) == {"desk": "sales"}
    assert words(await told(conversation, "yes")) == "Are you glad?"
    assert answers(conversation) == {"desk": "sales", "code": "1296"}


async def test_a_number_of_which_a_part_is_doubtful_is_asked_about_when_it_is_whole() -> None:
    for rest in ("five five", UserKeyed("55")):
        conversation = joined()
        assert words(await talk(conversation, "sales", doubted("one two"))) == "Go on, please."
        assert words(await told(conversation, rest)) == "Did you say 1 2 5 5?"


async def test_a_doubtful_yes_is_asked_for_again_not_whether_it_was_one() -> None:
    conversation = joined()
    assert words(await talk(conversation, "sales", "1 2 3 4", doubted("yes"))) == "Yes or no?"
    assert "glad" not in answers(conversation)
    assert words(await told(conversation, "yes")) == "sales it is. Goodbye."


async def test_a_question_of_the_scripts_own_is_the_one_that_is_asked() -> None:
    own = DESK.replace('collect = "desk"', 'collect = "desk"\nconfirm = "{{desk}}, is that right?"')
    assert words(await talk(joined(own), doubted("sales"))) == "sales, is that right?"


async def test_a_masked_answer_is_never_said_aloud() -> None:
    assert words(await talk(joined(SECRET.replace("CONFIRM", "")), doubted("one two three four"))) == (
        "What is your PIN?"
    )
    own = SECRET.replace("CONFIRM", 'confirm = "Are you sure?"')
    assert words(await talk(joined(own), doubted("one two three four"))) == "Are you sure?"


async def test_an_answer_of_a_step_that_keeps_none_is_asked_about_too() -> None:
    conversation = joined(DESK.replace('collect = "desk"\n', "").replace("{{desk}}", "So"))
    assert words(await talk(conversation, doubted("sales"))) == "Did you say sales?"
    assert words(await told(conversation, "no")) == WHICH
    assert words(await talk(conversation, doubted("sales"), "yes")) == "What is your code?"


async def test_the_question_is_in_the_callers_language() -> None:
    arabic = DESK.replace('["sales", "technical support"]', '["مبيعات"]').replace("sales =", '"مبيعات" =')
    conversation = joined(arabic, "ar")
    assert words(await talk(conversation, doubted("مبيعات"))) == "هل قلت مبيعات؟"
    assert words(await told(conversation, "نعم")) == "What is your code?"


async def test_where_no_yes_would_be_understood_doubtful_words_are_not_either() -> None:
    assert words(await talk(joined(language="fi"), doubted("sales"))) == "Please say sales or support."


async def test_words_over_the_farewell_are_asked_about_too() -> None:
    conversation = joined()
    assert isinstance((await talk(conversation, "technical support"))[-1], HangUp)
    assert words(await told(conversation, doubted("sales"))) == "Did you say sales?"
    assert words(await told(conversation, "yes")) == "What is your code?"


OPERATOR = """
start = "num"
[[step]]
id = "num"
say = "Which number?"
expect = { digits = 3 }
collect = "num"
nomatch = { max = 1, next = "op" }
silence = { say = "Please say three digits.", max = 1, next = "op" }
next = "bye"
[[step]]
id = "op"
say = "I transfer you."
action = "transfer"
target = "+15550100"
[[step]]
id = "bye"
say = "{{num}}. Goodbye."
action = "hang_up"
"""


@pytest.mark.parametrize("event", [UserSaid("hello there", 0.9), UserSilent(1)], ids=["words", "silence"])
async def test_an_answer_that_nobody_confirmed_goes_nowhere(event: AgentEvent) -> None:
    conversation = joined(OPERATOR)
    acts = await talk(conversation, doubted("four two seven"), event, event)
    assert words(acts) == "I transfer you."
    assert answers(conversation) == {}


async def test_who_repeats_the_number_confirms_it() -> None:
    conversation = joined(OPERATOR)
    assert words(await talk(conversation, doubted("four two seven"))) == "Did you say 4 2 7?"
    assert words(await told(conversation, "four two seven")) == "4 2 7. Goodbye."
    assert answers(conversation) == {"num": "427"}


async def test_a_certain_correction_is_taken() -> None:
    conversation = joined(OPERATOR)
    assert words(await talk(conversation, doubted("four two seven"), "no four two nine")) == "4 2 9. Goodbye."
    assert answers(conversation) == {"num": "429"}


async def test_who_repeats_a_phrase_confirms_it() -> None:
    assert words(await talk(joined(), doubted("sales"), "sales")) == "What is your code?"


async def test_silence_at_a_confirmation_repeats_the_confirmation() -> None:
    acts = await talk(joined(OPERATOR), doubted("four two seven"), UserSilent(1))
    assert acts == [Expect(Expected(kinds=("yes_no", "digits"))), Say("Did you say 4 2 7?")]
