"""Words that a voice says otherwise than they are written."""

from __future__ import annotations

import pytest

from pipeline.agent import HangUp, Say
from pipeline.result import SessionResult
from pipeline.session.pronunciation import Pronunciation
from pipeline.settings import SessionSettings
from pipeline.speech import SpokenWord
from tests.support.speech.conversation import (
    FakeAgent,
    FakeTts,
    agent_texts,
    converse,
)

TABLE = {"Nguyen": "win", "Openline": "open line", "GIF": "jif"}
WRITTEN = "Hello from Nguyen, at Openline - not openlines."


def said(tts: FakeTts) -> SessionResult:
    settings = SessionSettings(pronunciation=TABLE)
    return converse(FakeAgent([Say(WRITTEN), HangUp()]), tts=tts, settings=settings)[0]


def test_the_voice_gets_the_spoken_words_and_the_transcript_the_written_ones() -> None:
    tts = FakeTts()
    result = said(tts)
    assert tts.asked == ["Hello from win, at open line - not openlines."]
    assert " ".join(agent_texts(result)) == WRITTEN


@pytest.mark.parametrize("at", [3, 5, 6])
def test_a_voice_that_breaks_off_goes_on_at_the_written_word(at: int) -> None:
    tts = FakeTts()
    tts.fail_at[0] = at
    result = said(tts)
    rest = tts.asked[1].split()
    assert tts.asked[0].split()[-len(rest) :] == rest
    assert " ".join(agent_texts(result)) == WRITTEN


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("nguyen and NGUYEN's", "win and win's"),
        ("a gif, two GIFs", "a jif, two GIFs"),
        ("nothing of it", "nothing of it"),
    ],
)
def test_whole_words_in_any_case(written: str, spoken: str) -> None:
    assert Pronunciation(TABLE).respelled(written).text == spoken


def test_the_times_of_a_written_word_are_those_of_all_that_is_said_for_it() -> None:
    respelled = Pronunciation(TABLE).respelled("At Openline now")
    spoken = [
        SpokenWord(word, at * 10, at * 10 + 10) for at, word in enumerate(["At", "open", "line", "now"])
    ]
    assert respelled.words(spoken) == [
        SpokenWord("At", 0, 10),
        SpokenWord("Openline", 10, 30),
        SpokenWord("now", 30, 40),
    ]


def test_without_a_table_nothing_changes() -> None:
    respelled = Pronunciation({}).respelled("At Openline  now")
    words = [SpokenWord("x", 0, 1)]
    assert (respelled.text, respelled.words(words)) == ("At Openline  now", words)
