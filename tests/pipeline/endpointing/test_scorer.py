"""Is the caller done? The built-in judge, on what was said and on how it sounded."""

from __future__ import annotations

import numpy as np
import pytest

from bench.support.codecs import over_ulaw
from pipeline.audio import Pcm
from pipeline.endpointing.policy import EndOfTurn, TurnEvidence
from pipeline.endpointing.prosody import prosody_of
from pipeline.endpointing.scorer import BuiltInDetector
from pipeline.endpointing.sentence_model import sentence_ends
from pipeline.speech import Expected
from tests.support.sip.callers import at_level, spoken

SILENCE = np.zeros(1600, np.int16)
DIGITS = Expected(kinds=("digits",), digits=6)
SCORER = BuiltInDetector(sentence_ends())


def p_eot(words: str, expected: Expected | None = None, *, asked: str = "", language: str = "en") -> float:
    evidence = TurnEvidence(
        audio=SILENCE, rate_hz=8000, words=words, asked=asked, expected=expected, language=language
    )
    return SCORER.p_eot(evidence)


@pytest.mark.parametrize(
    "words",
    [
        "my number is",
        "I want to pay and",
        "well, um",
        "because",
        "it is about my bill and",
        "let me see",
    ],
)
def test_words_that_ask_for_more(words: str) -> None:
    assert p_eot(words) < 0.15


def test_half_a_condition_wants_the_other_half() -> None:
    assert p_eot("if it rains tomorrow") < min(0.5, p_eot("so it rains tomorrow"))


@pytest.mark.parametrize("words", ["رقمي هو", "اريد ان", "نعم لكن", "انا اسمي"])
def test_arabic_words_that_ask_for_more(words: str) -> None:
    assert p_eot(words, language="ar") < 0.1


@pytest.mark.parametrize(
    "words",
    ["yes please", "no thank you", "that would be great", "cancel it please", "what does it cost now"],
)
def test_words_that_are_over(words: str) -> None:
    assert p_eot(words) > 0.6


@pytest.mark.parametrize(
    ("whole", "dangling"),
    [
        ("turn it on", "turn the"),
        ("not sure about that", "that"),
        ("that is not what i asked for", "i asked for"),
        ("is that the shop which it came from", "it came from"),
    ],
)
def test_a_dangling_word_may_be_the_end(whole: str, dangling: str) -> None:
    assert 1.5 * p_eot(dangling) < p_eot(whole)


@pytest.mark.parametrize(
    ("language", "part", "whole"),
    [
        ("en", "four one five five five two", "four one five five five two two six seven one"),
        ("en-US", "it is 415 555 26", "it is 415 555 2671"),
        ("en-GB", "oh seven four oh oh one two three", "oh seven four oh oh one two three four five six"),
    ],
)
@pytest.mark.parametrize(
    "asked", ["What's the best number to reach you?", "Sure. Could I get your mobile number please?"]
)
def test_a_telephone_number_is_whole_when_its_plan_says_so_also_where_a_model_asked_for_it(
    asked: str, language: str, part: str, whole: str
) -> None:
    assert p_eot(part, asked=asked, language=language) < 0.1
    assert p_eot(whole, asked=asked, language=language) > 0.9


@pytest.mark.parametrize("asked", ["What's your card number?", "How may I help you?"])
def test_other_digits_are_no_telephone_number(asked: str) -> None:
    assert p_eot("four one five five five two two six seven one", asked=asked) < 0.9


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("let me talk to a person", "How may I help you?"),
        ("stop", "How may I help you?"),
        ("how much was that", "How may I help you?"),
        ("who is this", "How may I help you?"),
        ("laptop", "Is it a laptop or a desktop?"),
    ],
)
def test_a_whole_order_or_question_ends_the_turn_in_half_a_second_whatever_the_voice(
    words: str, asked: str
) -> None:
    assert EndOfTurn().delay_ms(p_eot(words, asked=asked)) <= 550


@pytest.mark.parametrize(
    "words", ["let me talk to a", "how much was", "let me", "who is", "can you send me the", "put it on the"]
)
def test_the_beginning_of_an_order_or_question_is_waited_for(words: str) -> None:
    assert EndOfTurn().delay_ms(p_eot(words, asked="How may I help you?")) > 800


def test_digits_until_all_are_there() -> None:
    for said in ("four", "four one five", "it is four one five nine two"):
        assert p_eot(said, DIGITS) < 0.1
    assert p_eot("four one five nine two six", DIGITS) > 0.9


