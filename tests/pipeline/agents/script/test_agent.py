"""The script agent: whole conversations, answers in people's words, and scripts that are wrong."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agent import (
    AgentAct,
    AgentContext,
    AgentEvent,
    CallOpened,
    Expect,
    HandedBack,
    HangUp,
    Say,
    SendDigits,
    Transfer,
    TransferFailed,
    UserKeyed,
    UserSaid,
    UserSilent,
)
from pipeline.agents.script.agent import Script, ScriptConversation
from pipeline.agents.script.machine import _TRANSITIONS
from pipeline.agents.script.position import ScriptState
from pipeline.errors import SettingsRefused
from pipeline.text.answers import KINDS, value_of
from pipeline.text.fold import plain_words
from pipeline.text.lexicon import lexicon
from tests.support.http.llm import words
from tests.support.paths import ROOT
from tests.support.script_talk import told

APPOINTMENT = """
start = "who"

[[step]]
id = "who"
say = "Am I speaking with {{name}}?"
expect = { kinds = ["yes_no"] }
on = { yes = "when", no = "wrong_person" }
nomatch = { say = "Please say yes or no.", max = 1, next = "operator" }
silence = { say = "Are you there?", max = 1 }

[[step]]
id = "when"
say = "Your appointment is on {{date}}. Can you come?"
expect = { kinds = ["yes_no"] }
answers = { later = ["not now", "call me later"] }
on = { yes = "phone", no = "new_date", later = "later" }

[[step]]
id = "new_date"
say = "Which day suits you?"
expect = { kinds = ["date"] }
collect = "new_date"
next = "phone"

[[step]]
id = "phone"
say = "What are the last four digits of your number?"
interruptible = false
expect = { kinds = ["digits"], digits = 4 }
collect = "digits"
next = "done"

[[step]]
id = "done"
say = "Thank you, {{name}}: {{digits}}."
disposition = "confirmed"
goal = true
next = "bye"

[[step]]
id = "bye"
say = "Goodbye."
action = "hang_up"

[[step]]
id = "later"
say = "We call again."
action = "hang_up"
disposition = "call_back"

[[step]]
id = "wrong_person"
action = "hang_up"
disposition = "wrong_person"

