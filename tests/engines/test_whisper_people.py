"""Whisper tiny.en by pip on recorded people, tones and noise on the line, and the rules on its texts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from bench.embedded_stt.corpus import DIGITS, joined, on_the_line, prompt
from pipeline.audio import Pcm
from pipeline.engines.local_weights import WHISPER
from pipeline.errors import EngineMissing
from pipeline.registry import load
from pipeline.speech import Hypothesis
from pipeline.stt import faster_whisper
from pipeline.stt.faster_whisper import FasterWhisper
from pipeline.stt.whisper.rules import (
    another_window_s,
    believed,
    confirmed,
    is_figures,
    is_loop,
    is_row,
    most_tokens,
    row_window_s,
    said_once,
    voiced_s,
)
from pipeline.stt.whisper.wire import Decoded
from pipeline.text.fold import plain_words
from pipeline.text.lexicon import lexicon
from pipeline.text.spoken_numbers import spoken_digits
from tests.support.speech.engines import LINE_HZ
from tests.support.speech.local_speech import needs


@pytest.fixture(scope="module")
def recognizer() -> Iterator[FasterWhisper]:
    """As a configuration has it that names nothing but the engine."""
    needs(WHISPER)
    engine: FasterWhisper = load("stt", "faster-whisper", {"threads": 1})
    asyncio.run(engine.start())
    yield engine
    asyncio.run(engine.close())


async def heard(recognizer: FasterWhisper, samples: Pcm) -> Hypothesis:
    return await recognizer.decode(samples, LINE_HZ, "en", None)


async def test_without_a_model_the_weights_by_pip_understand_a_person(recognizer: FasterWhisper) -> None:
    assert recognizer.settings.model == ""
    assert (recognizer.settings.encoder_window_s, recognizer.settings.compute_type) == (12, "int8")
    said = await heard(recognizer, prompt("vm-newpassword"))
    assert said.text == "please enter your new password followed by the pound key"
    assert said.confidence > 0.8


async def test_weights_by_pip_that_are_others_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needs(WHISPER)
    files = {**WHISPER.files, "model.bin": replace(WHISPER.files["model.bin"], sha256="0" * 64)}
    monkeypatch.setattr(faster_whisper, "WHISPER", replace(WHISPER, files=files))
    with pytest.raises(EngineMissing, match=r"model\.bin is not the file that we know"):
        await FasterWhisper.from_settings({"threads": 1}).start()


@pytest.mark.parametrize(
    ("name", "word"), [("phonetic/o_p", "oscar"), ("phonetic/a_p", "alpha"), ("vm-message", "message")]
)
async def test_a_word_that_the_model_loops_on_is_heard_once(
    recognizer: FasterWhisper, name: str, word: str
) -> None:
    assert (await heard(recognizer, prompt(name))).text == word


@pytest.mark.parametrize("number", ["5550142", "7730", "2002", "9081726354", "22", "4711", "88099"])
async def test_a_number_said_digit_by_digit_comes_out_as_its_digits(
    recognizer: FasterWhisper, number: str
) -> None:
    said = joined([f"digits/{digit}" for digit in number], 150)
    text = (await heard(recognizer, said)).text
    assert spoken_digits(text, lexicon("en")) == number
    assert any(letter.isdecimal() for letter in text)
    assert not set(text.split()) & set(DIGITS)


async def test_a_whole_announcement_longer_than_the_window_is_heard_to_its_end(
    recognizer: FasterWhisper,
) -> None:
    said = joined(["vm-newpassword", "vm-rec-name", "vm-msgsaved", "vm-nobodyavail"], 300)
    assert 13 * LINE_HZ < len(said) < 16 * LINE_HZ
    text = (await heard(recognizer, said)).text
    assert text.startswith("please enter your new password")
    assert text.endswith("nobody is available to take your call at the moment")


def tones(seconds: float, *hz: float, level: float = 5000) -> Pcm:
    at = np.arange(int(seconds * LINE_HZ)) / LINE_HZ
    return np.asarray(sum(level * np.sin(2 * np.pi * each * at) for each in hz)).astype(np.int16)


def of_nobody() -> Iterator[tuple[str, Pcm]]:
    """What a line brings that nobody said."""
    off, dice = np.zeros, np.random.default_rng(3)
    for count in (1, 2, 4, 6):
        beep = (tones(0.3, 1000), off(int(0.4 * LINE_HZ), np.int16))
        yield f"{count} beeps", np.concatenate(beep * count)
        busy = (tones(0.5, 480, 620), off(LINE_HZ // 2, np.int16))
        yield f"{count} busy tones", np.concatenate(busy * count)
    yield "information tones", np.concatenate([tones(0.33, each) for each in (950, 1400, 1800)])
    for seconds in (1, 2, 4):
        yield f"dial tone, {seconds} s", tones(seconds, 350, 440)
        yield f"fax, {seconds} s", tones(seconds, 1100)
        yield f"modem, {seconds} s", tones(seconds, 2100)
        yield f"ringback, {seconds} s", tones(seconds, 440, 480)
        yield f"silence, {seconds} s", off(seconds * LINE_HZ, np.int16)
        for level in (50, 300, 1500):
            noise = dice.normal(0, level, seconds * LINE_HZ).astype(np.int16)
            yield f"noise of {level}, {seconds} s", noise


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.nightly("ci"))])
async def test_tones_noise_and_silence_are_no_words(recognizer: FasterWhisper, step: int) -> None:
    asked = islice(of_nobody(), None, None, step)
    found = {name: (await heard(recognizer, on_the_line(each, LINE_HZ))).text for name, each in asked}
    assert {name: text for name, text in found.items() if text} == {}


# The rules --------------------------------------------------------------------------------------------------


def text_of(decoded: Decoded, *, loops: bool = False) -> str:
    return believed(decoded, language="en", min_confidence=0.4, loops=loops).text


@pytest.mark.parametrize(
    ("text", "logprob", "no_speech", "expected"),
    [
        ("5550 142.", -1.08, 0.29, "5550 142"),  # 0.34: a number has several spellings
        ("555-0142", -1.6, 0.1, "555 0142"),
        ("555-0142", -1.7, 0.1, ""),
        ("Thank you.", -0.9, 0.3, "thank you"),
        ("Thank you.", -1.08, 0.29, ""),
        ("Oh", -1.08, 0.29, ""),
        ("Beep beep", -0.1, 0.7, ""),
        ("5", -0.1, 0.61, ""),
        ("Yes.", -0.1, 0.6, "yes"),
        ("...", -0.1, 0.1, ""),
    ],
)
def test_what_is_believed(text: str, logprob: float, no_speech: float, expected: str) -> None:
    assert text_of(Decoded(text, logprob, no_speech)) == expected


@pytest.mark.parametrize(
    ("text", "voiced", "loops"),
    [
        ("Oscar. Oscar. Oscar. Oscar.", 0.8, True),
        ("No no", 0.6, True),
        ("Nine, nine, nine, nine.", 1.6, False),
        ("Nine, nine, nine, nine.", 0.5, True),
        ("8 8 8 8 8 8 8 8 9 9 9 9", 1.5, True),
        ("5 5", 0.9, False),
        ("555-0142", 2.0, False),
        ("555-0142", 1.0, True),
        ("I'm sorry, that is not a valid extension. Please try again.", 3.0, False),
        ("No.", 0.1, False),
        ("", 0.0, False),
    ],
)
def test_what_is_a_loop(text: str, voiced: float, loops: bool) -> None:
    assert is_loop(Decoded(text, -0.1, 0.1), voiced, "en") is loops


def test_a_text_that_was_cut_off_is_decoded_again() -> None:
    assert is_loop(Decoded("I would like to", -0.1, 0.1, whole=False), 3.0, "en")


@pytest.mark.parametrize(
    ("text", "once"),
    [
        ("oscar oscar oscar osc", "oscar"),
        ("thank you thank you thank you thank you", "thank you"),
        ("no no", "no no"),
        ("i said no no no to them", "i said no to them"),
        ("call 5 5 5 5 5 5", ""),
        ("nine nine nine nine", ""),
        ("call zero zero zero zero", ""),
        ("one two three", "one two three"),
    ],
)
def test_a_loop_is_said_once(text: str, once: str) -> None:
    assert said_once(text, "en") == once
    assert text_of(Decoded(text, -0.1, 0.1), loops=True) == once


@pytest.mark.parametrize("text", ["8 8 8 8 8 8 8 8 9 9 9 9", "Nine, nine, nine, nine.", "Zero, zero."])
def test_figures_that_still_loop_are_no_number(text: str) -> None:
    assert text_of(Decoded(text, -0.1, 0.1), loops=True) == ""


@pytest.mark.parametrize(
    ("text", "language", "row"),
    [
        ("1 1 1 1 1 1 1 1 1", "en", True),
        ("One. One. One. One.", "en", True),
        ("5 5", "en-US", True),
        ("555", "en", True),
        ("It's 9, 9, 9.", "en", True),
        ("٥ خمسة", "ar", True),
        ("22", "en", False),  # twenty-two
        ("5", "en", False),
        ("555-0142", "en", False),
        ("No, no, no.", "en", False),
    ],
)
def test_what_is_one_figure_in_a_row(text: str, language: str, row: bool) -> None:
    assert is_row(text, language) is row


def test_one_figure_in_a_row_needs_the_whole_confidence() -> None:
    assert text_of(Decoded("1 1 1 1", -1.0, 0.1)) == ""  # 0.37
    assert text_of(Decoded("1 1 1 2", -1.0, 0.1)) == "1 1 1 2"
    assert text_of(Decoded("1 1 1 1", -0.8, 0.1)) == "1 1 1 1"


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("Zero. Zero. Zero.", "0 0 0", "0 0 0"),
        ("1 1 1 1 1 1 1 1 1", "1 1 1 1", ""),
        ("Nine. Nine. Nine.", "Nine.", ""),
        ("5", "5 5 5", ""),
        ("Oscar. Oscar. Oscar.", "Oscar.", "Oscar."),
        ("8 8 8 9 9 9", "8 9", "8 9"),
    ],
)
def test_one_figure_in_a_row_needs_two_windows_that_agree(first: str, second: str, text: str) -> None:
    assert confirmed(Decoded(first, -0.1, 0.1), Decoded(second, -0.1, 0.1), "en").text == text


@pytest.mark.parametrize(
    ("text", "language", "figures"),
    [
        ("5550142", "en-GB", True),
        ("7 seven 3 oh", "en", True),
        ("seven", "en", False),
        ("7 people", "en", False),
        ("٥ خمسة", "ar", True),
        ("7 drei", "de", False),
        ("", "en", False),
    ],
)
def test_what_is_a_number_and_nothing_else(text: str, language: str, figures: bool) -> None:
    assert is_figures(plain_words(text), language) is figures


@pytest.mark.parametrize(
    ("window", "longest", "other"),
    [(12, 3.0, 15), (12, 14.2, 19), (15, 3.0, 18), (30, 3.0, 15), (1, 2.0, 15), (30, 29.0, 30)],
)
def test_a_loop_has_another_window(window: int, longest: float, other: int) -> None:
    assert another_window_s(window, longest) == other


def test_one_figure_in_a_row_is_counted_with_the_window_that_models_learned() -> None:
    assert [row_window_s(window, 3.0) for window in (1, 12, 30)] == [30, 30, 15]


@pytest.mark.parametrize("number", ["666", "5555"])
async def test_a_figure_said_again_and_again_is_right_or_asked_for_again(
    recognizer: FasterWhisper, number: str
) -> None:
    said = joined([f"digits/{digit}" for digit in number], 150)
    assert spoken_digits((await heard(recognizer, said)).text, lexicon("en")) in ("", number)


def test_a_loop_costs_no_more_than_what_could_be_said() -> None:
    word = voiced_s(prompt("phonetic/o_p"), LINE_HZ)
    assert 0.4 < word < 1.2
    assert most_tokens(word) < 25
    assert voiced_s(np.zeros(LINE_HZ, np.int16), LINE_HZ) == 0