@pytest.mark.parametrize(
    ("asked", "part", "whole"),
    [
        ("What is your phone number?", "oh four one five", "oh four one five nine two six five three five"),
        ("What is your date of birth?", "the third of may", "the third of may nineteen eighty four"),
        ("What is your address?", "forty two", "forty two harbour street"),
        ("How many people will come?", "about", "about fifteen"),
        ("How can I help you?", "is there", "is there a lift in the house"),
    ],
)
def test_what_was_asked_for_tells_a_part_from_the_whole(asked: str, part: str, whole: str) -> None:
    assert 1.5 * p_eot(part, asked=asked) < p_eot(whole, asked=asked)


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("she would like to buy", "she would like to buy it"),
        ("we live in a small", "we live in a small town"),
    ],
)
def test_a_model_of_sentences_knows_words_that_no_list_has(part: str, whole: str) -> None:
    scorer = BuiltInDetector(sentence_ends())
    unfinished, done = (
        scorer.p_eot(TurnEvidence(audio=SILENCE, rate_hz=8000, words=words)) for words in (part, whole)
    )
    assert 1.5 * unfinished < done


def test_a_known_answer_is_the_end() -> None:
    assert p_eot("yes", Expected(kinds=("yes_no",))) > 0.9
    assert p_eot("monday", Expected(phrases=("monday", "tuesday"))) > 0.9


def test_a_short_answer_to_a_question_is_more_probably_the_end() -> None:
    assert p_eot("monday", asked="Which day would you like?") > p_eot("monday", asked="Good morning.")


def paused(audio: Pcm) -> Pcm:
    """The words, then 0.2 s of a quiet line."""
    wave = np.concatenate([np.zeros(2400), at_level(audio, -22), np.zeros(1600)])
    return over_ulaw(wave + np.random.default_rng(3).standard_normal(len(wave)) * 20)


@pytest.mark.parametrize("voice", ["en-us", "en-gb", "en-us+f3"])
@pytest.mark.parametrize("rate_hz", [8000, 16000])
def test_a_voice_falls_at_a_full_stop(voice: str, rate_hz: int) -> None:
    clauses = ("I spoke with your colleague last week", "The screen is broken", "I like the blue one")
    ended = spoken(tuple(clause + "." for clause in clauses), voice, rate_hz=rate_hz)
    fell = [prosody_of(paused(audio), rate_hz) for audio in ended]
    assert np.median([each.fall_st for each in fell]) > 2.0
    assert all(each.voiced_ms > 300 for each in fell)


def test_the_voice_tips_the_balance_where_the_words_do_not() -> None:
    rate_hz, time_s = 8000, np.arange(8000) / 8000
    scores = []
    for end_hz in (85.0, 120.0):
        pitch = np.where(time_s < 0.8, 120.0, end_hz)
        wave = sum(np.sin(2 * np.pi * k * np.cumsum(pitch) / rate_hz) / k for k in range(1, 12))
        evidence = TurnEvidence(
            audio=paused(np.asarray(wave * 3000)), rate_hz=rate_hz, words="the screen is broken"
        )
        scores.append(BuiltInDetector().p_eot(evidence))
    fallen, level = scores
    assert fallen > 0.5
    assert level < 0.2


def test_nothing_at_all_is_no_evidence() -> None:
    empty = TurnEvidence(audio=np.empty(0, np.int16), rate_hz=8000)
    assert 0.2 < BuiltInDetector().p_eot(empty) < 0.6


def test_the_three_knobs() -> None:
    knobs = EndOfTurn(threshold=0.5, action_delay_ms=300, timeout_ms=1500)
    assert knobs.delay_ms(0.5) == knobs.delay_ms(1.0) == 300
    assert knobs.delay_ms(0.0) == 1500
    assert 300 < knobs.delay_ms(0.3) < knobs.delay_ms(0.1) < 1500


def test_doubt_waits_until_a_pause_would_be_rare() -> None:
    """One pause in five is longer than 0.6 s: who is as silent after even odds is done, four to one."""
    knobs = EndOfTurn(threshold=1 / (1 + 0.217), action_delay_ms=200)
    assert knobs.delay_ms(0.5) == 600


def test_dictated_digits_are_waited_for_longer_than_people_pause() -> None:
    assert EndOfTurn().delay_ms(p_eot("four one five", DIGITS)) > 1250


@pytest.mark.parametrize(
    ("knobs", "named"),
    [
        ({"threshold": 0.0}, "threshold"),
        ({"threshold": 1.5}, "threshold"),
        ({"action_delay_ms": 0}, "action_delay_ms"),
        ({"action_delay_ms": 900, "timeout_ms": 800}, "action_delay_ms"),
    ],
)
def test_knobs_that_make_no_sense(knobs: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        EndOfTurn(**knobs)  # type: ignore[arg-type]
