"""What words said over the agent mean."""

from __future__ import annotations

import pytest

from pipeline.errors import SettingsRefused
from pipeline.text.word_lists import EXTENSIBLE, OverlapKind, judge_overlap, plain, word_lists


@pytest.mark.parametrize(
    "text", ["Mm-hm.", "uh huh", "yeah", "okay, right", "I see", "yeah yeah I know", "oh really", "thank you"]
)
def test_go_on(text: str) -> None:
    assert judge_overlap(text, "en").kind is OverlapKind.BACKCHANNEL


@pytest.mark.parametrize("text", ["أَيْوَه", "نعم نعم", "طيب", "إن شاء الله", "تمام"])
def test_go_on_in_arabic(text: str) -> None:
    assert judge_overlap(text, "ar").kind is OverlapKind.BACKCHANNEL


@pytest.mark.parametrize(
    "text", ["stop", "no no", "okay wait", "yeah but", "I have a question", "hold on a second"]
)
def test_give_me_the_floor(text: str) -> None:
    assert judge_overlap(text, "en-GB").kind is OverlapKind.STOP


@pytest.mark.parametrize("text", ["لا", "لحظة", "طيب لكن", "عندي سؤال", "لو سمحت"])
def test_give_me_the_floor_in_arabic(text: str) -> None:
    assert judge_overlap(text, "ar").kind is OverlapKind.STOP


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tomorrow", 1),
        ("the blue one", 2),
        ("yeah the price", 1),
        ("how much is it", 2),
        ("it is my bill", 1),
    ],
)
def test_words_of_their_own(text: str, words: int) -> None:
    meant = judge_overlap(text, "en")
    assert (meant.kind, meant.content_words) == (OverlapKind.CONTENT, words)


@pytest.mark.parametrize("text", ["", "  ", "um", "uh, er", "the", "?!"])
def test_nothing_said(text: str) -> None:
    assert judge_overlap(text, "en").kind is OverlapKind.NOTHING


def test_in_a_language_without_lists_every_word_counts() -> None:
    assert judge_overlap("ja ja", "de").content_words == 2


def test_an_agent_adds_its_own_words() -> None:
    german = word_lists("de", {"backchannels": ["ja", "genau so"], "stops": ["Halt!"]})
    assert judge_overlap("Ja, genau so.", "de", german).kind is OverlapKind.BACKCHANNEL
    assert judge_overlap("ja halt", "de", german).kind is OverlapKind.STOP
    more = word_lists("en", {"backchannels": ["splendid"]})
    assert judge_overlap("splendid, okay", "en", more).kind is OverlapKind.BACKCHANNEL
    assert judge_overlap("splendid", "en").kind is OverlapKind.CONTENT


def test_a_list_that_does_not_exist() -> None:
    with pytest.raises(SettingsRefused, match="backchanels"):
        word_lists("en", {"backchanels": ["ja"]})


def test_lists_hold_plain_phrases() -> None:
    for language in ("en", "ar"):
        lists = word_lists(language)
        for name in EXTENSIBLE:
            assert all(entry and entry == plain(entry) for entry in getattr(lists, name)), name
        assert set(lists.digits.values()) == set("0123456789")


def test_stops_and_backchannels_do_not_contradict_each_other() -> None:
    for language in ("en", "ar"):
        lists = word_lists(language)
        assert not lists.stops & lists.backchannels
        assert not lists.stops & lists.light
