"""From a model's stream to what a voice is given: cuts, markup, broken streams; and what stays of it after an
interruption."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.agents.llm.completion import MAX_CALLS, MAX_TEXT, Completion
from pipeline.agents.llm.history import History, Round, Segment, ToolCall
from pipeline.agents.llm.markup import MarkupGate, tidy
from pipeline.agents.llm.tools.schema import Misfit, Schema
from pipeline.errors import EngineError
from pipeline.text.sentences import LONGEST, Segmenter
from tests.support.http.chat import Call, chunks


def pieces(text: str, step: int) -> list[str]:
    """What is said of a text that comes in pieces of `step` characters."""
    gate, segmenter = MarkupGate(), Segmenter()
    out: list[str] = []
    for at in range(0, len(text), step):
        out += segmenter.feed(gate.feed(text[at : at + step]))
    out += segmenter.feed(gate.finish())
    out += segmenter.finish()
    return [said for said in map(tidy, out) if said]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yes. I can do that for you. What day?", ["Yes.", "I can do that for you.", "What day?"]),
        ("I can do that, if you like, on Monday.", ["I can do that,", "if you like, on Monday."]),
        ("Well, it costs $1,250.50 a year.", ["Well, it costs $1,250.50 a year."]),
        ("It is due on March 3, 2026. Is that fine?", ["It is due on March 3, 2026.", "Is that fine?"]),
        ("Mr. Smith saw Dr. Jones at 5 p.m. today. Ok?", ["Mr. Smith saw Dr. Jones at 5 p.m. today.", "Ok?"]),
        ("Write to john.smith@example.com today.", ["Write to john.smith@example.com today."]),
        ("Your code is 555, 0123, thank you so much.", ["Your code is 555, 0123,", "thank you so much."]),
        ("نعم، أستطيع ذلك. ما هو اليوم المناسب؟ شكرا", ["نعم، أستطيع ذلك.", "ما هو اليوم المناسب؟", "شكرا"]),
        ("One line\nand another", ["One line", "and another"]),
        ("no end", ["no end"]),
        ("", []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_stream_is_cut_where_it_can_be_said(text: str, said: list[str], step: int) -> None:
    assert pieces(text, step) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**Very** good, *thank* you `now`.", "Very good, thank you now."),
        ("## Plan\n- first\n- second", "Plan first second"),
        ("1. Call us\n2. Wait", "1, Call us 2, Wait"),
        ("See [our page](https://x.example/a?b) please", "See our page please"),
        ("Hello 😀👍🏽 there ✅", "Hello there"),
        ("<speak>Hi <break time='1s'/> you</speak>", "Hi you"),
        ("<think>They want X.\n\nHm.</think>Of course.", "Of course."),
        ("<think>never closed", ""),
        ("So:\n```python\nprint('no')\n```\nDone.", "So: Done."),
        ("a < b and c > d", "a < b and c > d"),
        ("snake_case_name and _so_ on", "snake_case_name and so on"),
        ("***", ""),
        ("| a | b |", "a, b"),
        ("Menu:\n| Item | Price |\n|:--|--:|\n| Tea | $3 |", "Menu: Item, Price Tea, $3"),
        ("- [ ] tea\n- [x] milk", "tea milk"),
        ("Mail <me@x.example> or see <https://x.example>.", "Mail me@x.example or see https://x.example."),
        ("Press * or # now, *please*.", "Press * or # now, please."),
        ("3 * 4, ~5 and >6", "3 * 4, ~5 and >6"),
        (">100 people\n> a quote", ">100 people a quote"),
        ("As noted[1] and[^2], press [1].", "As noted and, press [1]."),
        ("Tea &amp; milk&nbsp;too ☕ .", "Tea & milk too."),
        ("half [bracket", "half [bracket"),
        ('a <| b {not json} {"quoted"} {1, 2}', 'a <, b {not json} {"quoted"} {1, 2}'),
        ("<thought>\nThey greet.\n</thought>\nHello there.", "Hello there."),
        ("Hello there.<|im_end|>", "Hello there."),
        (
            "<|channel|>analysis<|message|>They greet.<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Hello.",
            "Hello.",
        ),
        ('Sure.\n<tool_call>\n{"name": "x", "arguments": {"y": 1}}\n</tool_call>', "Sure."),
        ('Sure. <function=find_order>{"number": 7}</function>', "Sure."),
        ('<|python_tag|>{"name": "x"}', ""),
        ('[TOOL_CALLS] [{"name": "x", "arguments": {}}]', ""),
        ('{"name": "x", "parameters": {"y": {"z": "words"}}}', ""),
        ('Sure.\n{"name": "x",\n "parameters": {}}\nThank you.', "Sure. Thank you."),
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>x<｜tool▁call▁end｜><｜tool▁calls▁end｜>Hi.",
            "Hi.",
        ),
    ],
)
@pytest.mark.parametrize("step", [1, 4, 1000])
def test_markup_is_not_spoken(text: str, said: str, step: int) -> None:
    assert " ".join(pieces(text, step)) == said


@given(st.text(alphabet='ab .,!?\n*`<>[](){}|":/_0123é😀م،', max_size=120), st.integers(1, 9))
def test_however_a_stream_is_cut_the_same_is_said(text: str, step: int) -> None:
    letters = [c for piece in pieces(text, step) for c in piece if c.isalnum()]
    assert letters == [c for piece in pieces(text, 10_000) for c in piece if c.isalnum()]


@pytest.mark.parametrize(
    "part", ["a. ", ".", "1, ", "a, ", "no.", '{"a":', "<think>", "<!--", "`", "[", "<a "]
)
def test_a_model_that_stutters_without_an_end_keeps_no_call_waiting(part: str) -> None:
    """A whole answer at once, of the kind that a model falls into; it took minutes."""
    stutter = part * (40_000 // len(part))
    said = pieces(stutter, len(stutter))
    assert max(map(len, said), default=0) <= LONGEST
    assert said or part not in ("a. ", "1, ", "a, ", "no.")


def test_a_model_without_full_stops_is_cut_between_words() -> None:
    said = pieces("word " * 300, 7)
    assert max(map(len, said)) <= LONGEST
    assert " ".join(said) == ("word " * 300).strip()


# The stream -------------------------------------------------------------------------------------------------


def completed(events: list[Any]) -> tuple[str, Completion]:
    completion = Completion()
    return "".join(completion.feed(event) for event in events), completion


def test_words_and_calls_are_put_together() -> None:
    calls = [Call("one", {"a": 1}), Call("two", {"b": "c" * 50})]
    text, completion = completed([*chunks(["Let me see.", *calls]), "[DONE]"])
    assert text == "Let me see."
    assert [(call.name, json.loads(call.arguments)) for call in completion.calls()] == [
        ("one", {"a": 1}),
        ("two", {"b": "c" * 50}),
    ]
    assert completion.finish_reason == "tool_calls"


def test_calls_without_an_index_and_calls_that_come_whole() -> None:
    whole = [
        {"id": "a", "function": {"name": "x", "arguments": {"k": 1}}},
        {"id": "b", "function": {"name": "y"}},
    ]
    _, completion = completed([json.dumps({"choices": [{"delta": {"tool_calls": whole}}]})])
    assert [(call.name, call.arguments) for call in completion.calls()] == [("x", '{"k": 1}'), ("y", "")]


def test_a_thousand_calls_at_once_are_not_heard() -> None:
    _, completion = completed(chunks([Call("x", {"n": n}) for n in range(1000)]))
    assert len(completion.calls()) == MAX_CALLS


@pytest.mark.parametrize(
    "event",
    [
        "nonsense",
        "[1]",
        '{"error": {"message": "secret"}}',
        '{"choices": [3]}',
        '{"choices": [{"delta": 3}]}',
        '{"choices": [{"delta": {"tool_calls": [3]}}]}',
        json.dumps({"choices": [{"delta": {"content": "x" * (MAX_TEXT + 1)}}]}),
    ],
)
def test_what_is_no_answer_is_an_engines_error(event: str) -> None:
    with pytest.raises(EngineError) as caught:
        Completion().feed(event)
    assert "secret" not in str(caught.value)


# What was heard ---------------------------------------------------------------------------------------------


def spoken(*texts: str) -> History:
    history = History(max_turns=10, max_tokens=10_000)
    exchange = history.begin("hello")
    exchange.rounds.append(Round([Segment(text.upper(), text) for text in texts]))
    return history


@pytest.mark.parametrize(
    ("heard", "kept", "lost"),
    [
        ("one two three four", "ONE TWO THREE FOUR", 0),
        ("one two three", "ONE TWO three", 1),
        ("one two", "ONE TWO", 2),
        ("one", "one", 3),
        ("", None, 4),
        ("One, two! Three", "ONE TWO three", 1),
        ("Let me check. one two three", "ONE TWO three", 1),
        ("one too three", "ONE TWO three", 1),  # a voice that spells otherwise
    ],
)
def test_what_was_not_heard_is_not_in_the_history(heard: str, kept: str | None, lost: int) -> None:
    history = spoken("one two", "three four")
    assert history.heard(heard) == lost
    said = [message["content"] for message in history.messages() if message["role"] == "assistant"]
    assert said == ([] if kept is None else [kept])


def test_an_answer_that_was_thrown_away_never_was() -> None:
    history = spoken("one two")
    assert not history.undo()
    assert history.messages() == []


def test_what_was_done_in_it_stays_known() -> None:
    history = History(max_turns=10, max_tokens=10_000)
    exchange = history.begin("book it")
    call = ToolCall("c1", "book", '{"day": "monday"}')
    exchange.rounds.append(Round([Segment("Done.", "Done.")], [call], {"c1": "booked"}))
    exchange.acted = True
    assert history.undo()
    roles = [(message["role"], message["content"]) for message in history.messages()]
    assert roles == [("user", "book it"), ("assistant", None), ("tool", "booked")]


def test_the_oldest_exchanges_are_forgotten_whole() -> None:
    history = History(max_turns=3, max_tokens=200)
    for turn in range(9):
        exchange = history.begin(f"question {turn}")
        call = ToolCall(f"c{turn}", "look", "{}")
        exchange.rounds.append(Round([], [call], {call.id: "x" * 100}))
    messages = history.messages()
    assert messages[0]["role"] == "user"
    asked = {call["id"] for message in messages for call in message.get("tool_calls", ())}
    told = {message["tool_call_id"] for message in messages if message["role"] == "tool"}
    assert asked == told
    assert "c8" in asked
    assert len(asked) < 3


@pytest.mark.parametrize("letter", ["x", "م"])
def test_one_exchange_with_long_results_is_within_the_limit_too(letter: str) -> None:
    history = History(max_turns=10, max_tokens=6000)
    exchange = history.begin("where are my orders")
    for number in range(6):
        call = ToolCall(f"c{number}", "look", "{}")
        exchange.rounds.append(Round([], [call], {call.id: letter * 8000}))
    messages = history.messages()
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert len(results) == 6
    assert sum(len(result.encode()) for result in results) // 3 <= 6000
    assert len(results[-1]) > len(results[0])
    assert results[0].endswith("[cut]")


# Schemas ----------------------------------------------------------------------------------------------------

BOOKING = Schema(
    {
        "properties": {"day": {"enum": ["monday"]}, "note": {"type": "string", "maxLength": 5}},
        "required": ["day"],
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "3",
        "{",
        '{"day": "sunday"}',
        '{"day": "monday", "url": "http://evil"}',
        '{"day": {"$ref": "x"}}',
        '{"day": "monday", "note": "too long"}',
        "[" * 100_000,
    ],
)
def test_arguments_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(Misfit) as caught:
        BOOKING.read(text)
    assert len(str(caught.value)) < 500


def test_formats_are_checked() -> None:
    schema = Schema({"properties": {"day": {"type": "string", "format": "date"}}})
    assert schema.read('{"day": "2026-03-04"}') == {"day": "2026-03-04"}
    with pytest.raises(Misfit):
        schema.read('{"day": "soon"}')


def test_arguments_that_fit() -> None:
    assert BOOKING.read('{"day": "monday"}') == {"day": "monday"}


@pytest.mark.parametrize(
    "text",
    [
        '{"day": "monday", "seconds": NaN}',
        '{"day": "monday", "seconds": Infinity}',
        '{"day": "monday", "seconds": 1e400}',
        '{"day": "monday", "seconds": 1' + "0" * 400 + "}",
        '{"day": "monday", "seconds": -1e300}',
        '{"day": "monday\\n"}',
    ],
)
def test_values_that_pass_every_comparison_do_not_fit(text: str) -> None:
    seconds = {"type": "number", "minimum": 1, "maximum": 60, "multipleOf": 0.5}
    schema = Schema({"properties": {"day": {"type": "string", "pattern": "^[a-z]+$"}, "seconds": seconds}})
    assert schema.read('{"day": "monday", "seconds": 1.5}') == {"day": "monday", "seconds": 1.5}
    with pytest.raises(Misfit):
        schema.read(text)


def test_half_a_character_is_replaced_and_the_rest_kept() -> None:
    schema = Schema({"properties": {"note": {"type": "string"}}})
    assert schema.read(r'{"note": "call me \ud83d"}') == {"note": "call me \ufffd"}


@pytest.mark.parametrize(
    "pattern", ["^.*.*.*.*=$", "^(a+)+$", "^(a|a)*=$", "a?" * 60 + "a" * 60 + "b", r"^(\w+\s?)*=$"]
)
def test_a_pattern_that_backtracking_would_never_finish_is_answered(pattern: str) -> None:
    schema = Schema({"properties": {"a": {"type": "string", "pattern": pattern}}})
    with pytest.raises(Misfit):
        schema.read(json.dumps({"a": "a" * 7_900 + "!"}))


def test_references_that_double_at_every_turn_come_to_an_end() -> None:
    doubled: dict[str, Any] = {
        f"d{turn}": {"allOf": [{"$ref": f"#/$defs/d{turn + 1}"}] * 2} for turn in range(40)
    }
    doubled["d40"] = {"type": "string"}
    schema = Schema({"$defs": doubled, "properties": {"a": {"$ref": "#/$defs/d0"}}})
    with pytest.raises(Misfit):
        schema.read('{"a": "b"}')
    endless = Schema({"properties": {"a": {"$ref": "#/properties/a"}}})
    with pytest.raises(Misfit):
        endless.read('{"a": "b"}')


@pytest.mark.parametrize("place", ["#/title", "#/required", "#/nowhere", "#/properties/a/$ref", "#gone"])
def test_references_that_lead_to_no_schema_let_nothing_pass(place: str) -> None:
    schema = Schema({"title": "Book", "required": ["a"], "properties": {"a": {"$ref": place}}})
    with pytest.raises(Misfit):
        schema.read('{"a": "b"}')


def test_a_list_whose_items_must_differ_is_compared_as_far_as_is_reasonable() -> None:
    schema = Schema({"properties": {"a": {"type": "array", "uniqueItems": True}}})
    assert schema.read('{"a": [1, "b", [2]]}')["a"] == [1, "b", [2]]
    with pytest.raises(Misfit):
        schema.read('{"a": [1, "b", 1]}')
    with pytest.raises(Misfit):
        schema.read(json.dumps({"a": [value for each in range(1_000) for value in (each, str(each))]}))


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"properties": {"a": {"type": "strange"}}},
        {"properties": {"a": {"$ref": "http://127.0.0.1/schema"}}},
        {"properties": {"a": {"type": "string", "pattern": "^(?=a)a$"}}},
        {"properties": {"a": {"type": "string", "pattern": r"(a)\1"}}},
        {"properties": {"a": {"type": "string", "pattern": "(("}}},
        {"properties": {"a": {"type": "string", "pattern": "(?:(?:a{1000}){1000}){1000}"}}},
        {"properties": {"a": {"type": "string", "pattern": "a{4294967296}"}}},
        nested(40),
        nested(5_000),
        {"anyOf": [{}] * 4_000},
        {"patternProperties": {"(x+)+": {}}},
        {"description": "x" * 30_000},
    ],
)
def test_schemas_that_would_do_harm_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        Schema(schema)


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "foo"},
        {"type": 3},
        {"type": ["string", 3]},
        {"minLength": "a"},
        {"multipleOf": 0},
        {"required": 3},
        {"properties": 3},
        {"pattern": "("},
        {"$ref": "#/nowhere"},
        {"$ref": 3},
        {"$ref": "#/x-rule"},
        {"$dynamicRef": "#nowhere"},
        3,
        None,
    ],
)
def test_a_reference_to_what_is_no_schema_refuses_the_value(rule: object) -> None:
    try:
        schema = Schema({"properties": {"a": {"$ref": "#/x-rule"}}, "x-rule": rule})
    except ValueError:
        return  # found when the schema was read
    for value in ('{"a": 1}', '{"a": "x"}', '{"a": {"b": 1}}', '{"a": [1, 1]}'):
        with suppress(Misfit):
            schema.read(value)
