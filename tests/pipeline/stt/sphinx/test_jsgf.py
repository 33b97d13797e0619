"""Grammars of expected answers: what they let through, and what never reaches the recogniser."""

from __future__ import annotations

import pytest

from pipeline.speech import Expected
from pipeline.stt.pocketsphinx import dictionary, unheard
from pipeline.stt.sphinx.decoder import SphinxDecoder
from pipeline.stt.sphinx.jsgf import GRAMMAR_KINDS, grammar, is_whole, kind_words, unknown_words, yes_no


def everything(_: str) -> bool:
    return True


def test_anything_goes_without_a_grammar() -> None:
    assert grammar(None, everything) is None
    assert grammar(Expected(), everything) is None
    assert grammar(Expected(("yes",), ("free",)), everything) is None


def test_every_word_of_the_built_in_kinds_can_be_heard() -> None:
    assert [word for word in kind_words() if not dictionary().knows(word)] == []


@pytest.mark.parametrize("kind", GRAMMAR_KINDS)
def test_every_kind_is_a_grammar_the_engine_accepts(kind: str) -> None:
    made = grammar(Expected((), (kind,)), dictionary().knows)
    assert made is not None
    SphinxDecoder(dictionary(), narrow=True).begin(made)


def test_all_kinds_and_phrases_together_are_accepted() -> None:
    made = grammar(Expected(("not now", "ten o'clock"), GRAMMAR_KINDS, 4), dictionary().knows)
    assert made is not None
    SphinxDecoder(dictionary(), narrow=True).begin(made)


def test_a_phrase_with_an_unknown_word_is_dropped_whole() -> None:
    made = grammar(Expected(("call xylqua", "call back")), dictionary().knows)
    assert made is not None
    assert made.dropped == ("call xylqua",)
    assert made.words == ("back", "call")


def test_nothing_that_can_be_heard_is_no_grammar() -> None:
    assert grammar(Expected(("xylqua",)), dictionary().knows) is None


@pytest.mark.parametrize(
    "phrase", ["yes; public <x> = no", "<digits>", "yes | no", "{tag}", "/10/ yes", "a\\b", "é"]
)
def test_jsgf_in_a_phrase_is_never_grammar(phrase: str) -> None:
    made = grammar(Expected((phrase, "maybe")), everything)
    assert made is not None
    rule = made.jsgf.split("public <answer> =")[1]
    assert not set(rule) & set("<{/\\")
    assert rule.count(";") == 1


def test_words_without_a_pronunciation_are_named() -> None:
    assert unheard(["hello world", "xylqua 12", "مرحبا"]) == ["xylqua", "12", "مرحبا"]
    assert unknown_words(["Ten O'Clock!"], {"ten", "o'clock"}.__contains__) == []


def test_a_grammar_tells_its_built_in_kinds() -> None:
    made = grammar(Expected(("not now",), ("yes_no",)), dictionary().knows)
    assert made is not None
    assert made.kinds == ("yes_no",)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("side right", True),
        ("side", False),
        ("right", False),
        ("side right side right", False),
        ("ten o'clock", True),
        ("double two seven", True),
        ("two double", False),
        ("on the twenty first of may two thousand and six", True),
        ("january", False),
        ("next monday at half past", False),
        ("sider ight", False),
        ("", False),
    ],
)
def test_an_answer_is_whole_from_its_first_word_to_its_last(text: str, whole: bool) -> None:
    made = grammar(Expected(("side right", "ten o'clock"), ("digits", "date")), everything)
    assert made is not None
    assert is_whole(made, text) is whole


def test_every_answer_to_a_yes_or_no_question_is_whole() -> None:
    made = grammar(Expected((), ("yes_no",)), everything)
    assert made is not None
    assert [answer for answer in yes_no() if not is_whole(made, answer)] == []
