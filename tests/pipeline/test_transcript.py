"""Which words were heard."""

from __future__ import annotations

from pipeline.speech import SpokenWord
from pipeline.transcript import Role, Transcript, TranscriptEntry, heard_words, placed_words

RATE_HZ = 8000


def spoken(*words: str, each: int = 1000) -> list[SpokenWord]:
    return [SpokenWord(word, index * each, (index + 1) * each) for index, word in enumerate(words)]


def test_the_texts_spelling_at_the_engines_times() -> None:
    words = placed_words(
        "Dr. Smith, please!", spoken("dr", "smith", "please"), samples=3000, rate_hz=RATE_HZ, complete=True
    )
    assert [(word.text, word.start) for word in words] == [("Dr.", 0), ("Smith,", 1000), ("please!", 2000)]


def test_an_engine_that_said_other_words_is_believed() -> None:
    words = placed_words("at 21", spoken("at", "twenty", "one"), samples=3000, rate_hz=RATE_HZ, complete=True)
    assert [word.text for word in words] == ["at", "twenty", "one"]


def test_words_so_far_while_the_engine_is_still_speaking() -> None:
    words = placed_words(
        "One, two, three", spoken("one", "two"), samples=2000, rate_hz=RATE_HZ, complete=False
    )
    assert [word.text for word in words] == ["One,", "two,"]


def test_without_word_times_they_are_spread_by_length() -> None:
    words = placed_words("a bbb", [], samples=6000, rate_hz=RATE_HZ, complete=True)
    assert [(word.start, word.end) for word in words] == [(0, 2000), (2000, 6000)]


def test_a_pause_at_a_comma_counts_like_letters() -> None:
    words = placed_words("Yes, I do", [], samples=1300, rate_hz=RATE_HZ, complete=True)
    assert [word.start for word in words] == [0, 800, 1000]


def test_without_word_times_and_not_complete_the_usual_speed_is_taken() -> None:
    words = placed_words("hello there my friend", [], samples=100, rate_hz=RATE_HZ, complete=False)
    assert 1.0 < words[-1].end / RATE_HZ < 2.0


def test_a_word_is_heard_from_its_middle_on() -> None:
    words = spoken("one", "two")
    assert heard_words(words, 0) == ()
    assert heard_words(words, 499) == ()
    assert [word.text for word in heard_words(words, 500)] == ["one"]
    assert [word.text for word in heard_words(words, 1499)] == ["one"]
    assert len(heard_words(words, 1500)) == 2


def test_no_words_no_samples() -> None:
    assert placed_words("", [], samples=0, rate_hz=RATE_HZ, complete=True) == ()


def test_entries_keep_their_order() -> None:
    transcript = Transcript()
    first = TranscriptEntry(Role.AGENT, "hello", 0, 500)
    second = TranscriptEntry(Role.CALLER, "hi", 700, 900, confidence=0.8)
    transcript.add(first)
    transcript.add(second)
    assert transcript.entries == (first, second)