[[step]]
id = "operator"
say = "One moment."
action = "transfer"
target = "+15550100"
"""

CONTEXT = AgentContext("call", "en", "Hello {{name}}.", {"name": "Mary", "date": "Monday"})


def script(text: str = APPOINTMENT) -> Script:
    return Script.from_settings(tomllib.loads(text))


def joined(text: str = APPOINTMENT, context: AgentContext = CONTEXT) -> ScriptConversation:
    return script(text).join(context)


async def talk(conversation: ScriptConversation, *events: AgentEvent | str) -> list[AgentAct]:
    """The acts for the last of `events`."""
    acts: list[AgentAct] = []
    for event in events:
        acts = await told(conversation, event)
    return acts


async def test_a_whole_conversation_reaches_its_goal() -> None:
    conversation = joined()
    opening = await told(conversation, CallOpened())
    assert words(opening) == "Hello Mary. Am I speaking with Mary?"
    assert words(await told(conversation, "yes")) == "Your appointment is on Monday. Can you come?"
    assert words(await told(conversation, "no sorry")) == "Which day suits you?"
    assert (
        words(await told(conversation, "um october fourteenth"))
        == "What are the last four digits of your number?"
    )
    ending = await told(conversation, "one two double five")
    assert words(ending) == "Thank you, Mary: 1 2 5 5. Goodbye."  # one by one, not as a number
    assert ending[-1] == HangUp("confirmed")
    report = conversation.report()
    assert report.reached_goal is True
    assert report.disposition == "confirmed"
    assert report.answers == {"new_date": "october fourteenth", "digits": "1255"}
    assert "\n" not in report.summary


async def test_what_is_expected_is_known_before_the_question_is_heard() -> None:
    conversation = joined()
    opening = await told(conversation, CallOpened())
    assert [type(act) for act in opening] == [Expect, Say, Say]
    asked = await talk(conversation, "yes", "yes")
    assert isinstance(asked[0], Expect)
    assert asked[0].expected.digits == 4
    assert asked[1] == Say("What are the last four digits of your number?", interruptible=False)


async def test_several_phrases_lead_to_one_branch() -> None:
    conversation = joined()
    acts = await talk(conversation, CallOpened(), "yes", "please call me later thanks")
    assert acts[-1] == HangUp("call_back")
    assert conversation.report().reached_goal is False


async def test_nonsense_is_asked_again_and_then_goes_to_a_person() -> None:
    conversation = joined()
    again = await talk(conversation, CallOpened(), "bananas")
    assert words(again) == "Please say yes or no."
    assert await told(conversation, "") == [Say("One moment."), Transfer("+15550100")]
    assert conversation.report().disposition == "transferred"


async def test_silence_is_asked_again_and_then_ends_the_call() -> None:
    conversation = joined()
    assert words(await talk(conversation, CallOpened(), UserSilent(1))) == "Are you there?"
    assert await told(conversation, UserSilent(2)) == [Say("Goodbye."), HangUp("no_answer")]
    assert conversation.report().disposition == "no_answer"


async def test_an_answer_starts_the_counts_anew() -> None:
    conversation = joined()
    await talk(conversation, CallOpened(), UserSilent(1), "bananas", "yes", "bananas")
    assert words(await told(conversation, "bananas")) == "Your appointment is on Monday. Can you come?"


async def test_keyed_digits_answer_a_question_for_digits() -> None:
    conversation = joined()
    await talk(conversation, CallOpened(), "yes", "yes")
    assert "What are" in words(await told(conversation, UserKeyed("12345")))
    assert (await told(conversation, UserKeyed("1234")))[-1] == HangUp("confirmed")


async def test_keys_choose_branches_and_codes_are_dialled() -> None:
    conversation = joined(
        """
        start = "menu"
        [[step]]
        id = "menu"
        say = "Press one."
        expect = { phrases = ["sales"] }
        on = { 1 = "dial", sales = "dial" }
        [[step]]
        id = "dial"
        action = "send_digits"
        digits = "{{code}}#"
        next = "end"
        [[step]]
        id = "end"
        action = "hang_up"
        """,
        AgentContext("call", "en", "", {"code": "77"}),
    )
    await told(conversation, CallOpened())
    assert words(await told(conversation, UserKeyed("2"))) == "Press one."
    assert await told(conversation, UserKeyed("1")) == [SendDigits("77#"), HangUp("completed")]


async def test_an_interrupted_farewell_still_hangs_up() -> None:
    conversation = joined()
    await talk(conversation, CallOpened(), "yes", "yes")
    ending = conversation.respond(UserSaid("one two three four", 0.9))
    assert isinstance(await anext(ending), Say)
    await ending.aclose()
    assert await told(conversation, "bye") == [HangUp("confirmed")]


async def test_an_interrupted_question_can_be_answered() -> None:
    conversation = joined()
    opening = conversation.respond(CallOpened())
    await anext(opening)
    await opening.aclose()
    assert "Your appointment" in words(
        await told(conversation, UserSaid("yes", 0.9, "Hello", interrupted=True))
    )


async def test_an_answer_in_two_pieces_is_one_answer() -> None:
    conversation = joined()
    await talk(conversation, CallOpened(), "yes", "yes", "one two three four")
    assert conversation.report().disposition == "confirmed"
    acts = await told(conversation, UserSaid("one two three four five", 0.9, continues=True))
    assert words(acts) == "What are the last four digits of your number?"
    assert conversation.report().answers == {}
    assert conversation.report().reached_goal is False
    whole = await told(conversation, UserSaid("one two three five", 0.9, continues=True))
    assert whole[-1] == HangUp("confirmed")
    assert conversation.report().answers == {"digits": "1235"}


async def test_a_caller_who_speaks_first_is_greeted() -> None:
    assert words(await told(joined(), "hello")) == "Hello Mary. Am I speaking with Mary?"


def test_variables_the_call_does_not_bring_are_all_named() -> None:
    with pytest.raises(SettingsRefused) as caught:
        script().join(AgentContext("call", "en", "Hello {{title}}.", {"date": "Monday"}))
    assert [name for name, _ in caught.value.problems] == ["name", "title"]
    assert script().variables == {"name", "date"}


async def test_a_variable_is_never_a_template() -> None:
    context = AgentContext("call", "en", "", {"name": "{{date}}", "date": "Monday"})
    assert words(await told(joined(context=context), CallOpened())) == "Am I speaking with {{date}}?"


def test_nothing_is_reported_of_a_call_that_never_began() -> None:
    report = joined().report()
    assert (report.disposition, report.reached_goal, dict(report.answers)) == ("", False, {})


async def test_a_caller_who_leaves_in_the_middle_is_incomplete() -> None:
    conversation = joined()
    await talk(conversation, CallOpened(), "yes")
    assert conversation.report().disposition == "incomplete"


def test_the_table_has_every_cell() -> None:
    events = (CallOpened, UserSaid, UserKeyed, UserSilent, TransferFailed, HandedBack)
    assert set(_TRANSITIONS) == {(state, event) for state in ScriptState for event in events}


EVENTS = st.one_of(
    st.just(CallOpened()),
    st.builds(
        UserSaid,
        st.sampled_from(["", "yes", "no", "monday", "one two three four", "not now", "x"]),
        st.just(1.0),
        continues=st.booleans(),
    ),
    st.builds(UserKeyed, st.text("0123456789*#", max_size=5)),
    st.builds(UserSilent, st.integers(1, 5)),
)


@given(st.lists(EVENTS, max_size=30))
def test_whatever_happens_the_caller_hears_something_or_the_call_ends(events: list[AgentEvent]) -> None:
    run = joined()._run
    for event in events:
        before = run.position.state
        acts = run.receive(event)
        if isinstance(event, CallOpened) and before is not ScriptState.OPENING:
            assert acts == []
        elif run.position.state is ScriptState.ENDED:
            assert isinstance(acts[-1], HangUp | Transfer)
        else:
            assert any(isinstance(act, Say) for act in acts)


# Answers


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("yes_no", "Yes, no problem.", "yes"),
        ("yes_no", "that is not right", "no"),
        ("yes_no", "of course", "yes"),
        ("yes_no", "No, thank you!", "no"),
        ("yes_no", "i have a question", ""),
        ("date", "not monday", ""),
        ("date", "not monday but tuesday", "tuesday"),
        ("time", "any time except nine", ""),
        ("name", "Sorry, what?", ""),
        ("name", "can you say that again please", ""),
        ("name", "yes", ""),
        ("name", "it's mary white", "Mary White"),
        ("yes_no", "absolutely not", "no"),
        ("yes_no", "of course not", "no"),
        ("yes_no", "no problem at all", "yes"),
        ("yes_no", "oh that's not a problem", "yes"),
        ("yes_no", "why not", "yes"),
        ("yes_no", "why not tuesday", "no"),
        ("yes_no", "uh huh", "yes"),
        ("yes_no", "alright", "yes"),
        ("yes_no", "I can.", "yes"),
        ("yes_no", "i can hear you", ""),
        ("yes_no", "i don't know", ""),
        ("yes_no", "i'm not sure not sure", ""),
        ("yes_no", "no idea", ""),
        ("yes_no", "i don't think so", "no"),
        ("yes_no", "not sure but yes", "yes"),
        ("digits", "five five five zero one four two", "5550142"),
        ("digits", "it's double seven, oh, 12", "77012"),
        ("digits", "555-0142", "5550142"),
        ("digits", "twenty three forty", "2340"),
        ("digits", "well", ""),
        ("number", "one thousand two hundred and five", "1205"),
        ("number", "about 1,250 please", "1250"),
        ("number", "forty two", "42"),
        ("number", "none", ""),
        ("date", "how about next Friday morning then", "next friday morning"),
        ("date", "the twenty third of March", "the twenty third of march"),
        ("date", "May 4th", "may 4th"),
        ("date", "may i ask who is calling", ""),
        ("date", "one second please", ""),
        ("time", "maybe at half past nine", "at half past nine"),
        ("time", "3:30", "3 30"),
        ("time", "i do not know", ""),
        ("name", "hi my name is john smith", "John Smith"),
        ("free", "what you like", "what you like"),
    ],
)
def test_answers_are_understood_as_people_say_them(kind: str, text: str, value: str) -> None:
    assert value_of(kind, plain_words(text), lexicon("en-GB")) == value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("yes_no", "نعم، طبعا", "yes"),
        ("yes_no", "لا شكرا", "no"),
        ("number", "اتناشر", "12"),
        ("number", "خمستاشر", "15"),
        ("number", "طنعش", "12"),
        ("number", "تلتمية وخمسين", "350"),
        ("digits", "صفر خمسة خمسة وخمسين اتناشر", "055512"),
        ("date", "مش الاثنين", ""),
        ("name", "عفوا", ""),
        ("yes_no", "طبعاً لا", "no"),
        ("yes_no", "ما في مشكلة", "yes"),
        ("yes_no", "لا مشكلة", "yes"),
        ("yes_no", "لا أعرف", ""),
        ("yes_no", "مش عارف", ""),
        ("digits", "خمسة ٣ صفر", "530"),
    ],
)
def test_arabic_answers(kind: str, text: str, value: str) -> None:
    assert value_of(kind, plain_words(text), lexicon("ar")) == value


def test_a_digit_string_of_the_wrong_length_is_no_answer() -> None:
    assert value_of("digits", "one two three", lexicon("en"), digits=4) == ""


@given(st.sampled_from(KINDS), st.text())
def test_no_text_breaks_an_answer(kind: str, text: str) -> None:
    for language in ("en", "ar", "xx"):
        assert isinstance(value_of(kind, plain_words(text), lexicon(language)), str)


# Scripts that are wrong


def broken(**changes: Any) -> list[tuple[str, str]]:
    """The problems after `changes` to the step "when" (the second)."""
    settings = copy.deepcopy(tomllib.loads(APPOINTMENT))
    settings["step"][1] |= changes
    with pytest.raises(SettingsRefused) as caught:
        Script.from_settings(settings)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"sya": "hello"}, "step[1].sya"),
        ({"next": "nowhere"}, "step[1].next"),
        ({"on": {"yes": "nowhere", "no": "bye", "later": "bye"}}, "step[1].on.yes"),
        ({"on": {"perhaps": "bye"}, "next": "bye"}, "step[1].on.perhaps"),
        ({"on": {"yes": "phone"}}, "step[1].next"),
        ({"expect": {"kinds": ["colour"]}}, "step[1].expect.kinds"),
        ({"expect": {"kind": ["date"]}}, "step[1].expect.kind"),
        ({"answers": {"later": ["..."]}}, "step[1].expect.phrases"),
        ({"action": "hang_up"}, "step[1].action"),
        ({"action": "fly"}, "step[1].action"),
        ({"interruptible": "no"}, "step[1].interruptible"),
        ({"nomatch": {"max": -1}}, "step[1].nomatch.max"),
        ({"silence": {"next": "nowhere"}}, "step[1].silence.next"),
        ({"say": 5}, "step[1].say"),
        ({"id": "who"}, "step[1].id"),
    ],
)
def test_a_wrong_step_names_its_key_and_its_name(changes: dict[str, Any], key: str) -> None:
    problems = dict(broken(**changes))
    assert key in problems
    assert f"(step {changes.get('id', 'when')!r})" in problems[key]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "step"),
        ('start = "a"\nfinish = "b"\n[[step]]\nid = "a"\naction = "hang_up"', "finish"),
        ('start = "x"\n[[step]]\nid = "a"\naction = "hang_up"', "start"),
        ('start = "a"\n[[step]]\nid = "a"\nsay = "hi"', "step[0].next"),
        ('start = "a"\n[[step]]\nid = "a"\naction = "transfer"', "step[0].target"),
        (
            'start = "a"\n[[step]]\nid = "a"\naction = "send_digits"\ndigits = "1,2"\nnext = "b"\n'
            '[[step]]\nid = "b"\naction = "hang_up"',
            "step[0].digits",
        ),
        (
            'start = "a"\n[[step]]\nid = "a"\nexpect = { kinds = ["digits"] }\ncollect = "pin"\nmask = true\n'
            'next = "b"\n[[step]]\nid = "b"\naction = "transfer"\ntarget = "{{pin}}"',
            "step[1].target",
        ),
        (
            'start = "a"\n[[step]]\nid = "a"\naction = "hang_up"\n[[step]]\nid = "b"\naction = "hang_up"',
            "step[1].id",
        ),
        ('start = "a"\n[[step]]\nid = "a"\nnext = "b"\n[[step]]\nid = "b"\nnext = "a"', "step[0].next"),
        ('start = "a"\nstep = 5', "step"),
    ],
)
def test_a_wrong_script_names_what_is_wrong(text: str, key: str) -> None:
    with pytest.raises(SettingsRefused) as caught:
        script(text)
    assert key in dict(caught.value.problems)


def test_every_mistake_is_told_at_once() -> None:
    assert len(broken(sya="x", next="nowhere", collect=7)) >= 3
    with pytest.raises(SettingsRefused) as caught:
        Script.from_settings({"start": "a", "step": [5, {"id": "a", "next": 3, "expect": {"kinds": [1]}}]})
    assert {key for key, _ in caught.value.problems} >= {"step[0]", "step[1].next", "step[1].expect.kinds[0]"}


def test_the_script_of_the_documentation_is_valid() -> None:
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    blocks = [block.split("```")[0] for block in page.split("```toml\n")[1:]]
    scripts = [tomllib.loads(block)["agent"][0]["script"] for block in blocks if "[agent.script]" in block]
    assert scripts
    for settings in scripts:
        Script.from_settings(settings)
