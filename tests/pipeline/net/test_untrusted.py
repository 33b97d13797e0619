"""JSON of others: what is taken, what is refused, and that what is taken can be stored and sent."""

from __future__ import annotations

import json

import pytest

from pipeline.net.untrusted import (
    MAX_DEPTH,
    NotJson,
    clean_text,
    cleaned,
    read_json,
    read_parts,
    shallow,
)


@pytest.mark.parametrize(
    "text",
    ["NaN", '{"seconds": NaN}', "[Infinity]", "-Infinity", "1e400", "[-1e999]", "9" * 101, "-" + "9" * 5000],
)
def test_numbers_that_no_timer_can_take_are_refused(text: str) -> None:
    with pytest.raises(NotJson, match="number"):
        read_json(text)


@pytest.mark.parametrize("text", ["", "{", "nul", "'a'", "\ud83d", b"\xff\xfe\xff", "[" * 100_000])
def test_what_is_no_json_is_refused_as_such(text: str | bytes) -> None:
    with pytest.raises(NotJson):
        read_json(text)


def test_nesting_and_length_have_an_end() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(read_json(deep)) == deep
    with pytest.raises(NotJson, match="deep"):
        read_json(f"[{deep}]")
    with pytest.raises(NotJson, match="deep"):
        read_json('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1))
    assert read_json('"abc"', longest=5) == "abc"
    with pytest.raises(NotJson, match="long"):
        read_json('"abcd"', longest=5)


def test_what_is_nested_too_deep_can_be_left_out() -> None:
    text = r'{"a": [[1], {"b": "]\"}"}, 2], "c": "[{\\"}'
    assert json.loads(shallow(text, deepest=3)) == json.loads(text)
    assert json.loads(shallow(text, deepest=2)) == {"a": [None, None, 2], "c": "[{\\"}
    assert json.loads(shallow(text, deepest=0)) is None
    far = "[" * 100_000 + "]" * 100_000
    assert read_json(shallow(f'{{"one": {far}, "two": 2}}'))["two"] == 2


@pytest.mark.parametrize("bad", ["NaN", "-Infinity", "1e400", "9" * 101, "[" * 90 + "NaN" + "]" * 90])
def test_one_bad_thing_of_a_list_costs_no_other(bad: str) -> None:
    value = read_parts(f'[1, "a", {{"half": "\\ud83d", "bad": {bad}}}, 2.5]')
    assert (value[:2], value[3]) == ([1, "a"], 2.5)
    assert cleaned(value[3]) == 2.5
    if bad.startswith("["):
        assert cleaned(value[2], deepest=80)["half"] == "\ufffd"
    else:
        with pytest.raises(NotJson, match="number"):
            cleaned(value[2])
    with pytest.raises(NotJson, match="not JSON"):
        read_parts(f"[{bad}, ")
    with pytest.raises(NotJson, match="long"):
        read_parts(" " * 2_000_000)


@pytest.mark.parametrize(
    "text", ["", "]", "[", "}" * 99, "[" * 99, '"[', '["\\', "[" * 70 + "]", "[" * 70 + "]" * 80]
)
def test_leaving_out_makes_no_json_of_what_is_none(text: str) -> None:
    with pytest.raises(NotJson):
        read_json(shallow(text))


def test_strings_can_be_encoded_and_stored_whatever_the_writer_put_in_them() -> None:
    value = read_json(r'{"half \ud83d": ["nul \u0000", {"pair": "\ud83d\ude00"}], "low": "\ude00"}')
    assert value == {"half \ufffd": ["nul \ufffd", {"pair": "\U0001f600"}], "low": "\ufffd"}
    assert json.dumps(value, ensure_ascii=False).encode()


def test_the_usual_passes_as_it_is() -> None:
    text = '{"a": [1, -2.5, 1e3, true, null, "الله"], "b": {}}'
    assert read_json(text) == json.loads(text) == read_json(text.encode())


def test_clean_text_leaves_every_other_character() -> None:
    assert clean_text("a\tb\n\u200fج\U0001f600") == "a\tb\n\u200fج\U0001f600"
