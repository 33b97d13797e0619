"""The bench of recorded people: its halves, its questions, and what counts as acted upon."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading

import numpy as np
import pytest

from bench.embedded_stt.corpus import LINE_HZ, PROMPTS, Spoken
from bench.people import report
from bench.people.corpus import ANNOUNCER, NUMBERS, halves, numbers, said, sounds
from bench.people.questions import TEN, dictated, of_ten, other_words
from bench.support.processes import children

TEXTS = (
    "yes please", "no", "monday", "extension", "your call is now first in line", "forty",
    "press five to leave a message", "golf", "hotel", "india", "juliet", "kilo", "lima", "mike", "november",
    "quebec",
)  # fmt: skip


def spoken(text: str) -> Spoken:
    return Spoken(f"{text}.wav", ANNOUNCER, text, np.zeros(1, np.int16))


CORPUS = [spoken(text) for text in TEXTS]


def test_a_file_is_of_one_half_by_its_name() -> None:
    tuning, reported = halves(said(LINE_HZ))
    names = {each.name for each in tuning if each.voice == ANNOUNCER}
    assert names
    assert not names & {each.name for each in reported if each.voice == ANNOUNCER}
    assert all(int(hashlib.sha1(name.encode()).hexdigest(), 16) % 2 == 0 for name in names)
    assert all((PROMPTS / name).name == name for name in names)


def test_numbers_hold_their_digits_and_a_pause_behind_each() -> None:
    made = list(numbers(LINE_HZ))
    assert len(made) == NUMBERS
    assert all(len(each.samples) > 0.3 * LINE_HZ * len(each.text) for each in made)


def test_sounds_are_as_many_seconds_as_asked_for() -> None:
    total = sum(len(samples) for _, samples in sounds(60, LINE_HZ)) / LINE_HZ
    assert 60 <= total <= 60 + 8 + 60 * 0.8


def test_the_right_answer_is_among_ten_that_do_not_hold_each_other() -> None:
    for question in of_ten(CORPUS):
        assert question.spoken.text in question.expected.phrases
        assert len(question.expected.phrases) == TEN
        assert question.acted_on(question.right) == question.right


def test_other_words_are_no_answer_to_what_they_are_put_to() -> None:
    asked = list(other_words(CORPUS))
    assert {question.name for question in asked} == {"yes_no", "digits", "date", "ten phrases"}
    assert all(not question.acted_on(question.spoken.text) for question in asked)
    assert not [each for each in asked if each.name == "yes_no" and each.spoken.text in ("no", "yes please")]
    assert not [each for each in asked if each.name == "digits" and each.spoken.text == "forty"]


@pytest.mark.parametrize(("heard", "acted"), [("5 5 5 0", "5550"), ("five five five zero", "5550"), ("", "")])
def test_a_number_is_acted_on_by_its_digits(heard: str, acted: str) -> None:
    (question,) = dictated([spoken("5550")])
    assert question.acted_on(heard) == acted


def test_confidences_are_counted_by_word_in_their_range_and_half() -> None:
    rated = [
        {"tunes": True, "figures": False, "confidence": 0.55, "words": (3, 4)},
        {"tunes": True, "figures": False, "confidence": 0.5, "words": (1, 1)},
        {"tunes": False, "figures": True, "confidence": 0.25, "words": (7, 7)},
    ]
    rows = {row["from"]: row for row in report.confidences(rated)}
    assert rows[0.5]["words, tuning"] == [4, 5]
    assert rows[0.2]["figures, reported"] == [7, 7]
    assert rows[0.9]["words, reported"] == [0, 0]


def test_a_process_that_another_thread_has_started_is_counted() -> None:
    """As Whisper's is."""
    started, over = list[subprocess.Popen[bytes]](), threading.Event()

    def start() -> None:
        started.append(subprocess.Popen(["sleep", "30"]))
        over.wait(30)

    thread = threading.Thread(target=start)
    thread.start()
    while not started:
        pass
    counted = children(os.getpid())
    started[0].kill()
    started[0].wait()
    over.set()
    thread.join()
    assert started[0].pid in counted
